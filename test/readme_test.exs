defmodule ExPhil.Native.ReadmeTest do
  # Every Elixir block of README.md, docs/reference.md and docs/xla.md runs unchanged, in an empty folder, in order: a block may
  # use the variables of earlier blocks. Not async: the current folder is shared by the entire VM.
  use ExUnit.Case

  @compile {:no_warn_undefined, Nx}
  @moduletag :tmp_dir
  # The examples run in real time or train; a loaded machine takes long for some.
  @moduletag timeout: 600_000

  # {file, line, code} of each block.
  defp blocks(file) do
    text = File.read!(file)

    for [{start, length}] <- Regex.scan(~r/(?<=```elixir\n).*?(?=^```)/ms, text, return: :index) do
      line = text |> binary_part(0, start) |> String.split("\n") |> length()
      {file, line, binary_part(text, start, length)}
    end
  end

  defp run(blocks, folder) do
    File.cd!(folder, fn ->
      Enum.reduce(blocks, {[], __ENV__}, fn {file, line, code}, {bindings, env} ->
        quoted = Code.string_to_quoted!(code, file: file, line: line)
        {_, bindings, env} = Code.eval_quoted_with_env(quoted, bindings, env)
        {bindings, env}
      end)
      |> elem(0)
    end)
  end

  # Lines of a config file, not of a program.
  defp config?({_file, _line, code}), do: String.starts_with?(code, "config ")

  defp nx?({_file, _line, code}), do: code =~ "Nx."

  test "the README without Nx", %{tmp_dir: folder} do
    plain = Enum.reject(blocks("README.md"), &nx?/1)
    assert length(plain) >= 5
    bindings = run(plain, folder)

    assert byte_size(bindings[:logits]) == 64 * 4
    assert length(bindings[:answers]) == 20
    assert byte_size(bindings[:new_answers]) == 5 * 64 * 4
    assert {:f32, {2, 64}, _} = bindings[:y_next]
    assert {:f32, {2, 60, 64, 16}, _} = bindings[:states]
    assert {:f32, {2, 60, 64}, _} = bindings[:anti_causal]
  end

  @tag :nx
  test "the README with Nx", %{tmp_dir: folder} do
    bindings = "README.md" |> blocks() |> Enum.filter(&nx?/1) |> run(folder)
    assert %{shape: {32, 60, 512}} = bindings[:y]
  end

  test "the reference", %{tmp_dir: folder} do
    blocks = blocks("docs/reference.md")
    assert length(blocks) >= 2
    bindings = run(blocks, folder)
    assert {:f32, {1, 8, 4}, _} = bindings[:y]
    assert bindings[:causal] == cumsum([1, 3, 6, 4, 9, 15])
    assert bindings[:anti_causal] == cumsum([6, 5, 3, 15, 11, 6])
  end

  @tag :axon
  test "the guide to Axon", %{tmp_dir: folder} do
    Enum.each([:nx, :polaris, :axon], &Application.ensure_all_started/1)
    bindings = "docs/xla.md" |> blocks() |> Enum.reject(&config?/1) |> run(folder)
    # What answering 0 would cost.
    spread = bindings[:distances] |> Nx.pow(2) |> Nx.mean() |> Nx.to_number()
    assert bindings[:error] < 0.5 * spread
  end

  test "the picture shows the recorded latencies" do
    [_header | lines] = "bench/results/latency.csv" |> File.read!() |> String.split("\n", trim: true)
    picture = File.read!("docs/latency.svg")
    assert length(lines) >= 3

    for line <- lines do
      [what, where, program, p50 | _] = String.split(line, ",")
      {us, ""} = Float.parse(p50)
      assert picture =~ "#{what}, #{where}: #{program}"
      assert picture =~ ExPhil.Native.Tools.Benchmark.Plot.microseconds(us)
    end
  end

  defp cumsum(values), do: {:f32, {2, 3}, for(v <- values, into: <<>>, do: <<v::float-32-little>>)}
end
