defmodule ExPhil.Native.Telemetry do
  @moduledoc """
  The events that this library reports where the application `:telemetry` is there. Without it nothing is reported, and
  nothing else changes.

  | event | when | measurements | metadata |
  |---|---|---|---|
  | `[:exphil_native, :policy, :step, :stop]` | after one in 64 calls of `Policy.step/2` and `act/2` of a process, its first among them | `:duration`, in native units of time | `:call` (`:step` or `:act`), `:result` (`:ok` or `:error`), `:every` (64) |
  | `[:exphil_native, :clock, :miss]` | when `Clock.wait/1` finds that ticks went by | `:count` of the ticks missed, `:late`, the time since the tick that it returns, in nanoseconds | `:fps`, `:tick` |
  | `[:exphil_native, :policy, :rollback]` | after a session went back | `:frames` | `:call` (`:rollback` or `:resimulate`) |

  `mix exphil.play` reports each frame besides: see `ExPhil.Native.Tools.Player`.

      :telemetry.attach("late frames", [:exphil_native, :clock, :miss], &MyBot.late/4, nil)

  Handlers run in the process that plays, before its call returns.
  """

  @every 64

  @doc false
  # One in @every calls is timed. The others pay for a counter in the process dictionary: some 50 ns.
  def sampled(call, fun) do
    case Process.get(__MODULE__, 0) do
      0 ->
        Process.put(__MODULE__, @every - 1)
        if present?(), do: timed(call, fun), else: fun.()

      left ->
        Process.put(__MODULE__, left - 1)
        fun.()
    end
  end

  @doc false
  # The calls in `fun`, fewer than a thousand million, take the way of those that are not timed and are not counted.
  def uncounted(fun) do
    left = Process.put(__MODULE__, 1_000_000_000)
    result = fun.()
    Process.put(__MODULE__, left || 0)
    result
  end

  defp timed(call, fun) do
    begin = System.monotonic_time()
    result = fun.()
    duration = System.monotonic_time() - begin

    execute([:policy, :step, :stop], %{duration: duration}, %{
      call: call,
      result: elem(result, 0),
      every: @every
    })

    result
  end

  @doc false
  def missed(count, late, metadata) do
    if count > 0 and present?(), do: execute([:clock, :miss], %{count: count, late: late}, metadata)
    :ok
  end

  @doc false
  # Reports that a session went back, where `result` is a success. Returns it.
  def went_back({:ok, _} = result, call, frames) do
    if present?(), do: execute([:policy, :rollback], %{frames: frames}, %{call: call})
    result
  end

  def went_back(error, _call, _frames), do: error

  defp present?, do: :erlang.function_exported(:telemetry, :execute, 3)

  # apply: the application is optional, so the compiler may not find it.
  defp execute(event, measurements, metadata),
    do: apply(:telemetry, :execute, [[:exphil_native | event], measurements, metadata])
end
