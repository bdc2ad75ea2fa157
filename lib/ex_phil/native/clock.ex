defmodule ExPhil.Native.Clock do
  @moduledoc """
  A frame clock: ticks at a fixed rate, for the process that started it.

  Tick `n` is due at `start + n / fps`, computed from `n` each time, so that errors do not add up: after an hour at 60
  FPS tick 216,000 is on time. A thread of the native library sleeps until each tick's absolute time. A tick is never
  early, and on an idle machine about ten microseconds late; `Process.sleep/1` and `:timer` have a resolution of
  milliseconds.

      {:ok, clock} = ExPhil.Native.Clock.start(60)
      number = ExPhil.Native.Clock.wait(clock)          # blocks until the next tick

  or, in a GenServer, which asks for one tick at a time as a message:

      def handle_info({:tick, ref, number}, %{clock: %{ref: ref} = clock} = state) do
        :ok = ExPhil.Native.Clock.next(clock)

  The clock of a session has the session's `:fps`, and `wait/1` also makes the process ready for the frame:

      {:ok, session} = ExPhil.Native.Policy.new_session(policy, fps: 60)
      {:ok, clock} = ExPhil.Native.Clock.start(session)
      number = ExPhil.Native.Clock.wait(clock)
      {:ok, out} = ExPhil.Native.Policy.step(session, obs)

  On a GPU a process that has slept for a frame wakes on a cold core, and finds a GPU that sleeps. So it is woken a
  millisecond before the tick (at most a quarter of the period), makes steps on scratch states of the session's policy, and polls
  until the tick. In the last 0.15 ms these steps go the same way through Elixir as the frame will. On the CPU backend the
  library's own thread prepares for the frame, and the process sleeps until the tick.

  A tick that the machine could not deliver in time is skipped, and the next one has the number that is due then. Nothing is sent
  that was not asked for, so that a clock nobody waits for costs nothing, and `wait/1` takes no longer with many messages in
  the mailbox. The clock ends with `stop/1`, with its process, or when the last reference to it is garbage-collected.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{Error, NIF, Policy, Raising, Telemetry}
  alias ExPhil.Native.Policy.Session

  @enforce_keys [:handle, :ref, :start, :fps]
  defstruct [:handle, :ref, :start, :fps, :scratch]

  @typedoc "`ref` is in every message of `next/1`; `start` is the time of tick 0, in nanoseconds of `System.monotonic_time/1`."
  @type t :: %__MODULE__{
          handle: reference(),
          ref: reference(),
          start: integer(),
          fps: number(),
          scratch: nil | {Policy.session(), binary()}
        }

  @doc """
  Starts a clock for the calling process: of a number of frames per second, from 0.000001 to 10,000, or of a session with
  `:fps`, for whose frames the process waits. Tick 0 is due immediately.

  Returns `{:ok, clock}`, or an error that says what is wrong with the number or the session.

  Of a session on a GPU the process is woken a millisecond before the tick, at most a quarter of the period, and `wait/1`
  returns at the tick. Meanwhile the process polls, and gives way to other processes ten times a millisecond: 5% of a core at
  60 FPS. Where other threads wait for a core it sleeps until the tick instead, and its frame takes as long as with a clock of a number. The
  messages of `next/1` are early. The scratch steps change no session. They are left out where little time is left, and where the
  GPU's driver or another call would hold them up. Of a session with `latency: :armed` the next frame is launched shortly
  before the tick, as the last thing. The clock holds the session and three more states of the policy's `:max_sessions` until
  it is garbage-collected.

      iex> {:ok, clock} = ExPhil.Native.Clock.start(200)
      iex> first = ExPhil.Native.Clock.wait(clock)
      iex> second = ExPhil.Native.Clock.wait(clock)
      iex> ExPhil.Native.Clock.stop(clock)
      iex> second > first
      true
  """
  fallible start(fps_or_session :: number() | Policy.session()) :: t()
  def start(fps_or_session)

  def start(%Session{fps: nil} = session),
    do: {:error, Error.invalid("session", "a session with :fps, see Policy.new_session/2", session)}

  def start(%Session{fps: fps, policy: %{info: %{backend: :cuda}}} = session), do: start(fps, session)
  def start(%Session{fps: fps}), do: start(fps, nil)

  def start(fps) when is_number(fps) do
    with {:ok, _rate} <- to_float(fps), do: start(fps, nil)
  end

  def start(fps), do: {:error, Error.invalid("fps", "a number, or a session with :fps", fps)}

  # session: nil, or whose frames the process waits for.
  defp start(fps, session) do
    case NIF.start_clock(fps * 1.0, session && session.ref) do
      {:ok, %{scratch: scratch} = started} ->
        started = %{started | scratch: scratch && scratch(session, scratch)}
        {:ok, struct!(__MODULE__, Map.put(started, :fps, fps))}

      {:error, reason} ->
        {:error, Error.from_nif(reason)}
    end
  end

  # A session of nobody's, and its frame.
  defp scratch(session, ref) do
    frame = :binary.copy(<<1.0::float-32-little>>, session.policy.info.d_input)
    {%{session | ref: ref, gathers: false}, frame}
  end

  # An integer beyond the largest float.
  defp to_float(fps) do
    {:ok, fps * 1.0}
  rescue
    ArithmeticError -> {:error, Error.invalid("fps", "from 0.000001 to 10000", fps)}
  end

  @doc """
  Blocks until the next tick and returns its number. If several are past, it returns the last of them without
  blocking: a number that is more than one above the previous one shows how many frames were missed. Raises an
  `ExPhil.Native.Error` where the clock is stopped, also while this process waits, and in another process than the one that
  started the clock.
  """
  @spec wait(t()) :: non_neg_integer()
  def wait(%__MODULE__{handle: handle} = clock) do
    # New for each wait: `receive` then looks at the messages that came after it only, however many are in the
    # mailbox.
    tag = make_ref()
    {number, missed} = take(handle, tag)
    if clock.scratch, do: warm(clock, number, tag)
    if missed > 0, do: report(clock, number, missed)
    number
  end

  # The message only wakes the process: the number is that of the time.
  defp take(handle, tag) do
    case NIF.take_tick(handle, tag) do
      {:ok, {_number, _missed} = taken} -> taken
      {:ok, :later} -> receive(do: ({:tick, ^tag, _number} -> take(handle, tag)))
      {:error, reason} -> raise Error.from_nif(reason)
    end
  end

  # The scratch session plays as the clock's does, by all of the code that a frame runs through, but without its event.
  # Its failures are the next frame's.
  defp warm(%{handle: handle, scratch: {session, frame}} = clock, number, tag) do
    case NIF.await_tick(handle, number, tag) do
      {:ok, call} when call in [:step, :act] ->
        Telemetry.uncounted(fn -> played(call, session, frame) end)
        warm(clock, number, tag)

      {:ok, :again} ->
        warm(clock, number, tag)

      # The next call finds that it is time. It also keeps the clock from being collected meanwhile.
      {:ok, :sleep} ->
        receive(do: ({:due, ^tag, ^number} -> warm(clock, number, tag)))

      _due ->
        :ok
    end
  end

  defp played(:step, session, frame),
    do: with({:ok, _} = out <- Policy.step(session, frame), do: Raising.ok!(out))

  defp played(:act, session, frame),
    do: with({:ok, _} = out <- Policy.act(session, frame), do: Raising.ok!(out))

  defp report(clock, number, missed) do
    late = System.monotonic_time(:nanosecond) - due(clock, number)
    Telemetry.missed(missed, late, %{fps: clock.fps, tick: number})
  end

  @doc """
  Asks for the next tick as one message, `{:tick, clock.ref, number}`, to the calling process, which started the clock, and returns `:ok`. It comes at
  once where a tick is past that the process was not told of. A message that was asked for before, and has not come, is the same one;
  `wait/1` drops it. Raises as `wait/1` does.
  """
  @spec next(t()) :: :ok
  def next(%__MODULE__{handle: handle, ref: ref}) do
    case NIF.ask_tick(handle, ref) do
      {:ok, :ok} -> :ok
      {:error, reason} -> raise Error.from_nif(reason)
    end
  end

  @doc "When tick `number` is due: an integer, in nanoseconds of `System.monotonic_time/1`."
  @spec due(t(), integer()) :: integer()
  def due(%__MODULE__{start: start, fps: fps}, number), do: start + round(number * 1.0e9 / fps)

  @doc "Ends the clock and removes the message of `next/1` from the calling process's mailbox. Returns `:ok`, also of one that has ended."
  @spec stop(t()) :: :ok
  def stop(%__MODULE__{handle: handle, ref: ref}) do
    case NIF.stop_clock(handle) do
      {:ok, :ok} -> :ok
      {:ok, :asked} -> flush(ref)
    end
  end

  defp flush(ref) do
    receive do
      {:tick, ^ref, _number} -> flush(ref)
    after
      0 -> :ok
    end
  end
end
