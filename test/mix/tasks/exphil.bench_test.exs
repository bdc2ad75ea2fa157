defmodule Mix.Tasks.Exphil.BenchTest do
  # Not async: there is one Mix shell, and PATH is shared by the process.
  use ExUnit.Case

  import ExPhil.Native.TestSupport.MixShell

  alias ExPhil.Native.Policy
  alias ExPhil.Native.TestSupport.Shared
  alias Mix.Tasks.Exphil.Bench

  @moduletag :tmp_dir
  @few ["--quick", "--warmup", "0", "--runs", "2", "--backend", "host"]

  setup :capture

  test "tables, and the same numbers as JSON", %{tmp_dir: folder} do
    json = Path.join(folder, "bench.json")
    Bench.run(@few ++ ["--suite", "scan", "--suite", "policy", "--suite", "scan", "--json", json])
    text = output()
    assert text =~ ~r/^1 of 8  scan: small/
    assert text =~ ~r/memory ceiling .* +\d.* .B\/s/
    assert text =~ ~r/  small \(1x4x16x4\)( +\d[\d.]* (us|ms|s)){5} .* \d[\d.]*x +(yes|no)/
    assert text =~ "step, one agent"
    assert text =~ "With fewer than 100 runs p99 is the slowest run."
    refute text =~ "transfer:"

    document = json |> File.read!() |> decode()
    assert document["suites"] == ["scan", "policy"]
    assert %{"backend" => "host", "dtype" => "f32", "quick" => true, "runs" => 2, "warmup" => 0} = document
    assert document["version"] == ExPhil.Native.version()
    assert document["elixir"] == System.version()
    assert {:ok, _, 0} = DateTime.from_iso8601(document["date"])
    assert is_binary(document["device"]) and is_map(document["device_details"])
    assert length(document["cases"]) == 8
    small = hd(document["cases"])
    assert %{"name" => "small", "suite" => "scan", "shape" => [1, 4, 16, 4], "line" => nil} = small
    assert small["p50_us"] > 0 and small["p50_us"] <= small["p99_us"]
    assert text =~ ExPhil.Native.Tools.Benchmark.Report.time(small["p50_us"])
  end

  test "--policy measures a policy of any trunk, right by the scalar reference", %{tmp_dir: folder} do
    json = Path.join(folder, "bench.json")

    for {trunk, window} <- [gru: 20, lstm: nil, min_gru: 7, mamba1: nil] do
      path = Path.join(folder, "#{trunk}.safetensors")
      options = [d_input: 9, d_output: 4, d_model: 8, layers: 2, window: window, backend: :host]
      :ok = trunk |> Policy.init!(options) |> Policy.save(path)
      Bench.run(@few ++ ["--suite", "policy", "--policy", path, "--json", json])
      text = output()
      assert text =~ ~r/policy +#{Regex.escape(path)}: #{trunk}, 2 layers, d_model 8/
      assert text =~ "window of #{window || 60}"
      assert %{"policy" => name, "cases" => [step | _]} = json |> File.read!() |> decode()
      assert name =~ path and step["relative_error"] <= step["tolerance"]
      assert step["operations"] > 0
    end

    missing = Path.join(folder, "none.safetensors")
    assert_raise Mix.Error, ~r/none.safetensors/, fn -> Bench.run(@few ++ ["--policy", missing]) end
  end

  @tag :shared
  test "--policy measures ExPhil's gated policies" do
    for trunk <- ~w(gru gru_fused lstm lstm_fused min_gru min_lstm) do
      path = Shared.file("exphil/trunks/#{trunk}_e32_h32_w20/policy.bin")
      Bench.run(@few ++ ["--suite", "policy", "--policy", path])
      assert output() =~ "window of 20"
    end
  end

  @tag :gnuplot
  test "a self-contained page", %{tmp_dir: folder} do
    html = Path.join(folder, "bench.html")
    Bench.run(@few ++ ["--dtype", "bf16", "--html", html])
    assert output() =~ "written: #{html}"
    page = File.read!(html)
    suites = ExPhil.Native.Tools.Benchmark.suites() -- ["policy"]
    for suite <- suites, do: assert(page =~ "<h2>#{suite}</h2>")
    assert length(String.split(page, "<svg ")) == 1 + 2 * length(suites)
    assert length(String.split(page, "</svg>")) == 1 + 2 * length(suites)
    assert page =~ "60 FPS"

    # Nothing is fetched, no script runs, and the plots have distinct identifiers.
    without_namespaces = String.replace(page, ~r/xmlns(:xlink)?="[^"]*"/, "")
    refute without_namespaces =~ ~r/https?:|<script|src=|@import/
    ids = Regex.scan(~r/\bid=['"]([^'"]+)/, page, capture: :all_but_first)
    assert ids != [] and ids == Enum.uniq(ids)

    for [reference] <- Regex.scan(~r/href=['"]#([^'"]+)/, page, capture: :all_but_first),
        do: assert([reference] in ids)
  end

  test "without gnuplot a page is refused before anything is measured", %{tmp_dir: folder} do
    path = System.get_env("PATH")
    on_exit(fn -> System.put_env("PATH", path) end)
    System.put_env("PATH", folder)
    html = Path.join(folder, "bench.html")

    assert_raise Mix.Error, ~r/gnuplot, which was not found; .*gnuplot-nox/, fn ->
      Bench.run(["--html", html])
    end

    assert output() == ""
    refute File.exists?(html)
  end

  test "bad arguments are named before anything is measured", %{tmp_dir: folder} do
    nowhere = Path.join([folder, "nowhere", "bench.json"])

    for {args, expected} <- [
          {["--fast"], ~r/--fast is not an option/},
          {["now"], ~r/unexpected argument "now"/},
          {["--runs", "many"], ~r/--runs does not take "many"/},
          {["--runs", "0"], ~r/--runs must be from 1 to 1000000, got 0/},
          {["--warmup", "-1"], ~r/--warmup must be from 0 to 1000000, got -1/},
          {["--suite", "speed"], ~r/--suite must be one of scan, .*policy, got "speed"/},
          {["--dtype", "f64"], ~r/--dtype must be f32, f16 or bf16, got "f64"/},
          {["--dtype", "f16", "--suite", "policy"], ~r/f32 for the suite policy/},
          {["--backend", "abacus"], ~r/--backend must be auto, cuda or host, got "abacus"/},
          {["--json", nowhere], ~r/--json: .*nowhere.* cannot be written/},
          {["--json", folder], ~r/--json: .* cannot be written/}
        ] do
      assert_raise Mix.Error, expected, fn -> Bench.run(args) end
      assert output() == ""
    end
  end

  # ---- JSON, read strictly enough to notice what no parser would take ----------------------------------------

  defp decode(text) do
    {value, rest} = value(text)
    assert String.trim(rest) == ""
    value
  end

  defp value("{}" <> rest), do: {%{}, rest}
  defp value("{" <> rest), do: members(rest, %{})
  defp value("[]" <> rest), do: {[], rest}
  defp value("[" <> rest), do: elements(rest, [])
  defp value("null" <> rest), do: {nil, rest}
  defp value("true" <> rest), do: {true, rest}
  defp value("false" <> rest), do: {false, rest}

  defp value("\"" <> rest) do
    [full, text] = Regex.run(~r/\A((?:[^"\\\x00-\x1f]|\\["\\\/bfnrt]|\\u[0-9A-Fa-f]{4})*)"/u, rest)
    {text, binary_part(rest, byte_size(full), byte_size(rest) - byte_size(full))}
  end

  defp value(text) do
    [number, fraction] = Regex.run(~r/\A-?(?:0|[1-9]\d*)((?:\.\d+)?(?:[eE][+-]?\d+)?)/, text)
    rest = binary_part(text, byte_size(number), byte_size(text) - byte_size(number))
    {if(fraction == "", do: String.to_integer(number), else: String.to_float(number)), rest}
  end

  defp members(text, map) do
    {key, ":" <> rest} = value(text)
    {member, rest} = value(rest)
    refute Map.has_key?(map, key)
    map = Map.put(map, key, member)

    case rest do
      "," <> rest -> members(rest, map)
      "}" <> rest -> {map, rest}
    end
  end

  defp elements(text, list) do
    {element, rest} = value(text)

    case rest do
      "," <> rest -> elements(rest, [element | list])
      "]" <> rest -> {Enum.reverse([element | list]), rest}
    end
  end
end
