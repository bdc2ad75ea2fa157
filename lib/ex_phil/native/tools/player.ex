defmodule ExPhil.Native.Tools.Player do
  @moduledoc """
  Plays a recording with a policy at a fixed frame rate, as a game would: one observation in and one answer out on
  every frame, in real time. `mix exphil.play` is a command line for this module.

  Where a frame number appears again, the player restores the snapshot that it took before it first stepped that
  frame, and steps from there. A recording with rollbacks therefore costs a snapshot or a restore on every frame.

  Frame `i` arrives at `start + i / fps`, whatever the time of earlier frames (`ExPhil.Native.Clock`). The player
  sleeps until then, and prepares for the frame shortly before it, which `pace: false` turns off: its
  sessions have `:fps`, and a single one has its own clock. A frame is missed when its answer comes after
  the next frame has arrived.

  `play/3` blocks the calling process until the last frame; it holds no state between calls. Where the `telemetry`
  library is available, each frame is an event `[:exphil_native, :tools, :player, :frame]` with the measurements
  `latency` (of the step, microseconds) and `missed` (so far), and the metadata `index` and `number`.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{Clock, Policy}
  alias ExPhil.Native.Tools.Player.{Recording, Verify}

  @typedoc """
  What was played. `latencies` are the microseconds from an observation to its answer, frame by frame: the step,
  and on recordings with rollbacks the snapshot or restore before it. `answers` are the outputs of all sessions,
  one binary for each frame.
  """
  @type result :: %{
          frames: non_neg_integer(),
          sessions: pos_integer(),
          fps: number(),
          missed: non_neg_integer(),
          rollbacks: non_neg_integer(),
          latencies: [float()],
          answers: [binary()]
        }

  @doc """
  Plays every frame of `recording` with `policy`, in real time, and returns when the last one was played.

  Returns `{:ok, result}`, a map (`t:result/0`), or the first error of a step.

    * `:fps` - frames per second, at most 10,000 (60)
    * `:sessions` - agents that answer each frame; above one they go through `Policy.step_batch/2` (1)
    * `:pace` - whether to prepare for each frame before it comes (`true`)
    * `:on_frame` - called after every frame with `{frames done, missed, latency in microseconds}`; its time is
      spent between the frames
  """
  fallible play(policy :: Policy.t(), recording :: Recording.t(), options :: keyword() \\ []) :: result()

  def play(policy, recording, options \\ []) do
    options = Keyword.validate!(options, fps: 60, sessions: 1, pace: true, on_frame: fn _ -> :ok end)

    with :ok <- warm_up(policy, recording, options[:sessions]),
         {:ok, sessions} <-
           new_sessions(policy, options[:sessions], if(options[:pace], do: [fps: options[:fps]], else: [])),
         {:ok, clock} <- start_clock(sessions, Map.new(options)) do
      frames = recording |> Recording.frames() |> Enum.with_index()
      result = loop(frames, start(sessions, recording.depth, clock, options))
      :ok = Clock.stop(clock)
      result
    end
  end

  defp start_clock([session], %{pace: true}), do: Clock.start(session)
  defp start_clock(_sessions, %{fps: fps}), do: Clock.start(fps)

  @doc """
  Compares the answers of a play with the recording's logits or, without them, with a prefill by `policy`: a struct of
  `ExPhil.Native.Tools.Player.Verify`, with the largest relative error and its frame.
  """
  @spec verify(result(), Policy.t(), Recording.t()) :: Verify.t()
  def verify(result, policy, recording), do: Verify.verify(result, policy, recording)

  # The first step of a process may load code and touch memory for the first time, so it is not measured.
  defp warm_up(policy, recording, count) do
    [{_, obs} | _] = Recording.frames(recording)

    with {:ok, sessions} <- new_sessions(policy, count, []),
         {:ok, _} <- step(sessions, batch(obs, sessions)),
         do: :ok
  end

  defp new_sessions(policy, count, options) do
    Enum.reduce_while(1..count, {:ok, []}, fn _, {:ok, sessions} ->
      case Policy.new_session(policy, options) do
        {:ok, session} -> {:cont, {:ok, [session | sessions]}}
        {:error, error} -> {:halt, {:error, error}}
      end
    end)
  end

  defp start(sessions, depth, clock, options) do
    %{
      sessions: sessions,
      depth: depth,
      before: %{},
      last: nil,
      rollbacks: 0,
      missed: 0,
      latencies: [],
      answers: [],
      on_frame: options[:on_frame],
      telemetry: Code.ensure_loaded?(:telemetry),
      clock: clock,
      tick: -1
    }
  end

  defp loop([], play) do
    {:ok,
     %{
       frames: length(play.answers),
       sessions: length(play.sessions),
       fps: play.clock.fps,
       missed: play.missed,
       rollbacks: play.rollbacks,
       latencies: Enum.reverse(play.latencies),
       answers: Enum.reverse(play.answers)
     }}
  end

  defp loop([{{number, obs}, index} | rest], play) do
    obs = batch(obs, play.sessions)
    play = wait_for(play, index)
    began = now()

    with {:ok, play} <- place(number, play),
         {:ok, answer} <- step(play.sessions, obs) do
      ended = now()
      latency = (ended - began) / 1000
      missed = play.missed + if(ended > Clock.due(play.clock, index + 1), do: 1, else: 0)
      play.on_frame.({index + 1, missed, latency})
      if play.telemetry, do: emit(%{latency: latency, missed: missed}, %{index: index, number: number})
      latencies = [latency | play.latencies]
      loop(rest, %{play | missed: missed, latencies: latencies, answers: [answer | play.answers]})
    end
  end

  # Waits until frame `index` has arrived. A late loop already has its tick and does not wait.
  defp wait_for(%{tick: tick} = play, index) when tick >= index, do: play
  defp wait_for(play, index), do: wait_for(%{play | tick: Clock.wait(play.clock)}, index)

  defp now, do: System.monotonic_time(:nanosecond)

  # By name at run time: telemetry is an optional dependency.
  defp emit(measurements, metadata),
    do: apply(:telemetry, :execute, [[:exphil_native, :tools, :player, :frame], measurements, metadata])

  # Restores the sessions to the start of frame `number`. `before` holds the snapshots from before each of the
  # last `depth` frame numbers, the longest rollback of the recording.
  defp place(_number, %{depth: 0} = play), do: {:ok, play}

  defp place(number, play) do
    went_back = if play.last != nil and number <= play.last, do: 1, else: 0
    play = %{play | last: number, rollbacks: play.rollbacks + went_back}

    case play.before do
      %{^number => snapshots} ->
        with :ok <- restore(play.sessions, snapshots), do: {:ok, play}

      before ->
        with {:ok, snapshots} <- snapshot(play.sessions) do
          recent = Map.filter(before, fn {other, _} -> other > number - play.depth end)
          {:ok, %{play | before: Map.put(recent, number, snapshots)}}
        end
    end
  end

  defp snapshot(sessions) do
    Enum.reduce_while(sessions, {:ok, []}, fn session, {:ok, snapshots} ->
      case Policy.snapshot(session) do
        {:ok, snapshot} -> {:cont, {:ok, [snapshot | snapshots]}}
        {:error, error} -> {:halt, {:error, error}}
      end
    end)
  end

  # `snapshot/1` gathered them in reverse.
  defp restore(sessions, snapshots) do
    sessions
    |> Enum.zip(Enum.reverse(snapshots))
    |> Enum.reduce_while(:ok, fn {session, snapshot}, :ok ->
      case Policy.restore(session, snapshot) do
        {:error, error} -> {:halt, {:error, error}}
        _ -> {:cont, :ok}
      end
    end)
  end

  defp batch(obs, [_]), do: obs
  defp batch(obs, sessions), do: :binary.copy(obs, length(sessions))

  defp step([session], obs), do: Policy.step(session, obs)
  defp step(sessions, obs), do: Policy.step_batch(sessions, obs)
end
