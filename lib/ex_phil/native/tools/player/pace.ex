defmodule ExPhil.Native.Tools.Player.Pace do
  @moduledoc """
  The clock of a fixed-rate loop: frame `i` arrives at `start + i / fps`, whatever the frames before it took.

  Waiting is sleeping, never spinning: an agent shares its cores with the game. `Process.sleep/1` counts in
  milliseconds and wakes late rather than early, so a frame starts up to about a millisecond after it arrived;
  that delay counts against the frame. A frame is missed when its answer comes after the next frame has arrived.
  """

  defstruct [:start, :fps]

  @typedoc "Times are in nanoseconds of `System.monotonic_time/1`."
  @type t :: %__MODULE__{start: integer(), fps: number()}

  @doc "A clock whose frame 0 arrives now."
  @spec start(fps :: number()) :: t()
  def start(fps) when fps > 0, do: %__MODULE__{start: now(), fps: fps}

  @doc "When frame `index` arrives. Not a sum of periods, so that nothing drifts."
  @spec arrival(t(), non_neg_integer()) :: integer()
  def arrival(%__MODULE__{start: start, fps: fps}, index), do: start + round(index * 1.0e9 / fps)

  @doc "Sleeps until frame `index` has arrived; at once where it has."
  @spec wait(t(), non_neg_integer()) :: :ok
  def wait(pace, index) do
    case arrival(pace, index) - now() do
      left when left > 0 -> Process.sleep(div(left + 999_999, 1_000_000))
      _ -> :ok
    end
  end

  @doc "Whether an answer to frame `index` given at `time` is too late."
  @spec missed?(t(), non_neg_integer(), time :: integer()) :: boolean()
  def missed?(pace, index, time), do: time > arrival(pace, index + 1)

  @doc "The clock that `arrival/2` is read against."
  @spec now() :: integer()
  def now, do: System.monotonic_time(:nanosecond)
end
