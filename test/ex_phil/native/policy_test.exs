defmodule ExPhil.Native.PolicyTest do
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Properties

  setup context do
    model = Policy.load!(Policies.checkpoint(), backend: context[:backend] || :host)
    {:ok, model: model, frames: Policies.frames(140)}
  end

  # The outputs of stepping each frame from a zero state.
  defp stepped(model, frames, count) do
    session = Policy.new_session!(model)
    {for(i <- 0..(count - 1)//1, do: Policy.step!(session, row(frames, i))), session}
  end

  backend_test "info agrees with the shapes", %{model: model, backend: backend} do
    info = Policy.info!(model)
    for {name, size} <- Policies.sizes(), do: assert(Map.fetch!(info, name) == size)
    assert %{backend: ^backend, precision: :f32, device: %ExPhil.Native.Device{backend: ^backend}} = info
    assert info.fingerprint =~ ~r/^[0-9a-f]{16}$/
    assert info.resident_bytes > 4 * 24 * 80
    assert_in_delta info.norm_epsilon, 1.0e-5, 1.0e-9
    assert inspect(model) =~ "#{backend}:0, 2 layers, d_model 24, 13 in, 7 out"
  end

  backend_test "an answer has the form of the observation", %{model: model, frames: frames} do
    session = Policy.new_session!(model)
    obs = row(frames, 0)
    out = Policy.step!(session, obs)
    assert byte_size(out) == 4 * 7
    restart = fn -> Policy.new_session!(model) end
    assert Policy.step!(restart.(), {:f32, {13}, obs}) == {:f32, {7}, out}
    {:f32, _, two} = rows(frames, 0, 2)
    assert {:f32, {2, 7}, outs} = Policy.prefill!(restart.(), {:f32, {2, 13}, two})
    assert Policy.prefill!(restart.(), two) == outs
    assert {:f32, {2, 7}, outs} = Policy.window!(model, {:f32, {2, 1, 13}, two})
    assert relative_error(binary_part(outs, 0, 28), out) <= 1.0e-5
    agents = fn -> [restart.(), restart.()] end
    assert {:f32, {2, 7}, outs} = Policy.step_batch!(agents.(), {:f32, {2, 13}, two})
    assert Policy.step_batch!(agents.(), two) == outs
  end

  backend_test "n steps equal one prefill, for every length from 1 to 130", %{model: model, frames: frames} do
    {outs, _} = stepped(model, frames, 131)

    for n <- 1..130 do
      session = Policy.new_session!(model)
      prefilled = Policy.prefill!(session, elem(rows(frames, 0, n), 2))
      assert relative_error(prefilled, outs |> Enum.take(n) |> IO.iodata_to_binary()) <= 1.0e-5
      # The state is right too: the next answer agrees.
      assert relative_error(Policy.step!(session, row(frames, n)), Enum.at(outs, n)) <= 1.0e-5
    end
  end

  backend_test "two prefills equal one, wherever they are split", %{model: model, frames: frames} do
    {outs, _} = stepped(model, frames, 130)
    outs = IO.iodata_to_binary(outs)

    for at <- 0..130 do
      session = Policy.new_session!(model)
      first = Policy.prefill!(session, elem(rows(frames, 0, at), 2))
      second = Policy.prefill!(session, elem(rows(frames, at, 130 - at), 2))
      assert relative_error(first <> second, outs) <= 1.0e-5
    end
  end

  @tag :property
  backend_test "steps and prefills of any length can be mixed", %{model: model, frames: frames} do
    {outs, stepped} = stepped(model, frames, 140)
    final = Policy.export_state!(stepped)

    # {:step, n} steps n frames, {:prefill, n} prefills them.
    piece = one_of([tuple([:step, integer(0, 20)]), tuple([:prefill, integer(0, 70)])])

    assert_property(list(piece), 30, fn pieces ->
      session = Policy.new_session!(model)

      {parts, at} =
        Enum.map_reduce(pieces ++ [{:prefill, 140}], 0, fn {how, n}, at ->
          n = min(n, 140 - at)
          {play(session, how, rows(frames, at, n)), at + n}
        end)

      140 = at

      relative_error(IO.iodata_to_binary(parts), IO.iodata_to_binary(outs)) <= 1.0e-5 and
        relative_error(state(Policy.export_state!(session)), state(final)) <= 1.0e-5
    end)
  end

  defp play(session, :prefill, {_, _, frames}), do: Policy.prefill!(session, frames)

  defp play(session, :step, {_, {n, _}, _} = frames),
    do: for(i <- 0..(n - 1)//1, do: Policy.step!(session, row(frames, i)))

  # The floats of an exported state: between its header of 56 bytes and its checksum of 8.
  defp state(exported), do: binary_part(exported, 56, byte_size(exported) - 64)

  @tag :property
  backend_test "a snapshot restores the same bits, whatever happened since", %{model: model, frames: frames} do
    assert_property(tuple([integer(0, 40), integer(0, 40), integer(1, 40)]), 30, fn {before, since, after_} ->
      session = Policy.new_session!(model)
      Policy.prefill!(session, elem(rows(frames, 0, before), 2))
      snapshot = Policy.snapshot!(session)
      exported = Policy.export_state!(session)
      expected = play(session, :step, rows(frames, before, after_))
      Policy.prefill!(session, elem(rows(frames, 50, since), 2))

      ^session = Policy.restore!(session, snapshot)
      again = play(session, :step, rows(frames, before, after_))

      other = Policy.new_session!(model)
      Policy.import_state!(other, exported)
      imported = play(other, :step, rows(frames, before, after_))

      again == expected and imported == expected and
        Policy.export_state!(session) == Policy.export_state!(other)
    end)
  end

  backend_test "rolling back and forth gives the bits of play without rollbacks", %{
    model: model,
    frames: frames
  } do
    {outs, _} = stepped(model, frames, 60)
    session = Policy.new_session!(model)
    # Every frame is played, rolled back up to 7 frames with wrong inputs, and played again.
    Enum.reduce(0..59, [], fn t, snapshots ->
      snapshots = Enum.take([Policy.snapshot!(session) | snapshots], 7)
      depth = rem(t, 7) + 1
      wrong = Policies.frames(depth, t)
      for i <- 0..(depth - 1), do: Policy.step!(session, row(wrong, i))
      back = min(depth, length(snapshots))
      Policy.restore!(session, Enum.at(snapshots, back - 1))
      for i <- (t - back + 1)..t, do: assert(Policy.step!(session, row(frames, i)) == Enum.at(outs, i))
      snapshots
    end)
  end

  @tag :property
  backend_test "a batch gives the bits of separate steps", %{model: model, frames: frames} do
    assert_property(tuple([integer(1, 33), integer(0, 100)]), 20, fn {agents, seed} ->
      frames_of = fn t -> Policies.frames(agents, 1000 * seed + t) end
      batched = for _ <- 1..agents, do: Policy.new_session!(model)
      separate = for _ <- 1..agents, do: Policy.new_session!(model)
      # Start from different states.
      for {pair, i} <- Enum.with_index(Enum.zip(batched, separate)), session <- Tuple.to_list(pair) do
        Policy.prefill!(session, elem(rows(frames, i, i), 2))
      end

      Enum.all?(1..3, fn t ->
        obs = frames_of.(t)
        batch = Policy.step_batch!(batched, elem(obs, 2))
        single = for {session, i} <- Enum.with_index(separate), do: Policy.step!(session, row(obs, i))
        batch == IO.iodata_to_binary(single)
      end)
    end)
  end

  backend_test "a batch's order does not matter", %{model: model} do
    obs = Policies.frames(9)
    sessions = for _ <- 1..9, do: Policy.new_session!(model)
    outs = Policy.step_batch!(sessions, elem(obs, 2))
    fresh = for _ <- 1..9, do: Policy.new_session!(model)
    reversed = for(i <- 8..0//-1, do: row(obs, i)) |> IO.iodata_to_binary()
    back = Policy.step_batch!(fresh, reversed)
    assert for(i <- 8..0//-1, do: binary_part(back, 28 * i, 28)) |> IO.iodata_to_binary() == outs
  end

  backend_test "windows equal prefills from a zero state, the last answer of each", %{
    model: model,
    frames: frames
  } do
    for seq <- [1, 2, 31, 60] do
      {:f32, _, binary} = rows(frames, 0, 2 * seq)
      {:f32, {2, 7}, outs} = Policy.window!(model, {:f32, {2, seq, 13}, binary})

      expected =
        for i <- 0..1 do
          out = Policy.prefill!(Policy.new_session!(model), elem(rows(frames, i * seq, seq), 2))
          binary_part(out, byte_size(out) - 28, 28)
        end

      assert relative_error(outs, IO.iodata_to_binary(expected)) <= 1.0e-5
    end
  end

  backend_test "a warm start is a prefill whose answers are dropped", %{model: model, frames: frames} do
    warm = Policy.new_session!(model, warm_start: rows(frames, 0, 50))
    cold = Policy.new_session!(model)
    Policy.prefill!(cold, rows(frames, 0, 50))
    assert Policy.export_state!(warm) == Policy.export_state!(cold)

    assert Policy.export_state!(Policy.new_session!(model, warm_start: <<>>)) ==
             Policy.export_state!(Policy.new_session!(model))
  end

  backend_test "no frames are legal and change nothing", %{model: model, frames: frames} do
    session = Policy.new_session!(model)
    Policy.step!(session, row(frames, 0))
    before = Policy.export_state!(session)
    assert Policy.prefill(session, <<>>) == {:ok, <<>>}
    assert Policy.prefill(session, {:f32, {0, 13}, <<>>}) == {:ok, {:f32, {0, 7}, <<>>}}
    assert Policy.export_state!(session) == before
  end

  backend_test "an exported state identifies its model", %{model: model, frames: frames} do
    {_, session} = stepped(model, frames, 3)
    exported = Policy.export_state!(session)
    fingerprint = String.to_integer(Policy.info!(model).fingerprint, 16)
    assert <<"EXPHILST", 2::32-little, 0::32, ^fingerprint::64-little, _::binary>> = exported
    # 2 layers of ssm {40, 5} and conv {40, 3}.
    assert byte_size(exported) == 56 + 4 * 2 * (40 * 5 + 40 * 3) + 8
  end

  backend_test "the same checkpoint is the same model, in another file too", %{model: model, backend: backend} do
    copy = Policies.checkpoint_of("copy_#{backend}", Policies.tensors())
    other = Policy.load!(copy, backend: backend)
    assert Policy.info!(other).fingerprint == Policy.info!(model).fingerprint
    other_epsilon = Policy.load!(copy, backend: backend, norm_epsilon: 1.0e-3)
    assert Policy.info!(other_epsilon).fingerprint != Policy.info!(model).fingerprint
  end

  @tag :tmp_dir
  backend_test "norm_epsilon: the option, else the file's metadata, else 1.0e-5", context do
    %{backend: backend, tmp_dir: folder} = context

    file = fn name, metadata ->
      path = Path.join(folder, name)
      :ok = ExPhil.Native.Safetensors.write(path, Policies.tensors(), metadata)
      path
    end

    epsilon = fn path, options ->
      Policy.info!(Policy.load!(path, [backend: backend] ++ options)).norm_epsilon
    end

    plain = file.("plain", %{})
    assert_in_delta epsilon.(plain, []), 1.0e-5, 1.0e-11
    assert_in_delta epsilon.(plain, norm_epsilon: 1.0e-3), 1.0e-3, 1.0e-9
    named = file.("named", %{"norm_epsilon" => "1e-06"})
    assert_in_delta epsilon.(named, []), 1.0e-6, 1.0e-12
    assert_in_delta epsilon.(named, norm_epsilon: 1.0e-5), 1.0e-5, 1.0e-11

    for text <- ["0", "-1e-5", "1e-60", "1e60", "small", "nan"] do
      assert {:error, %Error{kind: :invalid_checkpoint, message: message}} =
               Policy.load(file.("bad", %{"norm_epsilon" => text}), backend: backend)

      assert message =~ "norm_epsilon" and message =~ text
    end

    for value <- [1.0e-60, 1.0e60, 0, -1.0] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":norm_epsilon"}} =
               Policy.load(plain, backend: backend, norm_epsilon: value)
    end
  end

  backend_test "observations may start at any byte", %{model: model, frames: frames} do
    obs = row(frames, 0)
    <<_, moved::binary>> = <<0>> <> obs
    assert Policy.step!(Policy.new_session!(model), moved) == Policy.step!(Policy.new_session!(model), obs)
  end

  test "sessions and snapshots have readable inspect output", %{model: model} do
    session = Policy.new_session!(model)
    assert inspect(session) =~ ~r/^#ExPhil.Native.Policy.Session<host:0, #Reference<.*>>$/
    assert inspect(Policy.snapshot!(session)) =~ ~r/^#ExPhil.Native.Policy.Snapshot<host:0, /
  end
end
