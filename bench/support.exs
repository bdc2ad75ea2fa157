# Shared by the benchmarks of this folder: arguments, inputs, clocks and percentiles. Loaded with Code.require_file.
defmodule BenchSupport do
  alias ExPhil.Native.Tools.Player.Report

  @doc "The backend of the command line (the default one where it names none), and the other arguments."
  def arguments do
    case System.argv() do
      [name | rest] when name in ["cuda", "host"] -> {String.to_atom(name), rest}
      rest -> {ExPhil.Native.default_backend(), rest}
    end
  end

  @doc "Argument number `at` of `rest` as an integer."
  def integer(rest, at, default), do: rest |> Enum.at(at, "#{default}") |> String.to_integer()

  @doc "A file of the shared data: in EXPHIL_SHARED, else in ../shared."
  def shared(file), do: "EXPHIL_SHARED" |> System.get_env("../shared") |> Path.join(file)

  @doc "The shared policy."
  def policy, do: shared("melee/policy.safetensors")

  @doc "What the call took in microseconds, and its result."
  def timed(call) do
    begin = System.monotonic_time(:nanosecond)
    result = call.()
    {(System.monotonic_time(:nanosecond) - begin) / 1000, result}
  end

  @doc """
  Prints a row of the call's percentiles: `warm` calls and then `runs` that are measured. Each gets the number of its
  run. `prepare` runs before each and is not measured.
  """
  def row(name, runs, call, options \\ []) do
    prepare = Keyword.get(options, :prepare, fn _ -> :ok end)
    for run <- 1..Keyword.get(options, :warm, 20), do: {prepare.(run), call.(run)}

    times =
      for run <- 1..runs do
        prepare.(run)
        {microseconds, _} = timed(fn -> call.(run) end)
        microseconds
      end

    IO.puts("#{String.pad_trailing(name, 46)} #{percentiles(times)}  (#{runs} runs)")
  end

  @doc "p50, p90 and p99 of microseconds, as text."
  def percentiles(times) do
    sorted = Enum.sort(times)
    Enum.map_join([50, 90, 99], "  ", &"p#{&1} #{at(sorted, &1)}") <> " us"
  end

  @doc "The percentile of sorted microseconds, rounded to tenths."
  def at(sorted, percent), do: Float.round(Report.percentile(sorted, percent) / 1, 1)

  @doc "`count` random f32 in [shift - scale / 2, shift + scale / 2), which the seed decides."
  def floats(count, seed, scale, shift) do
    {values, _} =
      Enum.map_reduce(1..count, :rand.seed_s(:exsss, seed), fn _, state ->
        {u, state} = :rand.uniform_s(state)
        {<<(u - 0.5) * scale + shift::float-32-little>>, state}
      end)

    IO.iodata_to_binary(values)
  end
end
