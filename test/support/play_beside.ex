defmodule ExPhil.Native.TestSupport.PlayBeside do
  @moduledoc """
  Agents that play at 60 FPS while other processes make large calls without a pause. For a test and for
  bench/play_beside_scans.exs.
  """
  alias ExPhil.Native.{Policy, SelectiveScan}

  # Microseconds of a frame at 60 FPS.
  @frame 16_667
  def frame, do: @frame

  @doc """
  Frames of `agents` processes, each with a phase of its own: [{microseconds of the step, microseconds from when the
  frame was due to when the process began it, microseconds from when it was due to its answer}].
  """
  def play(model, agents, seconds, obs) do
    frames = round(seconds * 60)

    1..agents
    |> Enum.map(fn agent ->
      Task.async(fn ->
        session = Policy.new_session!(model)
        for _ <- 1..20, do: Policy.step!(session, obs)
        start = System.monotonic_time(:microsecond) + div(agent * @frame, agents)
        for frame <- 1..frames, do: frame(session, obs, start + frame * @frame)
      end)
    end)
    |> Task.await_many(:infinity)
    |> List.flatten()
  end

  defp frame(session, obs, due) do
    wait = div(due - System.monotonic_time(:microsecond), 1000)
    if wait > 0, do: Process.sleep(wait)
    begin = System.monotonic_time(:microsecond)
    {:ok, _} = Policy.step(session, obs)
    done = System.monotonic_time(:microsecond)
    {done - begin, begin - due, done - due}
  end

  @doc "Runs `call` in `loops` processes until stop/1."
  def start(call, loops) do
    counter = :counters.new(1, [])
    begin = System.monotonic_time(:microsecond)
    pids = for _ <- 1..loops//1, do: spawn_link(fn -> repeat(call, counter) end)
    {pids, counter, begin}
  end

  defp repeat(call, counter) do
    call.()
    :counters.add(counter, 1, 1)
    repeat(call, counter)
  end

  @doc "Ends the loops; answers how many of their calls ended in a second."
  def stop({pids, counter, begin}) do
    rate = :counters.get(counter, 1) * 1.0e6 / (System.monotonic_time(:microsecond) - begin)

    for pid <- pids do
      Process.unlink(pid)
      Process.exit(pid, :kill)
    end

    rate
  end

  @doc "`count` f32 as a binary."
  def floats(count), do: :binary.copy(<<0.1::float-32-little, 0.02::float-32-little>>, div(count, 2))

  @doc "A function that scans inputs of this size."
  def scan(batch, seq, dim, state, backend) do
    x = {:f32, {batch, seq, dim}, floats(batch * seq * dim)}
    b = {:f32, {batch, seq, state}, floats(batch * seq * state)}
    a = {:f32, {dim, state}, :binary.copy(<<-0.5::float-32-little>>, dim * state)}
    fn -> SelectiveScan.scan(x, x, a, b, b, backend: backend) end
  end
end
