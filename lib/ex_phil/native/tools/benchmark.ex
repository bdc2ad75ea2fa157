defmodule ExPhil.Native.Tools.Benchmark do
  @moduledoc """
  Measures what the library's calls cost on this machine. `mix exphil.bench` is this module with a command line;
  docs/benchmarks.md says what is measured and how to read it.

  Every number is the time of a complete public call, from tensors in the VM's memory to results there, or, in the
  suite `policy`, from an observation to its answer. Before a case is timed, its result is compared with a plain
  scalar loop, which is timed as well. Every run has fresh inputs.

  `run/1` blocks the calling process, and holds no state between calls.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{Device, Error, Options}
  alias ExPhil.Native.Tools.Reference
  alias ExPhil.Native.Tools.Benchmark.{Arrays, Case, Policies, Scans, Statistics}

  @suites ["scan", "step", "discretization", "associative", "transfer", "policy"]
  @dtypes [:f32, :f16, :bf16]
  @options [:suites, :quick, :warmup, :runs, :dtype, :backend, :policy, :progress]

  @frame_us 1.0e6 / 60

  # The reference is timed three times unless that would take longer than this.
  @reference_ns 500_000_000

  @typedoc "What was measured, as maps, lists, strings, atoms and numbers: which a writer of JSON takes as they are."
  @type report :: map()

  @typedoc "Progress: a case begins, some of its runs are done, its result is available."
  @type event ::
          {:case, index :: pos_integer(), total :: pos_integer(), name :: String.t()}
          | {:run, done :: pos_integer(), of :: pos_integer()}
          | {:result, map()}

  @doc "The suites, in the order in which they run."
  @spec suites() :: [String.t()]
  def suites, do: @suites

  @doc """
  Runs suites, one after another.

  Returns `{:ok, report}`, a map, or an error: of an invalid option, a backend that is not there, or a result that is wrong.

    * `:suites` - which; all of them, without `"policy"` where `:dtype` is not `:f32`
    * `:quick` - `true` skips slow cases and measures less often (`false`)
    * `:warmup`, `:runs` - how often a case is called before, and while, it is measured (10 and 100; quick, 2 and 20)
    * `:dtype` - `:f32`, `:f16` or `:bf16` inputs and results (`:f32`); the policy is f32 only
    * `:backend` - see `ExPhil.Native.Device`
    * `:policy` - a file of a policy of any trunk, for the suite `policy`; without it a Mamba is generated
    * `:progress` - a function that is called with every `t:event/0`
  """
  fallible run(options :: keyword() \\ []) :: report()

  def run(options \\ []) do
    with {:ok, options} <- Options.read(options, @options, &values/1),
         {:ok, device} <- Device.fetch(backend: options.backend),
         {:ok, rates} <- Reference.copy_rates(device) do
      measure_all(Map.merge(options, %{device: device, rates: rates, backend: device.backend}))
    end
  end

  # ---- options ---------------------------------------------------------------------------------------------

  defp values(options) do
    quick = Options.boolean(options, :quick, false)
    dtype = Options.one_of(options, :dtype, @dtypes)

    %{
      quick: quick,
      dtype: dtype,
      suites: chosen_suites(options[:suites], dtype),
      warmup: count(options, :warmup, if(quick, do: 2, else: 10), 0),
      runs: count(options, :runs, if(quick, do: 20, else: 100), 1),
      backend: options[:backend],
      path: options[:policy],
      progress: options[:progress] || fn _event -> :ok end
    }
  end

  defp chosen_suites(nil, :f32), do: @suites
  defp chosen_suites(nil, _dtype), do: @suites -- ["policy"]

  defp chosen_suites(suites, dtype) do
    known = Enum.join(@suites, ", ")

    cond do
      not is_list(suites) or suites == [] or suites -- @suites != [] ->
        Options.invalid(":suites", "a list of some of #{known}, each once", suites)

      "policy" in suites and dtype != :f32 ->
        Options.invalid(":dtype", "f32 for the suite policy", dtype)

      true ->
        Enum.filter(@suites, &(&1 in suites))
    end
  end

  defp count(options, name, default, least) do
    case Keyword.get(options, name) || default do
      value when is_integer(value) and value >= least and value <= 1_000_000 -> value
      other -> Options.invalid(inspect(name), "a number from #{least} to 1000000", other)
    end
  end

  # ---- measuring -------------------------------------------------------------------------------------------

  defp measure_all(context) do
    folder =
      Path.join(System.tmp_dir!(), "exphil_bench.#{System.pid()}.#{System.unique_integer([:positive])}")

    context = Map.put(context, :folder, folder)

    try do
      context =
        if "policy" in context.suites, do: Map.put(context, :policy, Policies.load(context)), else: context

      cases = Enum.flat_map(context.suites, &cases(&1, context))

      results =
        for {one, index} <- Enum.with_index(cases, 1) do
          context.progress.({:case, index, length(cases), "#{one.suite}: #{one.name}"})
          result = measure(one, context)
          context.progress.({:result, result})
          result
        end

      {:ok, report(results, context)}
    rescue
      error in Error -> {:error, error}
    after
      File.rm_rf(folder)
    end
  end

  defp cases(suite, context) when suite in ["scan", "step", "discretization"],
    do: Scans.cases(suite, context)

  defp cases(suite, context) when suite in ["associative", "transfer"], do: Arrays.cases(suite, context)
  defp cases("policy", context), do: Policies.cases("policy", context)

  @doc false
  # One case. Raises where its result is wrong.
  @spec measure(Case.t(), map()) :: map()
  def measure(one, context) do
    checked = check(one)
    for run <- 1..context.warmup//1, do: one.call.(inputs(one, -run))

    1..context.runs
    |> Enum.map(fn run ->
      nanoseconds = timed(one, inputs(one, run))
      context.progress.({:run, run, context.runs})
      nanoseconds
    end)
    |> Statistics.summarise()
    |> Map.merge(described(one))
    |> Map.merge(checked)
    |> judge(one, context)
  end

  # Collects the previous run's inputs, which are too large to keep until the VM collects by itself.
  defp timed(one, input) do
    :erlang.garbage_collect()
    began = System.monotonic_time(:nanosecond)
    one.call.(input)
    System.monotonic_time(:nanosecond) - began
  end

  # Seeds of consecutive runs are far enough apart for the tensors of one run.
  defp inputs(one, run), do: one.inputs.(:erlang.phash2({one.suite, one.name}) * 0x100000 + run * 16)

  # ---- right, and how fast a plain loop is -----------------------------------------------------------------

  defp check(one) do
    input = inputs(one, 0)
    first = one.check.(input)
    error = Statistics.relative_error(first.ours, first.theirs)

    if error == :invalid or error > one.tolerance do
      message =
        "#{one.suite}: #{one.name} is wrong: against the scalar reference the relative error is " <>
          "#{error}, and #{one.tolerance} is allowed"

      raise Error.new(:internal, "", message)
    end

    again = if 3 * first.nanoseconds < @reference_ns, do: [one.check.(input), one.check.(input)], else: []
    times = Enum.map([first | again], &(&1.nanoseconds / &1.fraction))

    %{
      relative_error: error,
      tolerance: one.tolerance,
      reference_us: Enum.at(Enum.sort(times), div(length(times), 2)) / 1000,
      reference_fraction: first.fraction
    }
  end

  # ---- results ---------------------------------------------------------------------------------------------

  defp described(one) do
    %{
      suite: one.suite,
      name: one.name,
      axes: one.axes,
      shape: one.shape,
      operations: one.operations,
      bytes: one.bytes,
      line: if(one.line, do: %{name: elem(one.line, 0), size: elem(one.line, 1)})
    }
  end

  defp judge(result, one, context) do
    seconds = result.p50_us / 1.0e6
    ceiling_us = ceiling_us(one.bytes, context)

    Map.merge(result, %{
      bytes_per_second: (one.bytes.in + one.bytes.out + one.bytes.resident) / seconds,
      operations_per_second: one.operations / seconds,
      ceiling_us: ceiling_us,
      ceiling_share: ceiling_us / result.p50_us,
      speed_up: result.reference_us / result.p50_us,
      meets_60_fps: result.p99_us < @frame_us
    })
  end

  # The minimum time in which this machine moves the bytes of a call. On the host all of them go through one
  # memory; with a GPU both directions of the link and the device's memory work concurrently.
  defp ceiling_us(bytes, %{device: %{backend: :host}, rates: rates}),
    do: 1.0e6 * (bytes.in + bytes.out + bytes.resident) / rates.memory

  defp ceiling_us(bytes, %{rates: rates}) do
    memory = (bytes.in + bytes.out + bytes.resident) / rates.memory
    1.0e6 * Enum.max([bytes.in / rates.to_device, bytes.out / rates.from_device, memory])
  end

  defp report(results, context) do
    %{
      tool: "exphil.bench",
      version: ExPhil.Native.version(),
      elixir: System.version(),
      otp: System.otp_release(),
      system: to_string(:erlang.system_info(:system_architecture)),
      cores: System.schedulers(),
      date: DateTime.utc_now() |> DateTime.truncate(:second) |> DateTime.to_iso8601(),
      backend: context.backend,
      device: context.device.name,
      device_details: context.device.details,
      threads: ExPhil.Native.info().threads,
      dtype: context.dtype,
      policy: context[:policy][:name],
      quick: context.quick,
      suites: context.suites,
      warmup: context.warmup,
      runs: context.runs,
      copy_bytes_per_second: context.rates,
      frame_us: @frame_us,
      cases: results
    }
  end
end
