defmodule ExPhil.Native.Policy.ArmedTest do
  # Sessions whose frames are launched before their observations are there (latency: :armed): the same bits, and errors where that
  # cannot be had. Without a GPU in a VM of its own over the fake driver, whose simple step waits as the kernel does. How much faster
  # a frame becomes is for bench/paced.exs.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.{Clock, Policy}
  alias ExPhil.Native.TestSupport.FakeCuda

  test "the CPU backend has no armed sessions" do
    model = Policy.load!(Policies.checkpoint(), backend: :host)

    for window <- [:none, 3] do
      assert {:error, %Error{kind: :unsupported, argument: ":latency"} = error} =
               Policy.new_session(model, window: window, latency: :armed)

      assert Exception.message(error) =~ "CPU backend"
      assert {:ok, _} = Policy.new_session(model, window: window, latency: :plain)
    end

    assert_raise Error, fn -> Policy.new_session!(model, window: 3, latency: :armed) end
  end

  backend_test "bad latencies are errors", %{backend: backend} do
    model = Policy.load!(Policies.checkpoint(), backend: backend)

    for bad <- [:fast, true, "armed", 1] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":latency"}} =
               Policy.new_session(model, latency: bad)
    end
  end

  @prelude """
  right = fn session, answers -> {answers == outs, Policy.export_state!(session) == state} end
  """

  defp run(code, variables \\ []), do: FakeCuda.play(60, @prelude <> code, variables)

  @tag :fake_cuda
  test "armed sessions answer as plain ones: back to back, with pauses, and with a clock" do
    output =
      run("""
      for pause <- [0, 1, 5] do
        session = Policy.new_session!(model, latency: :armed, history: 4)
        answers = for frame <- frames, do: (if pause > 0, do: Process.sleep(pause); Policy.step!(session, frame))
        IO.inspect(right.(session, answers))
      end
      session = Policy.new_session!(model, latency: :armed, fps: 200)
      clock = Clock.start!(session)
      answers = for frame <- frames, do: (Clock.wait(clock); Policy.step!(session, frame))
      IO.inspect(right.(session, answers))
      """)

    assert output == String.duplicate("{true, true}\n", 4)
  end

  @tag :fake_cuda
  test "sessions and models may be dropped while a launch waits" do
    output =
      run("""
      for _ <- 1..20 do
        Task.await(Task.async(fn ->
          session = Policy.new_session!(Policy.load!(path, backend: :cuda), latency: :armed)
          for frame <- frames, do: Policy.step!(session, frame)
        end), :infinity)
        :erlang.garbage_collect()
      end
      session = Policy.new_session!(model, latency: :armed)
      IO.inspect(right.(session, for(frame <- frames, do: Policy.step!(session, frame))))
      """)

    assert output == "{true, true}\n"
  end

  @tag :fake_cuda
  test "an older GPU has no armed sessions" do
    output =
      run(
        """
        {:error, error} = Policy.new_session(model, latency: :armed)
        IO.puts(inspect(error.kind) <> " " <> Exception.message(error))
        """,
        [{"FAKE_CUDA_CAPABILITY", "80"}]
      )

    assert output =~ ":unsupported"
    assert output =~ "compute capability 9.0"
  end

  defp frames(model, count) do
    for seed <- 1..count do
      for i <- 1..model.info.d_input, into: <<>>, do: <<:math.sin(seed * i)::float-32-little>>
    end
  end

  # With the clock frames are launched ahead, back to back they are whole windows.
  @tag :gpu
  test "armed sessions with a window on a GPU answer as plain ones" do
    gru = Policy.init!(:gru, d_input: 20, heads: [out: 5], d_model: 64, layers: 2, backend: :cuda)

    for model <- [Policy.load!(Policies.checkpoint(), backend: :cuda), gru] do
      frames = frames(model, 200)
      plain = Policy.new_session!(model, window: 12)
      expected = for frame <- frames, do: Policy.step!(plain, frame)

      case Policy.new_session(model, window: 12, latency: :armed, history: 3, fps: 200) do
        {:ok, session} ->
          clock = Clock.start!(session)

          for {{frame, answer}, t} <- frames |> Enum.zip(expected) |> Enum.with_index() do
            if rem(t, 20) < 15, do: Clock.wait(clock)
            assert Policy.step!(session, frame) == answer

            if rem(t, 17) == 16 do
              assert Policy.resimulate!(session, 2, frames |> Enum.slice(t - 1, 2) |> Enum.join()) ==
                       expected |> Enum.slice(t - 1, 2) |> Enum.join()
            end
          end

          assert Policy.export_state!(session) == Policy.export_state!(plain)
          :ok = Clock.stop(clock)

        {:error, error} ->
          assert Exception.message(error) =~ "compute capability 9.0"
      end
    end
  end

  # The same on a device, where it has them.
  @tag :gpu
  test "armed sessions on a GPU answer as plain ones, beside other calls of the library" do
    model = Policy.load!(Policies.checkpoint(), backend: :cuda)
    frames = frames(model, 2000)
    plain = Policy.new_session!(model)
    expected = for frame <- frames, do: Policy.step!(plain, frame)

    case Policy.new_session(model, latency: :armed, history: 7) do
      {:ok, session} ->
        others =
          for _ <- 1..2 do
            Task.async(fn ->
              for _ <- 1..20 do
                other = Policy.new_session!(model, latency: :armed)
                for frame <- Enum.take(frames, 50), do: Policy.step!(other, frame)

                Policy.window!(
                  model,
                  {:f32, {1, 5, model.info.d_input}, frames |> Enum.take(5) |> Enum.join()}
                )
              end
            end)
          end

        assert for(frame <- frames, do: Policy.step!(session, frame)) == expected

        assert Policy.resimulate!(session, 7, frames |> Enum.take(-7) |> Enum.join()) ==
                 expected |> Enum.take(-7) |> Enum.join()

        assert Policy.export_state!(session) == Policy.export_state!(plain)
        Task.await_many(others, :infinity)

        clocked = Policy.new_session!(model, latency: :armed, fps: 200)
        clock = Clock.start!(clocked)

        for {frame, answer} <- frames |> Enum.zip(expected) |> Enum.take(100) do
          Clock.wait(clock)
          assert Policy.step!(clocked, frame) == answer
        end

      {:error, error} ->
        assert Exception.message(error) =~ "compute capability 9.0"
    end
  end

  test "Policy.new_session takes the same option" do
    path = Path.expand("../shared/exphil/exphil_policy/policy.bin")

    if File.exists?(path) do
      policy = Policy.load!(path, backend: :host)

      assert {:error, %Error{argument: ":latency"}} =
               Policy.new_session(policy, window: :none, latency: :armed)

      assert {:error, %Error{argument: ":latency"}} =
               Policy.new_session(policy, window: :none, latency: :soon)
    end
  end
end
