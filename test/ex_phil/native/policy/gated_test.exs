defmodule ExPhil.Native.Policy.GatedTest do
  # GRU, LSTM, minGRU, minLSTM and gated DeltaNet policies of ExPhil, as its agents load and play them: the recorded policies of
  # exphil/trunks. Every kind of call of every size is in test/c_src/host/policy/gated_test.cpp.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Numbers
  import ExPhil.Native.TestSupport.Slopes

  alias ExPhil.Native.{Checkpoint, Error, Loss, Policy, Safetensors, Trainer}
  alias ExPhil.Native.TestSupport.Shared

  @moduletag :shared
  @moduletag :tmp_dir

  @small ~w(gated_deltanet_e32_h32_w20 gru_e32_h32_w20 gru_fused_e32_h32_w20 lstm_e32_h32_w20 lstm_fused_e32_h32_w20 min_gru_e32_h32_w20
            min_lstm_e32_h32_w20)
  @real "gru_e287_h256_w60"

  defp file(set, name), do: Shared.file("exphil/trunks/#{set}/#{name}")
  defp io(set), do: set |> file("io.safetensors") |> Safetensors.read!()

  defp load(set, options \\ []),
    do: Policy.load!(file(set, "policy.bin"), Keyword.merge([backend: :host], options))

  defp trunk(set), do: set |> String.replace(~r/(_fused)?_e\d+_h.*/, "") |> String.to_atom()

  # Frame `t` of window `index`.
  defp frame({:f32, {_, seq, width}, bytes}, index, t),
    do: binary_part(bytes, (index * seq + t) * width * 4, width * 4)

  defp close?(got, expected), do: relative_error(got, expected) < 1.0e-5

  for set <- @small ++ [@real], backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend} loads, and answers as Axon does" do
      set = unquote(set)
      policy = load(set, backend: unquote(backend))
      %{"windows" => windows, "logits_batch1" => {:f32, {8, 81}, bytes} = expected} = io(set)
      {:f32, {8, seq, width}, _} = windows
      info = Policy.info!(policy)
      assert %{trunk: trunk, window: ^seq, d_input: ^width, d_output: 81, n_layer: 2, backend: backend} = info
      assert backend == unquote(backend)
      assert trunk == trunk(set)
      assert [{:buttons, 0..7, :binary} | _] = info.groups
      answers = Policy.window!(policy, windows)
      assert close?(answers, expected)
      # A session with windows of this length, of its own: the last answer of the first window.
      session = Policy.new_session!(policy, window: seq)
      outs = for t <- 0..(seq - 1), do: Policy.step!(session, frame(windows, 0, t))
      assert close?(List.last(outs), {:f32, {81}, binary_part(bytes, 0, 81 * 4)})
    end
  end

  for set <- @small, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend}: steps, actions, snapshots, rollback, exported states" do
      set = unquote(set)
      policy = load(set, backend: unquote(backend))
      %{"windows" => windows} = io(set)
      at = &frame(windows, 0, &1)
      session = Policy.new_session!(policy, history: 8)
      outs = for t <- 0..19, do: Policy.step!(session, at.(t))
      {:f32, {8, 20, 32}, bytes} = windows

      assert Policy.prefill!(Policy.new_session!(policy), binary_part(bytes, 0, 20 * 32 * 4)) ==
               IO.iodata_to_binary(outs)

      # Rolled back by three frames, and played again.
      again = Policy.resimulate!(session, 3, IO.iodata_to_binary(for t <- 17..19, do: at.(t)))
      assert again == outs |> Enum.drop(17) |> IO.iodata_to_binary()
      snapshot = Policy.snapshot!(session)
      next = Policy.step!(session, frame(windows, 1, 0))
      Policy.restore!(session, snapshot)
      assert Policy.step!(session, frame(windows, 1, 0)) == next
      Policy.restore!(session, snapshot)
      other = Policy.new_session!(policy)
      Policy.import_state!(other, Policy.export_state!(session))
      assert Policy.step!(other, frame(windows, 1, 0)) == next
      assert %Policy.Action{buttons: %{a: _}} = Policy.act!(other, at.(0))
    end
  end

  for set <- @small do
    test "#{set}: gradients, updates" do
      policy = load(unquote(set))
      weights = Policy.weights!(policy)
      frames = uniform(1, {2, 6, 32}, -1.0, 1.0)
      d_outs = uniform(2, {2, 6, 81}, -1.0, 1.0)
      {outs, state} = Policy.forward!(policy, frames, return_state: true)
      assert map_size(state) == if(unquote(set) =~ "deltanet", do: 2, else: 1)
      gradients = Policy.grad!(policy, frames, d_outs, initial_state: state)
      assert Map.keys(gradients) == Map.keys(weights)
      for {name, {type, shape, _}} <- gradients, do: assert({^type, ^shape, _} = weights[name])

      loss = fn outs -> Enum.zip_with(floats(outs), floats(d_outs), &(&1 * &2)) |> Enum.sum() end
      check_state_gradient(policy, frames, d_outs, state)

      # The loss is linear in the outputs: a small step along the gradient lowers it by rate * |gradient|^2.
      rate = 1.0e-4
      gradients = Policy.grad!(policy, frames, d_outs)

      moved =
        Map.new(weights, fn {name, {:f32, shape, bytes}} ->
          values = Enum.zip_with(floats(bytes), floats(gradients[name]), &(&1 - rate * &2))
          {name, {:f32, shape, for(v <- values, into: <<>>, do: <<v::float-32-little>>)}}
        end)

      squares = for {_, g} <- gradients, v <- floats(g), reduce: 0.0, do: (sum -> sum + v * v)
      before = loss.(outs)
      policy = Policy.update!(policy, moved)
      change = loss.(Policy.forward!(policy, frames)) - before
      assert_in_delta change / (-rate * squares), 1.0, 0.2
      assert Policy.info!(policy).trunk == trunk(unquote(set))
    end

    test "#{set}: converted, with its random keys", %{tmp_dir: folder} do
      set = unquote(set)
      out = Path.join(folder, "out.safetensors")
      info = Checkpoint.convert!(file(set, "policy.bin"), out)
      assert info.trunk == trunk(set)
      tensors = Safetensors.read!(out)
      assert tensors == Checkpoint.read!(file(set, "policy.bin"))
      states = for {name, {:u32, {2}, _}} <- tensors, name =~ "hidden_state", do: name
      count = %{"gru_e" => 2, "lstm_" => 4}[String.slice(set, 0, 5)] || 0
      assert length(states) == if(set =~ "fused", do: 0, else: count)
      %{"windows" => windows} = io(set)
      converted = Policy.load!(out, backend: :host)
      assert Policy.window!(converted, windows) == Policy.window!(load(set), windows)
      assert Policy.info!(converted).fingerprint == info.fingerprint
    end
  end

  for set <- @small ++ [@real] do
    @tag :gpu
    test "#{set}: outputs, states and gradients on a GPU are those of the CPU" do
      set = unquote(set)
      %{"windows" => {:f32, {8, seq, width}, bytes}} = io(set)
      frames = {:f32, {2, seq, width}, binary_part(bytes, 0, 2 * seq * width * 4)}
      d_outs = uniform(2, {2, seq, 81}, -1.0, 1.0)
      [gpu, cpu] = for backend <- [:cuda, :host], do: load(set, backend: backend)
      # From a new agent's state, and from where that chunk ended.
      close = fn got, expected, what -> assert relative_error(got, expected) < 5.0e-5, what end

      Enum.reduce(1..2, [], fn chunk, start ->
        [{outs, state}, {expected_outs, expected_state}] =
          for policy <- [gpu, cpu], do: Policy.forward!(policy, frames, [return_state: true] ++ start)

        close.(outs, expected_outs, "outs of chunk #{chunk}")
        for {part, tensor} <- state, do: close.(tensor, expected_state[part], "#{part} after chunk #{chunk}")
        options = [d_frames: true, d_initial_state: true] ++ start

        [{gradients, d_frames, d_state}, {expected, expected_frames, expected_d_state}] =
          for policy <- [gpu, cpu], do: Policy.grad!(policy, frames, d_outs, options)

        for {name, tensor} <- gradients, do: close.(tensor, expected[name], name)
        close.(d_frames, expected_frames, "d_frames")
        for {part, tensor} <- d_state, do: close.(tensor, expected_d_state[part], "d_#{part}")
        [initial_state: expected_state]
      end)
    end
  end

  test "saved after an update, with its random keys", %{tmp_dir: folder} do
    for set <- ["gru_e32_h32_w20", "lstm_e32_h32_w20", "min_lstm_e32_h32_w20"] do
      policy = load(set)
      weights = Policy.weights!(policy)
      {name, {:f32, shape, values}} = Enum.find(weights, fn {name, _} -> name =~ "_hidden.bias" end)
      zeros = {:f32, shape, :binary.copy(<<0.0::float-32-little>>, div(byte_size(values), 4))}
      Policy.update!(policy, %{weights | name => zeros})
      path = Path.join(folder, set <> ".safetensors")
      Policy.save!(policy, path)
      saved = Policy.load!(path, backend: :host)
      %{"windows" => windows} = io(set)
      assert Policy.window!(saved, windows) == Policy.window!(policy, windows)
      assert Policy.window!(saved, windows) != Policy.window!(load(set), windows)
      assert Policy.info!(saved).fingerprint == Policy.info!(policy).fingerprint
      refute Map.has_key?(Policy.info!(saved), :constants)
    end
  end

  test "a file that was saved while it trained, with the random key of a dropout layer", %{tmp_dir: folder} do
    for {set, layer} <- [
          gru_e32_h32_w20: "recurrent_dropout_1",
          lstm_fused_e32_h32_w20: "recurrent_dropout_1",
          min_gru_e32_h32_w20: "dropout_1"
        ] do
      policy = load("#{set}")
      path = Path.join(folder, "#{set}.safetensors")
      Policy.save!(policy, path)
      key = {:u32, {2}, <<1::32-little, 2::32-little>>}
      trained = path |> Safetensors.read!() |> Map.put(layer <> ".key", key)
      {:ok, metadata} = Safetensors.metadata(path)
      :ok = Safetensors.write(path, trained, metadata)
      %{"windows" => windows} = io("#{set}")
      assert Policy.window!(Policy.load!(path, backend: :host), windows) == Policy.window!(policy, windows)
      # Neither a key of another type is dropped, nor a weight of such a layer.
      for {name, tensor} <- [{".key", {:f32, {2}, <<0::64>>}}, {".kernel", key}] do
        :ok = Safetensors.write(path, Map.put(trained, layer <> name, tensor), metadata)
        assert {:error, %Error{kind: :invalid_checkpoint} = error} = Policy.load(path, backend: :host)
        assert error.message =~ layer <> name
      end
    end
  end

  test "the buttons are separate events: in a loss, in training, and in a saved file", %{tmp_dir: folder} do
    policy = load("gru_e32_h32_w20")
    groups = Policy.info!(policy).groups
    assert [{:buttons, 0..7, :binary}, {:main_x, 8..24} | _] = groups
    %{"windows" => {:f32, {8, 20, 32}, bytes}} = io("gru_e32_h32_w20")
    frames = {:f32, {20, 32}, binary_part(bytes, 0, 20 * 32 * 4)}
    outs = Policy.forward!(policy, {:f32, {1, 20, 32}, elem(frames, 2)})

    # A column for each of the eight buttons and each of the five choices. Several buttons may be held at once.
    assert {:s32, {1, 20, 13}, chosen} = Loss.argmax(outs, groups)
    row = [1, 1, 0, 0, 0, 0, 0, 1, 8, 8, 8, 8, 0]
    targets = {:s32, {20, 13}, for(_ <- 1..20, v <- row, into: <<>>, do: <<v::32-little>>)}
    loss = Loss.cross_entropy(outs, {:s32, {1, 20, 13}, elem(targets, 2)}, groups)
    assert loss.losses.buttons > 0.0
    assert Loss.cross_entropy(outs, {:s32, {1, 20, 13}, chosen}, groups).correct.buttons == 1.0

    trainer = Trainer.new!(policy, batch: 1, learning_rate: 1.0e-2)
    # One column for the buttons is refused: it would be a choice of one of eight.
    six = {:s32, {20, 6}, :binary.copy(<<0::32>>, 20 * 6)}

    assert {:error, %Error{message: message}} =
             Trainer.fit(trainer, [{frames, six}], steps: 1, progress: false)

    assert message =~ "{20, 13}"
    trainer = Trainer.fit!(trainer, [{frames, targets}], steps: 20, progress: false)
    path = Path.join(folder, "trained.safetensors")
    Policy.save!(trainer.policy, path)
    trained = Policy.load!(path, backend: :host)
    assert Policy.info!(trained).groups == groups
    assert {:ok, "buttons:8:binary,main_x:17," <> _} = heads_of(path)

    after_training =
      trained
      |> Policy.forward!({:f32, {1, 20, 32}, elem(frames, 2)})
      |> Loss.cross_entropy({:s32, {1, 20, 13}, elem(targets, 2)}, groups)

    assert after_training.losses.buttons < loss.losses.buttons

    assert %Policy.Action{buttons: %{a: _}} =
             trained |> Policy.new_session!() |> Policy.act!(frame(io("gru_e32_h32_w20")["windows"], 0, 0))
  end

  defp heads_of(path) do
    with {:ok, metadata} <- Safetensors.metadata(path), do: Map.fetch(metadata, "exphil_native.heads")
  end

  test "in another precision, a window is near that of f32" do
    %{"windows" => windows, "logits_batch1" => expected} = io(@real)

    for {precision, bound} <- [bf16: 2.0e-2, f16: 2.0e-3, int8: 2.0e-2, tf32x3: 1.0e-5] do
      answers = Policy.window!(load(@real, precision: precision), windows)
      assert relative_error(answers, expected) < bound, "#{precision}"
    end
  end

  test "by itself a gated policy takes a backend that runs it" do
    assert {:ok, policy} = Policy.load(file("gru_e32_h32_w20", "policy.bin"), backend: :auto)
    assert Policy.info!(policy).trunk == :gru
  end
end
