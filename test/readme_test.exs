defmodule ExPhil.Native.ReadmeTest do
  # Every Elixir block of README.md runs as it stands, in an empty folder, in order: what one block binds, the next may
  # use, as for a reader who types along. Not async: the folder is the whole VM's.
  use ExUnit.Case

  @moduletag :tmp_dir

  # {line, code} of each block.
  defp blocks do
    readme = File.read!("README.md")

    for [{start, length}] <- Regex.scan(~r/(?<=```elixir\n).*?(?=^```)/ms, readme, return: :index) do
      line = readme |> binary_part(0, start) |> String.split("\n") |> length()
      {line, binary_part(readme, start, length)}
    end
  end

  defp run(blocks, folder) do
    File.cd!(folder, fn ->
      Enum.reduce(blocks, {[], __ENV__}, fn {line, code}, {bindings, env} ->
        quoted = Code.string_to_quoted!(code, file: "README.md", line: line)
        {_, bindings, env} = Code.eval_quoted_with_env(quoted, bindings, env)
        {bindings, env}
      end)
      |> elem(0)
    end)
  end

  defp nx?({_line, code}), do: code =~ "Nx."

  test "without Nx", %{tmp_dir: folder} do
    plain = Enum.reject(blocks(), &nx?/1)
    assert length(plain) >= 6
    bindings = run(plain, folder)

    assert byte_size(bindings[:logits]) == 64 * 4
    assert length(bindings[:answers]) == 20
    assert length(bindings[:new_answers]) == 5
    assert {:f32, {2, 64}, _} = bindings[:y_next]
    assert {:f32, {2, 60, 64, 16}, _} = bindings[:states]
    assert {:f32, {1, 8, 4}, _} = bindings[:y]
    assert bindings[:causal] == cumsum([1, 3, 6, 4, 9, 15])
    assert bindings[:anti_causal] == cumsum([6, 5, 3, 15, 11, 6])
  end

  @tag :nx
  test "with Nx", %{tmp_dir: folder} do
    bindings = blocks() |> Enum.filter(&nx?/1) |> run(folder)
    assert %{shape: {32, 60, 512}} = bindings[:y]
  end

  defp cumsum(values), do: {:f32, {2, 3}, for(v <- values, into: <<>>, do: <<v::float-32-little>>)}
end
