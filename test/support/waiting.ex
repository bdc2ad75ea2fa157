defmodule ExPhil.Native.TestSupport.Waiting do
  @moduledoc false
  # Waits for what must come, on however slow and busy a machine; and the time of the clock that the library uses, which
  # Erlang's, corrected against the system's, is not.

  alias ExPhil.Native.Clock

  @minutes 10

  @doc "Returns once the condition holds. Fails where it does not in ten minutes: it will not."
  def until(condition), do: until(condition, System.monotonic_time(:second) + 60 * @minutes)

  defp until(condition, stop) do
    cond do
      condition.() -> :ok
      System.monotonic_time(:second) > stop -> raise "what is awaited has not come in #{@minutes} minutes"
      true -> Process.sleep(1) && until(condition, stop)
    end
  end

  @doc "Returns once the tick of this number is due, which is asked for by nobody."
  def until_tick(%Clock{} = clock, number) do
    until(fn -> System.monotonic_time(:nanosecond) >= Clock.due(clock, number) end)
  end

  @doc "Nanoseconds of the system's monotonic clock."
  def now do
    time = Keyword.fetch!(:erlang.system_info(:os_monotonic_time_source), :time)
    System.convert_time_unit(time, :native, :nanosecond)
  end

  @doc """
  A clock, and a function that says how many nanoseconds ago tick `number` was due, or more: below 0 only where that tick came
  too early.
  """
  def start_clock!(fps_or_session) do
    before = offset()
    clock = Clock.start!(fps_or_session)
    offset = min(before, offset())
    {clock, fn number -> now() - (Clock.due(clock, number) + offset) end}
  end

  # What is added to Erlang's time to have the system's, or less.
  defp offset do
    system = now()
    system - System.monotonic_time(:nanosecond)
  end
end
