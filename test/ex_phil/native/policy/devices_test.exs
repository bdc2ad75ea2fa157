defmodule ExPhil.Native.Policy.DevicesTest do
  # A policy on several devices, in VMs of their own over the fake driver with four of them; its simple step has answers for one session
  # of each device in a batch (test/c_src/cuda/policy/devices_test.cpp has the others). Errors, and the host, without it.
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Error, Policy}
  alias ExPhil.Native.TestSupport.{FakeCuda, Policies}

  @devices [{"FAKE_CUDA_DEVICES", "4"}]

  defp run(code, variables \\ []), do: FakeCuda.play(12, code, variables ++ @devices)

  @tag :fake_cuda
  test "sessions go to the device with the fewest, and a list or a group of all of them has the bits of lone steps" do
    output =
      run("""
      policy = Policy.load!(path, backend: :cuda, device: :all, max_sessions: 8)
      info = Policy.info!(policy)
      IO.inspect({info.device.index, Enum.map(info.devices, & &1.index)})
      sessions = for _ <- 1..6, do: Policy.new_session!(policy)
      IO.inspect(Enum.map(sessions, & &1.device))
      IO.puts(hd(Regex.run(~r/cuda:\\d/, inspect(Enum.at(sessions, 3)))))

      four = for i <- [2, 0, 3, 1], do: Enum.at(sessions, i)
      lone = for _ <- four, do: Policy.new_session!(model)
      group = Policy.group!(four)

      for t <- 0..11 do
        rows = for j <- 0..3, do: Enum.at(frames, rem(t + 3 * j, 12))
        right = for {session, row} <- Enum.zip(lone, rows), into: <<>>, do: Policy.step_batch!([session], row)
        called = if rem(t, 3) == 0, do: four, else: group
        true = Policy.step_batch!(called, IO.iodata_to_binary(rows)) == right
      end

      IO.inspect(Enum.map(four, &Policy.export_state!/1) == Enum.map(lone, &Policy.export_state!/1))
      IO.inspect(info.resident_bytes == 4 * Policy.info!(Policy.load!(path, backend: :cuda, device: [3], max_sessions: 8)).resident_bytes)
      """)

    assert output == "{0, [0, 1, 2, 3]}\n[0, 1, 2, 3, 0, 1]\ncuda:3\ntrue\ntrue\n"
  end

  @tag :fake_cuda
  test "a state goes from one device to another" do
    output =
      run("""
      policy = Policy.load!(path, backend: :cuda, device: [3, 1], max_sessions: 8)
      [here, there, third] = for device <- [1, 3, 3], do: Policy.new_session!(policy, device: device, history: 2)
      IO.inspect({here.device, there.device, Policy.info!(policy).device.index})
      true = for(frame <- frames, do: Policy.step!(here, frame)) == outs
      Policy.restore!(there, Policy.snapshot!(here))
      Policy.import_state!(third, Policy.export_state!(here))
      IO.inspect(for(session <- [here, there, third], do: Policy.export_state!(session)) == [state, state, state])
      {:error, error} = Policy.new_session(policy, device: 0)
      IO.puts(error.argument <> " " <> error.message)
      """)

    assert output == "{1, 3, 3}\ntrue\n:device the policy is not on device 0; it is on 3, 1\n"
  end

  @tag :fake_cuda
  test "new weights are on all devices, or on none where one of them has no room" do
    output =
      run("""
      policy = Policy.load!(path, backend: :cuda, device: :all, max_sessions: 8)
      sessions = for _ <- 1..4, do: Policy.new_session!(policy)
      fingerprint = policy.info.fingerprint
      weights = Policy.weights!(policy)
      {name, {:f32, shape, <<_::32, rest::binary>>}} = Enum.min(weights)
      other = %{weights | name => {:f32, shape, <<0.25::float-32-little, rest::binary>>}}
      load = fn count -> Policy.load(path, backend: :cuda, device: 2, max_sessions: count) end

      fill = fn fill, count, kept ->
        case load.(count) do
          {:ok, policy} -> fill.(fill, count, [policy | kept])
          {:error, %{kind: :out_of_memory}} when count > 1 -> fill.(fill, div(count, 8), kept)
          {:error, %{kind: :out_of_memory}} -> kept
        end
      end

      kept = fill.(fill, 4096, [])
      {:error, error} = Policy.update(policy, other)
      IO.inspect({length(kept) > 0, error.kind, Policy.info!(policy).fingerprint == fingerprint})
      IO.inspect(for(session <- sessions, do: Policy.step!(session, hd(frames))) == List.duplicate(hd(outs), 4))

      policy = Policy.load!(path, backend: :cuda, device: [0, 1, 3], max_sessions: 8)
      sessions = for _ <- 1..3, do: Policy.new_session!(policy)
      policy = Policy.update!(policy, other)
      IO.inspect(for(session <- sessions, {:error, error} <- [Policy.step(session, hd(frames))], do: error.kind))
      true = policy.info.fingerprint != fingerprint
      sessions = for _ <- 1..3, do: Policy.new_session!(policy)
      IO.inspect(for(session <- sessions, {:ok, _} <- [Policy.step(session, hd(frames))], do: session.device))
      """)

    assert output == "{true, :out_of_memory, true}\ntrue\n[:mismatch, :mismatch, :mismatch]\n[0, 1, 3]\n"
  end

  @tag :fake_cuda
  test "a lost device's sessions fail, the others go on, and new ones go to them" do
    output =
      run(
        """
        policy = Policy.load!(path, backend: :cuda, device: :all, max_sessions: 8)
        sessions = for _ <- 1..4, do: Policy.new_session!(policy)
        lost = Enum.at(sessions, 1)

        lose = fn lose, steps ->
          case Policy.step(lost, hd(frames)) do
            {:ok, _} when steps < 1000 -> lose.(lose, steps + 1)
            {:error, error} -> error.kind
          end
        end

        IO.inspect(lose.(lose, 0))
        for frame <- Enum.drop(frames, -1), session <- sessions -- [lost], do: {:ok, _} = Policy.step(session, frame)
        {:error, error} = Policy.step_batch(sessions, :binary.copy(List.last(frames), 4))
        IO.inspect(error.kind)
        out = Policy.step_batch!(sessions -- [lost], :binary.copy(List.last(frames), 3))
        IO.inspect(out == :binary.copy(List.last(outs), 3))
        IO.inspect(Enum.map(sessions -- [lost], &Policy.export_state!/1) == [state, state, state])
        new = for _ <- 1..4, do: Policy.new_session!(policy)
        IO.inspect(Enum.map(new, & &1.device))
        {:error, error} = Policy.new_session(policy, device: 1)
        IO.inspect(error.kind)
        windows = {:f32, {5, 2, d_input}, :binary.copy(hd(frames), 10)}
        {:ok, {:f32, {5, _}, _}} = Policy.window(policy, windows)
        for session <- new ++ (sessions -- [lost]), do: {:ok, _} = Policy.step(session, hd(frames))
        """,
        [
          {"FAKE_CUDA_LOST", "cuLaunchKernel"},
          {"FAKE_CUDA_LOST_DEVICE", "1"},
          {"FAKE_CUDA_LOST_AFTER", "100"}
        ]
      )

    assert output == ":device_lost\n:device_lost\ntrue\ntrue\n[0, 2, 3, 0]\n:device_lost\n"
  end

  @tag :fake_cuda
  test "frames are gathered on each device" do
    output =
      run("""
      policy = Policy.load!(path, backend: :cuda, device: :all, max_sessions: 8, gather: true)

      play = fn _ ->
        session = Policy.new_session!(policy)
        {session.device, for(frame <- frames, do: Policy.step!(session, frame)) == outs}
      end

      sessions = for device <- 0..3, do: Task.async(fn -> play.(device) end)
      IO.inspect(sessions |> Task.await_many(:infinity) |> Enum.map(&elem(&1, 1)))
      IO.inspect(Policy.info!(policy).gathered.frames)
      """)

    assert output == "[true, true, true, true]\n48\n"
  end

  @tag :fake_cuda
  test "with backend: :auto several devices are GPUs, without a measurement" do
    output =
      run("""
      for devices <- [:all, [1, 2]] do
        info = Policy.info!(Policy.load!(path, device: devices, max_sessions: 8))
        IO.inspect({info.backend, length(info.devices), info.choice})
      end

      for devices <- [[0, 9], [4], 7] do
        {:error, error} = Policy.load(path, backend: :cuda, device: devices)
        IO.puts(error.argument <> " " <> error.message)
      end
      """)

    assert output ==
             "{:cuda, 4, :named}\n{:cuda, 2, :named}\n" <>
               ":device there is no CUDA device 9; this machine has 4\n" <>
               ":device there is no CUDA device 4; this machine has 4\n" <>
               ":device there is no CUDA device 7; this machine has 4\n"
  end

  @tag :fake_cuda
  test "a fleet has one policy on all devices of its node" do
    output =
      run("""
      alias ExPhil.Native.Fleet
      {:ok, _} = Fleet.start_link(name: Bots, policy: path, copies: 0, load: [backend: :cuda, max_sessions: 8])
      answers = for key <- 1..6, frame <- 0..2, do: Fleet.step!(Bots, key, frame, Enum.at(frames, frame))
      IO.inspect(answers == List.flatten(List.duplicate(Enum.take(outs, 3), 6)))
      IO.inspect(for(device <- hd(Fleet.info!(Bots).nodes).devices, do: {device.index, device.agents}))
      """)

    assert output == "true\n[{0, 2}, {1, 2}, {2, 1}, {3, 1}]\n"
  end

  @tag :fake_cuda
  test "a fleet's policy has memory for 256 agents with their history from the start" do
    output =
      run("""
      alias ExPhil.Native.Fleet
      options = [name: Bots, policy: path, copies: 0, devices: [0], session: [history: 6]]
      {:ok, _} = Fleet.start_link(options ++ [load: [backend: :cuda, gather: true]])
      [{fleets, 0}] = Fleet.Directory.get(Bots, {:policies, 0})
      # After the thread that frees the rehearsal's sessions.
      ExPhil.Native.Tools.Reference.allocated_bytes!()

      for policy <- [fleets, Policy.load!(path, backend: :cuda)] do
        before = Policy.info!(policy).resident_bytes
        sessions = for _ <- 1..250, do: Policy.new_session!(policy, history: 6)
        IO.inspect({length(sessions), Policy.info!(policy).resident_bytes > before})
      end

      IO.inspect(for(frame <- 0..11, do: Fleet.step!(Bots, :key, frame, Enum.at(frames, frame))) == outs)
      """)

    assert output == "{250, false}\n{250, true}\ntrue\n"
  end

  @tag :gpu
  test "a policy on all GPUs answers as one on the first" do
    policy = Policy.load!(Policies.checkpoint(), backend: :cuda, device: :all)
    one = Policy.load!(Policies.checkpoint(), backend: :cuda)
    count = 3 * length(policy.info.devices)
    frames = for seed <- 1..20, {:f32, _, frame} = Policies.frames(count, seed), do: frame

    play = fn policy, options, together ->
      sessions = for k <- 1..count, do: Policy.new_session!(policy, Enum.at(options, rem(k, 2)))

      called = together.(sessions)

      {for(frame <- frames, do: Policy.step_batch!(called, frame)),
       Enum.map(sessions, &Policy.export_state!/1)}
    end

    options = [[window: :none], [window: 5, history: 3]]
    listed = play.(one, options, & &1)
    for together <- [& &1, &Policy.group!/1], do: assert(play.(policy, options, together) == listed)
    windows = {:f32, {count, 20, policy.info.d_input}, IO.iodata_to_binary(frames)}
    assert Policy.window!(policy, windows) == Policy.window!(one, windows)
  end

  test "lists that name no devices, one twice, or something else are errors" do
    for bad <- [[], [0, 0], [0, :first], [-1], [0, 1024], :every, "all", [[0]]] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":device", message: message}} =
               Policy.load(Policies.checkpoint(), backend: :host, device: bad)

      assert message =~ inspect(bad) or bad in [[-1], [0, 1024]]
    end
  end

  test "the host has one device" do
    policy = Policy.load!(Policies.checkpoint(), backend: :host, device: :all)
    assert %{device: device, devices: [device]} = Policy.info!(policy)
    assert %{device: 0} = session = Policy.new_session!(policy, device: 0)
    assert %{device: 0} = Policy.snapshot!(session)
    assert {:ok, _} = Policy.load(Policies.checkpoint(), backend: :host, device: [0])

    assert {:error, %Error{kind: :backend_unavailable, argument: ":device", message: message}} =
             Policy.load(Policies.checkpoint(), backend: :host, device: [0, 1])

    assert message =~ "only device 0, not 1"

    for bad <- [1, -1, :all, [0]] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":device"}} =
               Policy.new_session(policy, device: bad)
    end
  end
end
