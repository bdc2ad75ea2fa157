defmodule Mix.Tasks.Exphil.Bench do
  @shortdoc "Measures scans, steps, transfers and a policy on this machine"
  @moduledoc """
  Measures the cost of the library's calls on this machine, and reports it in tables, as JSON, and as a page with
  plots.

      mix exphil.bench
      mix exphil.bench --quick
      mix exphil.bench --suite policy --suite scan --backend cuda --json bench.json --html bench.html

  Options:

    * `--suite NAME` - scan, step, discretization, associative, transfer or policy; may be given several times; all
      of them where it is left out
    * `--quick` - fewer and smaller cases, fewer runs: some seconds instead of some minutes
    * `--warmup N`, `--runs N` - calls of each case before, and while, it is measured (10 and 100; quick, 2 and 20)
    * `--dtype f32|f16|bf16` - type of inputs and results (f32); the policy is f32 only
    * `--backend auto|cuda|host` - where to run (auto)
    * `--policy FILE` - of any trunk, for the suite policy (a generated Mamba of 2 layers, d_model 256)
    * `--json FILE` - write every number to FILE, with the machine, the versions and the date
    * `--html FILE` - write one self-contained page with plots; needs gnuplot

  Every case is first compared with a plain scalar loop; a wrong result ends the task with an error, a slow one does
  not. docs/benchmarks.md explains how to read the numbers.
  """

  use Mix.Task

  alias ExPhil.Native.{Error, Json, Policy}
  alias ExPhil.Native.Tools.{Arguments, Benchmark}
  alias ExPhil.Native.Tools.Benchmark.{Page, Report}

  @requirements ["app.start"]
  @switches [
    suite: :keep,
    quick: :boolean,
    warmup: :integer,
    runs: :integer,
    dtype: :string,
    backend: :string,
    policy: :string,
    json: :string,
    html: :string
  ]
  @backends %{"auto" => :auto, "cuda" => :cuda, "host" => :host}
  @dtypes %{"f32" => :f32, "f16" => :f16, "bf16" => :bf16}
  @bar 24

  @impl true
  def run(args) do
    options = parse(args)
    if options[:html], do: or_raise(Page.ready())
    Enum.each([:json, :html], &check_folder(&1, options[&1]))
    if options[:policy], do: or_raise(Policy.load(options[:policy], backend: :host))

    result = options |> bench_options() |> Benchmark.run()
    clear_line()
    report = or_raise(result)
    say(Report.text(report))
    write(options[:json], fn -> [Json.encode(report), "\n"] end)
    write(options[:html], fn -> report |> Page.html() |> or_raise() end)
  end

  # ---- arguments -------------------------------------------------------------------------------------------

  defp parse(args) do
    options = Arguments.parse!(args, @switches, "exphil.bench")
    Enum.each(options, &check_option/1)
    options
  end

  defp check_option({:runs, runs}) when runs < 1 or runs > 1_000_000,
    do: Mix.raise("--runs must be from 1 to 1000000, got #{runs}")

  defp check_option({:warmup, warmup}) when warmup < 0 or warmup > 1_000_000,
    do: Mix.raise("--warmup must be from 0 to 1000000, got #{warmup}")

  defp check_option({:backend, backend}) when not is_map_key(@backends, backend),
    do: Mix.raise("--backend must be auto, cuda or host, got #{inspect(backend)}")

  defp check_option({:dtype, dtype}) when not is_map_key(@dtypes, dtype),
    do: Mix.raise("--dtype must be f32, f16 or bf16, got #{inspect(dtype)}")

  defp check_option({:suite, suite}) do
    if suite not in Benchmark.suites() do
      Mix.raise("--suite must be one of #{Enum.join(Benchmark.suites(), ", ")}, got #{inspect(suite)}")
    end
  end

  defp check_option(_), do: :ok

  # Checked before minutes are spent on measuring.
  defp check_folder(_name, nil), do: :ok

  defp check_folder(name, path) do
    if not File.dir?(Path.dirname(path)) or File.dir?(path) do
      Mix.raise(
        "--#{name}: #{path} cannot be written: its folder must exist, and it must not be a folder itself"
      )
    end
  end

  defp bench_options(options) do
    suites = options |> Keyword.get_values(:suite) |> Enum.uniq()

    [
      suites: if(suites == [], do: nil, else: suites),
      quick: Keyword.get(options, :quick, false),
      warmup: options[:warmup],
      runs: options[:runs],
      dtype: @dtypes[Keyword.get(options, :dtype, "f32")],
      backend: @backends[Keyword.get(options, :backend, "auto")],
      policy: options[:policy],
      progress: progress()
    ]
  end

  # ---- progress: a bar in a terminal, a line for each case elsewhere ---------------------------------------

  defp progress do
    terminal? = IO.ANSI.enabled?()
    fn event -> if terminal?, do: bar(event), else: line(event) end
  end

  defp bar({:case, index, total, name}) do
    Process.put(__MODULE__, {index, total, name})
    draw(0.0)
  end

  defp bar({:run, done, of}) do
    # About fifty updates per case: a terminal is slow compared with a call of 10 us.
    if rem(done, max(div(of, 50), 1)) == 0, do: draw(done / of)
  end

  defp bar({:result, _result}), do: :ok

  defp draw(share) do
    {index, total, name} = Process.get(__MODULE__)
    filled = round(@bar * (index - 1 + share) / total)
    cells = String.duplicate("#", filled) <> String.duplicate(".", @bar - filled)
    IO.write("\r\e[K[#{cells}] #{index} of #{total}  #{name}")
  end

  defp line({:case, index, total, name}), do: say("#{index} of #{total}  #{name}")
  defp line({:run, _done, _of}), do: :ok

  defp line({:result, result}) do
    say("        p50 #{Report.time(result.p50_us)}, p99 #{Report.time(result.p99_us)}")
  end

  defp clear_line, do: if(IO.ANSI.enabled?(), do: IO.write("\r\e[K"))

  # ---- results ---------------------------------------------------------------------------------------------

  defp write(nil, _content), do: :ok

  defp write(path, content) do
    case File.write(path, content.()) do
      :ok -> say("\nwritten: #{path}")
      {:error, reason} -> Mix.raise("#{path} cannot be written: #{:file.format_error(reason)}")
    end
  end

  defp say(text), do: Mix.shell().info(text)

  defp or_raise(:ok), do: :ok
  defp or_raise({:ok, value}), do: value

  defp or_raise({:error, %Error{} = error}),
    do: error |> Exception.message() |> Arguments.convert_first() |> Mix.raise()

  defp or_raise({:error, reason}) when is_binary(reason), do: Mix.raise(reason)
end
