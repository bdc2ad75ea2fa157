defmodule ExPhil.Native.ReadmeTest do
  # Every Elixir block of README.md, docs/reference.md, docs/training.md and docs/xla.md runs unchanged, in an empty folder, in order: a block may
  # use the variables of earlier blocks. Not async: the current folder is shared by the entire VM.
  use ExUnit.Case
  import ExPhil.Native.TestSupport.Documents
  alias ExPhil.Native.TestSupport.Quotes

  @compile {:no_warn_undefined, Nx}
  @moduletag :tmp_dir

  # Lines of a config file, not of a program.
  defp config?({_file, _line, code}), do: String.starts_with?(code, "config ")

  defp nx?({_file, _line, code}), do: code =~ "Nx."

  test "its pictures are there" do
    text = File.read!("README.md")

    pictures =
      Regex.scan(~r/!\[[^\]]+\]\(((?!https:)[^)]+)\)/, text, capture: :all_but_first) |> List.flatten()

    assert "docs/chaser.svg" in pictures

    for picture <- pictures,
        do: assert({picture, true} == {picture, File.read!(picture) =~ ~r/<svg.*<\/svg>/s})

    chaser = File.read!("docs/chaser.svg")
    for word <- ["with a memory", "without", "target", "chaser"], do: assert(chaser =~ ">#{word}<")
  end

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

  test "the page about training", %{tmp_dir: folder} do
    bindings = "docs/training.md" |> blocks() |> run(folder)
    assert %{stick: stick, jump: jump} = bindings[:correct]
    assert stick > 0.95 and jump > 0.95
    assert {bindings[:stick], bindings[:jump]} == {1, 1}
    assert {:s32, {2}, _} = bindings[:drawn]
    assert Enum.sort(File.ls!(folder)) == ["loss.csv", "policy.safetensors", "run.safetensors"]
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

  test "the README quotes recorded times" do
    readme = File.read!("README.md")
    quoted = for {_, "us"} = time <- Quotes.times(readme), do: time
    assert length(quoted) >= 3
    assert Quotes.invented(readme) == []
    assert readme |> String.replace(" us", "9 us") |> Quotes.invented() |> length() == length(quoted)
  end

  test "a time that no row has is found" do
    table = """
    | | p50 | p99 | must p50 | all, ms |
    |---|---|---|---|---|
    | plain | **93.2** | 149.2 | 85 | 4.5 |
    | armed | 22.2 | 83.6, 71 | 35 | 1,234 |

    | | load |
    |---|---|
    | f32 | 270 ms |
    """

    invented = fn text -> Quotes.invented(text <> " ([x](bench/results/x.md#y))", fn _ -> table end) end

    assert invented.("93.2 / 149.2 us, then 22.2 us, 71 us, 4.5 ms, 1,234 ms, 270 ms and a frame of 16.67 ms") ==
             []

    assert invented.("93 us") == ["93 us"]
    assert invented.("93.2 / 83.6 us") == ["93.2 / 83.6 us"], "values of two rows"

    assert invented.("85 us, 93.2 ms and 4.5 us") == ["85 us", "93.2 ms", "4.5 us"],
           "a target, and other units"

    assert invented.("270 us") == ["270 us"]

    assert Quotes.invented("93.2 us", fn _ -> table end) == ["93.2 us"], "no link"
    assert Quotes.invented("```\n12 us\n```\n\nNothing.", fn _ -> table end) == [], "code"

    csv = "what,p50_us,p99_us\nstep,21.8,\n"
    of_csv = fn text -> Quotes.invented(text <> " ([x](bench/results/latency.csv))", fn _ -> csv end) end
    assert of_csv.("21.8 us") == []
    assert of_csv.("34.9 us") == ["34.9 us"]
  end

  defp cumsum(values), do: {:f32, {2, 3}, for(v <- values, into: <<>>, do: <<v::float-32-little>>)}
end
