defmodule ExPhil.Native.Policy.ActTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Error, Policy, Safetensors}
  alias ExPhil.Native.TestSupport.{Peer, Policies, Shared}

  @moduletag :shared
  @host [backend: :host]
  @buttons [:a, :b, :x, :y, :z, :l, :r, :d_up]

  defp file(name), do: Shared.file("exphil/" <> name)
  defp golden, do: Safetensors.read!(file("exphil_policy/golden.safetensors"))

  defp frames do
    {:f32, {600, 287}, bytes} = Safetensors.read!(file("frames600.safetensors"))["obs"]
    for <<row::binary-size(1148) <- bytes>>, do: row
  end

  defp rows({_type, shape, bytes}, size) do
    row = elem(shape, 1) * size
    for <<part::binary-size(row) <- bytes>>, do: part
  end

  defp button_map(bytes), do: Map.new(Enum.zip(@buttons, for(<<b <- bytes>>, do: b != 0)))

  defp ints(bytes), do: for(<<i::32-signed-little <- bytes>>, do: i)
  defp bins(%{main: {mx, my}, c: {cx, cy}, shoulder: s}), do: [mx, my, cx, cy, s]

  test "info describes every file" do
    assert {:ok, model} = Policy.load(file("exphil_policy/policy.bin"), @host)
    info = Policy.info!(model)
    assert %{dialect: :edifice_mamba, window: 60, dt: :mean, chunk_size: nil, d_output: 81} = info

    assert info.groups == [
             {:buttons, 0..7, :binary},
             {:main_x, 8..24},
             {:main_y, 25..41},
             {:c_x, 42..58},
             {:c_y, 59..75},
             {:shoulder, 76..80}
           ]

    assert %{window: 20, d_model: 32} =
             Policy.info!(Policy.load!(file("exphil_policy/policy_old_term.bin"), @host))

    ssd = Policy.info!(Policy.load!(file("edifice_mamba2/mamba_ssd_compressed.nx"), @host))
    assert %{dialect: :edifice_mamba_ssd, window: 60, chunk_size: 32, d_output: 256, groups: []} = ssd
    channel = Policy.load!(file("edifice_mamba/mamba.nx"), @host ++ [dt: :per_channel])
    assert Policy.info!(channel).dt == :per_channel
  end

  test "the six heads' names are atoms in a VM that has none of them yet" do
    code = """
    path = #{inspect(file("exphil_policy/policy.bin"))}
    policy = ExPhil.Native.Policy.load!(path, backend: :host)
    for group <- ExPhil.Native.Policy.info!(policy).groups, do: IO.inspect(elem(group, 0))
    """

    assert Peer.peer(code, Peer.library()) == {":buttons\n:main_x\n:main_y\n:c_x\n:c_y\n:shoulder\n", 0}
  end

  test "options complete a file; a contradiction is an error" do
    export = file("edifice_mamba2/mamba_ssd.safetensors")
    assert {:error, %Error{argument: ":dialect"}} = Policy.load(export, @host)
    assert {:ok, model} = Policy.load(export, @host ++ [dialect: :edifice_mamba_ssd, window: 60])
    assert Policy.info!(model).window == 60

    assert {:error, %Error{argument: ":window"}} =
             Policy.load(file("edifice_mamba/mamba.nx"), @host ++ [window: 30])

    assert {:error, %Error{argument: ":dialect"}} = Policy.load(export, @host ++ [dialect: :mamba])

    assert {:error, %Error{argument: ":dt"}} =
             Policy.load(export, @host ++ [dialect: :edifice_mamba_ssd, dt: :none])

    assert {:error, %Error{argument: ":dialect"}} =
             Policy.load(Policies.checkpoint(), @host ++ [dialect: :edifice_mamba])
  end

  test "a policy without a controller steps, and is refused with a reason where it should act; :auto selects a backend" do
    path = file("exphil_policy/policy_old_term.bin")
    assert {:ok, model} = Policy.load(path, backend: :auto)
    assert Policy.info!(model).backend in [:cuda, :host]

    for path <- [file("edifice_mamba/mamba.nx"), Policies.checkpoint()] do
      policy = Policy.load!(path, @host)
      session = Policy.new_session!(policy, history: 2)
      obs = <<0::size(policy.info.d_input)-unit(32)>>
      before = Policy.export_state!(session)

      for call <- [&Policy.act(session, &1), &Policy.resimulate_acts(session, 0, &1)] do
        assert {:error, %Error{kind: :unsupported, argument: "session", message: message}} = call.(obs)
        assert message =~ "six heads"
      end

      assert {:error, %Error{kind: :unsupported, argument: "sessions"}} = Policy.act_batch([session], obs)
      assert Policy.export_state!(session) == before
      assert {:ok, _out} = Policy.step(session, obs)

      for {name, value} <- [temperature: 0.5, seed: 1, deterministic: false, deterministic_buttons: true] do
        argument = inspect(name)

        assert {:error, %Error{kind: :unsupported, argument: ^argument}} =
                 Policy.new_session(policy, [{name, value}])
      end
    end
  end

  test "samples from given numbers, deterministic choices and confidence are ExPhil's" do
    policy = Policy.load!(file("exphil_policy/policy.bin"), @host)
    golden = golden()
    uniforms = rows(golden["uniform"], 4)

    sets = [
      {[], "sampled_buttons", "sampled_bins_t1"},
      {[temperature: 0.4], "sampled_buttons", "sampled_bins_t0p4"},
      {[deterministic: true], "det_buttons", "det_bins"}
    ]

    for {options, buttons, bins} <- sets,
        expected = [rows(golden[buttons], 1), rows(golden[bins], 4)],
        {logits, u, buttons, bins} <- Enum.zip([rows(golden["logits_axon"], 4), uniforms | expected]) do
      action = Policy.sample!(policy, logits, [uniforms: u] ++ options)
      assert action.buttons == button_map(buttons)
      assert bins(action.bins) == ints(bins)
      {x, _y} = action.main
      assert x == elem(action.bins.main, 0) / 16
    end
  end

  test "a session plays the windows that ExPhil plays, from the first frame on" do
    policy = Policy.load!(file("exphil_policy/policy.bin"), @host)
    golden = golden()
    session = Policy.new_session!(policy, deterministic: true)
    frames = frames()
    warm = Enum.zip(ints(elem(golden["warmup_frames"], 2)), rows(golden["warmup_logits_axon"], 4))

    answers = for frame <- Enum.take(frames, 60), do: Policy.step!(session, frame)

    for {index, expected} <- warm, index < 60 do
      got = for <<v::float-32-little <- Enum.at(answers, index)>>, do: v
      want = for <<v::float-32-little <- expected>>, do: v
      error = :math.sqrt(Enum.sum(Enum.zip_with(got, want, fn p, q -> (p - q) * (p - q) end)))
      assert error <= 2.0e-5 * :math.sqrt(Enum.sum(Enum.map(want, &(&1 * &1))))
    end

    [end_of_window | _] = ints(elem(golden["window_ends"], 2))
    fresh = Policy.new_session!(policy, deterministic: true)
    rows = Enum.slice(frames, end_of_window - 59, 60)
    action = rows |> Enum.map(&Policy.act!(fresh, &1)) |> List.last()
    assert action.buttons == button_map(hd(rows(golden["det_buttons"], 1)))
    assert bins(action.bins) == ints(hd(rows(golden["det_bins"], 4)))
  end

  test "rollback, export and batches repeat the same play" do
    policy = Policy.load!(file("exphil_policy/policy_old_term.bin"), @host)

    for window <- [nil, :none] do
      options = [window: window, seed: -5, hysteresis: {0.6, 0.4}, deterministic_buttons: true]
      [session, twin, one, other] = for _ <- 1..4, do: Policy.new_session!(policy, options)
      group = Policy.group!([one, other])

      for frame <- Enum.take(frames(), 30) do
        {:ok, before} = Policy.snapshot(session)
        {:ok, exported} = Policy.export_state(session)
        action = Policy.act!(session, frame)
        {:ok, _} = Policy.restore(session, before)
        assert Policy.act!(session, {:f32, {287}, frame}) == action
        {:ok, _} = Policy.import_state(twin, exported)
        assert Policy.act_batch!([twin], frame) == [action]
        assert Policy.act_batch!(group, frame <> frame) == [action, action]
      end
    end
  end

  test "frames that are played again in the session give the same actions" do
    policy = Policy.load!(file("exphil_policy/policy_old_term.bin"), @host)
    frames = Enum.take(frames(), 20)

    for window <- [nil, :none] do
      options = [window: window, seed: 3, history: 8]
      session = Policy.new_session!(policy, options)
      actions = for frame <- frames, do: Policy.act!(session, frame)
      last = frames |> Enum.drop(12) |> IO.iodata_to_binary()
      assert Policy.resimulate_acts!(session, 8, last) == Enum.drop(actions, 12)
      assert {:ok, ^session} = Policy.rollback(session, 1)
      assert Policy.act!(session, List.last(frames)) == List.last(actions)
      assert {:error, %Error{kind: :limit_exceeded}} = Policy.resimulate_acts(session, 9, last)
    end

    model = Policy.load!(Policies.checkpoint(), @host)
    session = Policy.new_session!(model, history: 1)
    assert {:error, %Error{kind: :unsupported}} = Policy.resimulate_acts(session, 0, <<0::13*32>>)
  end

  test "sessions of every policy have windows" do
    model = Policy.load!(Policies.checkpoint(), @host)
    {:f32, {20, 13}, bytes} = Policies.frames(20)
    session = Policy.new_session!(model, window: 6, pad: :none)
    outs = for <<row::binary-size(52) <- bytes>>, do: Policy.step!(session, row)
    last = binary_part(bytes, 14 * 52, 6 * 52)
    assert {:f32, _, expected} = Policy.window!(model, {:f32, {1, 6, 13}, last})
    assert List.last(outs) == expected
    assert {:error, %Error{argument: ":pad", message: message}} = Policy.new_session(model, pad: :zeros)
    assert message =~ ":pad needs :window"
    assert {:error, %Error{argument: ":window"}} = Policy.new_session(model, window: 0)
    assert {:error, %Error{kind: :limit_exceeded}} = Policy.new_session(model, window: 100_000)
  end

  # The host's answers are checked by the tests above and against the goldens; the choices here are clear of ties.
  @tag :gpu
  test "CUDA plays what the host plays" do
    for name <- ["exphil_policy/policy.bin", "exphil_policy/policy_old_term.bin"],
        window <- [nil, :none] do
      [cuda, host] =
        for backend <- [:cuda, :host] do
          policy = Policy.load!(file(name), backend: backend)
          assert Policy.info!(policy).backend == backend
          session = Policy.new_session!(policy, window: window, deterministic: true)
          for frame <- Enum.take(frames(), 120), do: Policy.act!(session, frame)
        end

      for {p, q} <- Enum.zip(cuda, host) do
        assert {p.buttons, p.bins} == {q.buttons, q.bins}
        assert_in_delta p.confidence.overall, q.confidence.overall, 1.0e-4
      end
    end
  end

  @tag :gpu
  test "on CUDA a frame played again, alone or in a batch, gives the same action" do
    policy = Policy.load!(file("exphil_policy/policy.bin"), backend: :cuda)

    for window <- [nil, :none] do
      [session, twin, other] =
        for seed <- [7, 7, 8], do: Policy.new_session!(policy, window: window, seed: seed)

      for frame <- Enum.take(frames(), 70) do
        {:ok, before} = Policy.snapshot(session)
        action = Policy.act!(session, frame)
        {:ok, _} = Policy.restore(session, before)
        assert Policy.act!(session, frame) == action
        assert [action] == [hd(Policy.act_batch!([twin, other], frame <> frame))]
      end
    end
  end

  test "a session takes the same options whether it steps or acts, and does both" do
    policy = Policy.load!(file("exphil_policy/policy_old_term.bin"), @host)
    [first, second | rest] = Enum.take(frames(), 12)

    # The policy's own window is the default of either.
    for {given, same} <- [
          {[], [window: 20]},
          {[window: 6, pad: :none], [window: 6, pad: :none]},
          {[window: :none], [window: :none]}
        ] do
      [acting, stepped, both] =
        for options <- [given, same, same], do: Policy.new_session!(policy, [seed: 3, history: 4] ++ options)

      actions = for frame <- [first, second | rest], do: Policy.act!(acting, frame)
      outs = for frame <- [first, second | rest], do: Policy.step!(stepped, frame)
      assert Policy.act!(both, first) == hd(actions)
      assert Policy.step!(both, second) == Enum.at(outs, 1)

      # The action was not taken on the second frame, so the numbers of the third are those of the second action.
      sampled = Policy.sample!(policy, Enum.at(outs, 2), seed: 3, frame: 1, held: hd(actions).buttons)
      assert Policy.act!(both, hd(rest)) == sampled
      assert Policy.resimulate!(both, 3, first <> second) == Enum.at(outs, 0) <> Enum.at(outs, 1)
    end
  end

  test "a temperature near zero takes the likeliest bins" do
    policy = Policy.load!(file("exphil_policy/policy_old_term.bin"), @host)
    logits = for i <- 0..80, into: <<>>, do: <<1.5 * :math.sin(i * 1.7)::float-32-little>>
    likeliest = Policy.sample!(policy, logits, deterministic: true).bins

    for temperature <- [1.0e-300, 1.0e-307, 1.0e-309, 5.0e-324], frame <- 1..20 do
      assert Policy.sample!(policy, logits, temperature: temperature, frame: frame).bins == likeliest
    end
  end

  test "bad options and arguments are named" do
    policy = Policy.load!(file("exphil_policy/policy_old_term.bin"), @host)

    for {options, argument} <- [
          {[window: :both], ":window"},
          {[temperature: 0], ":temperature"},
          {[hysteresis: 0.5], ":hysteresis"},
          {[hysteresis: {Integer.pow(2, 2000), 0.5}, deterministic: true], ":hysteresis"},
          {[hysteresis: {0.5, -Integer.pow(2, 2000)}, deterministic: true], ":hysteresis"},
          {[hysteresis: {-1, 2}, deterministic_buttons: true], ":hysteresis"},
          {[hysteresis: {0.6, 1.0001}, deterministic_buttons: true], ":hysteresis"},
          {[hysteresis: {0.6, 0.4}], ":hysteresis"},
          {[hysteresis: {0.6, 0.4}, deterministic_buttons: false], ":hysteresis"},
          {[seed: :x], ":seed"},
          {[pad: :ones], ":pad"},
          {[window: :none, pad: :zeros], ":pad"},
          {[deterministic: 1], ":deterministic"},
          {[speed: 1], ":speed"}
        ] do
      assert {:error, %Error{kind: :invalid_argument, argument: ^argument}} =
               Policy.new_session(policy, options)
    end

    session = Policy.new_session!(policy)
    assert {:error, %Error{argument: "obs"}} = Policy.act(session, <<0::32>>)
    assert {:error, %Error{argument: "session"}} = Policy.act(policy, <<>>)
    assert {:error, %Error{argument: "sessions"}} = Policy.act_batch([], <<>>)
    assert {:error, %Error{argument: "sessions"}} = Policy.act_batch([1], <<>>)
    assert {:error, %Error{argument: "policy"}} = Policy.new_session(:x)
    assert {:error, %Error{argument: "outs"}} = Policy.sample(policy, <<0::32>>)
    assert {:error, %Error{argument: ":uniforms"}} = Policy.sample(policy, <<0::2592>>, uniforms: <<0::32>>)

    for bad <- [<<1.0::float-32-little>>, <<-1.0::float-32-little>>, <<0x7FC00000::32-little>>] do
      uniforms = <<0::80*32>> <> bad

      assert {:error, %Error{argument: ":uniforms"} = error} =
               Policy.sample(policy, <<0::2592>>, uniforms: uniforms)

      assert Exception.message(error) =~ "number 80 is"
      tensor = {:f32, {81}, uniforms}
      assert {:error, %Error{argument: ":uniforms"}} = Policy.sample(policy, <<0::2592>>, uniforms: tensor)
    end

    for good <- [{0, 1}, {1.0, 0.0}, {0.6, 0.4}],
        do: assert({:ok, _} = Policy.new_session(policy, hysteresis: good, deterministic: true))

    for held <- [3, %{a: 1}, %{jump: true}, %{"a" => true}],
        do: assert({:error, %Error{argument: ":held"}} = Policy.sample(policy, <<0::2592>>, held: held))
  end
end
