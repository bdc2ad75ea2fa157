defmodule ExPhil.Native.TestSupport.Latency do
  @moduledoc false
  # Latencies side by side in one run, and whether the machine was busy with other work meanwhile: what other processes
  # used of its cores, and how a loop that always does the same spread. Where it was, nothing is judged.

  # The share of the cores that others may use, and how much longer the slow tenth of the loops may take than the middle.
  @others 0.15
  @spread 1.5
  @attempts 3

  @doc "Microseconds of `rounds` calls of each function, in turn: %{name => sorted list}."
  def measure(calls, rounds) do
    for {_, call} <- calls, _ <- 1..5, do: call.()

    samples = for _ <- 1..rounds, {name, call} <- calls, do: {name, microseconds(call)}

    for {name, times} <- Enum.group_by(samples, &elem(&1, 0), &elem(&1, 1)),
        into: %{},
        do: {name, Enum.sort(times)}
  end

  defp microseconds(call) do
    begin = System.monotonic_time(:nanosecond)
    call.()
    (System.monotonic_time(:nanosecond) - begin) / 1000
  end

  def percentile(sorted, share), do: Enum.at(sorted, min(length(sorted) - 1, trunc(share * length(sorted))))

  @doc """
  Runs `measured`, which answers {lines to print, what is wrong with them or nil}, up to three times, until nothing is. Returns what is
  wrong, or nil; also where the machine was busy, which it prints. `peer: true`: another process of these tests does the work, so that
  only the loops tell.
  """
  def judge(name, measured, options \\ [], left \\ @attempts) do
    before = cores()
    loops = loops()
    {lines, wrong} = measured.()
    others = if options[:peer], do: 0, else: share_of_others(before, cores())
    busy = busy(others, max(spread(loops), spread(loops())))
    for line <- lines, do: IO.puts("#{name}: #{line}")

    cond do
      wrong == nil -> nil
      busy != nil -> IO.puts("#{name}: not judged: the machine is busy (#{busy}); #{wrong}") && nil
      left > 1 -> judge(name, measured, options, left - 1)
      true -> wrong
    end
  end

  defp busy(others, _) when others > @others, do: "other processes use #{round(100 * others)}% of the cores"

  defp busy(_, spread) when spread > @spread,
    do: "a loop's slow tenth takes #{Float.round(spread, 1)} times as long"

  defp busy(_, _), do: nil

  # {ticks of all cores, of all cores in use, of this VM}.
  defp cores do
    [_ | ticks] = "/proc/stat" |> File.read!() |> String.split("\n") |> hd() |> String.split()
    [user, nice, system, idle, wait, irq, soft, stolen | _] = Enum.map(ticks, &String.to_integer/1)
    used = user + nice + system + irq + soft + stolen
    own = "/proc/self/stat" |> File.read!() |> String.split(") ") |> List.last() |> String.split()
    {used + idle + wait, used, Enum.sum(for at <- 11..14, do: own |> Enum.at(at) |> String.to_integer())}
  end

  defp share_of_others({all, used, own}, {all2, used2, own2}),
    do: max(0, used2 - used - (own2 - own)) / max(1, all2 - all)

  defp loops, do: Enum.sort(for _ <- 1..50, do: microseconds(fn -> count(100_000) end))
  defp spread(loops), do: percentile(loops, 0.9) / percentile(loops, 0.5)
  defp count(0), do: :ok
  defp count(n), do: count(n - 1)
end
