defmodule ExPhil.Native.Policy.LateTest do
  # Steps on a device run where they are called, and go on in a dirty job where the device is late. In a VM of its own
  # over the fake driver (test/c_src/cuda/fake_cuda.cpp), which replaces steps by simple ones. Every 40th is not done before
  # a call of the driver waits for it: a scheduler that polled for it would be held for ever.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.TestSupport.FakeCuda

  @moduletag :fake_cuda

  defp run(code),
    do: FakeCuda.play(400, code, [{"FAKE_CUDA_DELAY", "-1"}, {"FAKE_CUDA_DELAY_EVERY", "40"}])

  # Callers are killed while they play sessions of a policy; each leaves its session between two frames.
  defp killed(policy) do
    """
    line = Policy.new_session!(model)
    states = for frame <- [nil | frames] do
      if frame, do: Policy.step_batch!([line], frame)
      Policy.export_state!(line)
    end
    states = MapSet.new(states)
    for round <- 1..40 do
      session = Policy.new_session!(#{policy})
      pid = spawn(fn -> for frame <- frames, do: Policy.step!(session, frame) end)
      Process.sleep(rem(round, 8))
      Process.exit(pid, :kill)
      true = MapSet.member?(states, Policy.export_state!(session))
      if rem(round, 10) == 0, do: :erlang.garbage_collect()
    end
    IO.puts("every state is one of the line's")
    """
  end

  test "steps stay on their scheduler, late ones do not, and all have the right bits" do
    # A process is scheduled out when it goes on in a dirty job. Every late frame does; of the others those that the system
    # held up for long.
    output =
      run("""
      session = Policy.new_session!(model)
      for frame <- Enum.take(frames, 20), do: Policy.step!(session, frame)
      Policy.import_state!(session, Policy.export_state!(Policy.new_session!(model)))
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
      answers = for frame <- frames, do: Policy.step!(session, frame)
      :erlang.trace(test, false, [:running])
      :erlang.trace_delivered(test)
      receive do {:trace_delivered, ^test, _} -> :ok end
      send(tracer, {:take, self()})
      moves = receive do {:moves, moves} -> moves end
      IO.puts("right: \#{answers == outs}, moves: \#{moves}")
      """)

    assert output =~ "right: true"
    [_, moves] = Regex.run(~r/moves: (\d+)/, output)
    assert String.to_integer(moves) in 10..399
  end

  test "a caller that is killed during a late step leaves the session before or after that step" do
    output = run(killed("model"))

    assert output =~ "every state is one of the line's"
  end

  test "late steps of a policy that gathers are answered by message, with the right bits, and callers may be killed" do
    output =
      run(
        """
        policy = Policy.load!(path, backend: :cuda, gather: true)
        session = Policy.new_session!(policy)
        right = Enum.map(frames, &Policy.step!(session, &1)) == outs and Policy.export_state!(session) == state
        %{frames: played, launches: launches} = Policy.info!(policy).gathered
        IO.puts("right: \#{right}, \#{played} frames in \#{launches} launches")
        """ <> killed("policy")
      )

    assert output =~ "right: true, 400 frames in 400 launches"
    assert output =~ "every state is one of the line's"
  end
end
