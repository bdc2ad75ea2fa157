defmodule ExPhil.Native.Mamba.LateTest do
  # Steps on a device run where they are called, and go on in a dirty job where the device is late. In a VM of its own
  # over the fake driver (test/c_src/cuda/fake_cuda.cpp), which replaces steps by simple ones. Every 40th takes a
  # millisecond, or longer than the system keeps a thread off its core, where a test counts those that were late.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.TestSupport.FakeCuda

  @moduletag :fake_cuda

  # The delay is in microseconds.
  defp run(delay \\ 1000, code),
    do: FakeCuda.play(400, code, [{"FAKE_CUDA_DELAY", "#{delay}"}, {"FAKE_CUDA_DELAY_EVERY", "40"}])

  test "steps stay on their scheduler, late ones do not, and all have the right bits" do
    # A process is scheduled out when it goes on in a dirty job.
    output =
      run(20_000, """
      session = Mamba.new_session!(model)
      for frame <- Enum.take(frames, 20), do: Mamba.step!(session, frame)
      Mamba.import_state!(session, Mamba.export_state!(Mamba.new_session!(model)))
      test = self()
      tracer = spawn_link(fn ->
        count = fn count, moves ->
          receive do
            {:trace, ^test, :out, {ExPhil.Native.NIF, _, _}} -> count.(count, moves + 1)
            {:take, from} -> send(from, {:moves, moves})
            _ -> count.(count, moves)
          end
        end
        count.(count, 0)
      end)
      :erlang.trace(test, true, [:running, {:tracer, tracer}])
      answers = for frame <- frames, do: Mamba.step!(session, frame)
      :erlang.trace(test, false, [:running])
      :erlang.trace_delivered(test)
      receive do {:trace_delivered, ^test, _} -> :ok end
      send(tracer, {:take, self()})
      moves = receive do {:moves, moves} -> moves end
      IO.puts("right: \#{answers == outs}, moves: \#{moves}")
      """)

    assert output =~ "right: true"
    [_, moves] = Regex.run(~r/moves: (\d+)/, output)
    assert String.to_integer(moves) in 5..399
  end

  test "a caller that is killed during a late step leaves the session before or after that step" do
    output =
      run("""
      line = Mamba.new_session!(model)
      states = for frame <- [nil | frames] do
        if frame, do: Mamba.step_batch!([line], frame)
        Mamba.export_state!(line)
      end
      states = MapSet.new(states)
      for round <- 1..40 do
        session = Mamba.new_session!(model)
        pid = spawn(fn -> for frame <- frames, do: Mamba.step!(session, frame) end)
        Process.sleep(rem(round, 8))
        Process.exit(pid, :kill)
        true = MapSet.member?(states, Mamba.export_state!(session))
        if rem(round, 10) == 0, do: :erlang.garbage_collect()
      end
      IO.puts("every state is one of the line's")
      """)

    assert output =~ "every state is one of the line's"
  end

  test "play delays no message, and no scheduler is held for 2 ms by a step" do
    # On a busy machine the system may take a core away in the middle of a step, so there are five attempts.
    output =
      run("""
      play = fn play, session -> for(frame <- frames, do: Mamba.step!(session, frame)); play.(play, session) end
      echo = spawn_link(fn ->
        echo = fn echo -> receive do {from, n} -> send(from, n) end; echo.(echo) end
        echo.(echo)
      end)
      attempt = fn attempt, left ->
        players = for _ <- 1..4, do: spawn_link(fn -> play.(play, Mamba.new_session!(model)) end)
        Process.sleep(100)
        :erlang.system_monitor(self(), [{:long_schedule, 2}])
        trips = for n <- 1..300 do
          begin = System.monotonic_time(:microsecond)
          send(echo, {self(), n})
          receive do ^n -> :ok end
          Process.sleep(5)
          System.monotonic_time(:microsecond) - begin - 5000
        end
        :erlang.system_monitor(:undefined)
        for player <- players, do: (Process.unlink(player); Process.exit(player, :kill))
        held = fn held, found ->
          receive do
            {:monitor, _, :long_schedule, info} ->
              ours = Enum.any?([info[:in], info[:out]], &match?({ExPhil.Native.NIF, _, _}, &1))
              held.(held, if(ours, do: [info | found], else: found))
          after 0 -> found end
        end
        events = held.(held, [])
        middle = Enum.at(Enum.sort(trips), 150)
        cond do
          events == [] and middle < 20_000 -> IO.puts("quiet")
          left > 0 -> attempt.(attempt, left - 1)
          true -> IO.inspect({events, middle})
        end
      end
      attempt.(attempt, 4)
      """)

    assert output =~ "quiet"
  end
end
