defmodule ExPhil.Native.Policy.Mamba2Test do
  # Mamba-2 policies of state-spaces/mamba, as a user loads and plays them: the recorded policies of mamba23. Every kind of call of
  # every size is in heads_test.cpp of test/c_src/host/policy and test/c_src/cuda/policy.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Numbers

  alias ExPhil.Native.{Checkpoint, Error, Policy, Safetensors}
  alias ExPhil.Native.TestSupport.Shared

  @moduletag :shared
  @moduletag :tmp_dir

  # The option that decides what the shapes leave open, and what the layers are.
  @cases ~w(mamba2_base mamba2_grouped mamba2_grouped_small mamba2_nonorm mamba2_dtlimit mamba2_dssm mamba2_real)
  @with_gradients @cases -- ~w(mamba2_grouped mamba2_real)

  defp file(set, name), do: Shared.file("mamba23/#{set}/#{name}")
  defp read(set, name), do: set |> file(name) |> Safetensors.read!()

  defp load(set, options \\ []),
    do: Policy.load!(file(set, "policy.safetensors"), Keyword.merge([backend: :host], options))

  defp close?(got, expected, bound \\ 1.0e-5), do: relative_error(got, expected) < bound

  # The frames of a case, {count, width} as one binary.
  defp frames("mamba2_real") do
    %{"obs" => {:f32, {_, width}, bytes}} = Shared.read("melee/match.safetensors")
    metadata = Safetensors.metadata!(file("mamba2_real", "golden.safetensors"))
    [start, count] = for key <- ["match_start", "match_frames"], do: String.to_integer(metadata[key])
    {width, binary_part(bytes, start * width * 4, count * width * 4)}
  end

  defp frames(set) do
    {:f32, {_, width}, bytes} = read(set, "golden.safetensors")["obs"]
    {width, bytes}
  end

  for set <- @cases, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend}: a carried state, windows, the state after the last frame" do
      set = unquote(set)
      policy = load(set, backend: unquote(backend))
      golden = read(set, "golden.safetensors")
      {width, bytes} = frames(set)
      {:f64, {count, d_output}, _} = golden["logits"]
      info = Policy.info!(policy)
      assert %{trunk: :mamba2, d_input: ^width, d_output: ^d_output, settings_from: :metadata} = info
      session = Policy.new_session!(policy)
      outs = for t <- 0..(count - 1), do: Policy.step!(session, binary_part(bytes, t * width * 4, width * 4))
      assert close?({:f32, nil, IO.iodata_to_binary(outs)}, golden["logits"])

      {:s32, _, ends} = golden["end_frame_index"]

      windows =
        for <<last::32-little <- ends>>,
          into: <<>>,
          do: binary_part(bytes, (last - 19) * width * 4, 20 * width * 4)

      assert close?(Policy.window!(policy, {:f32, {16, 20, width}, windows}), golden["window_logits"])

      {_, state} = Policy.forward!(policy, {:f32, {1, count, width}, bytes}, return_state: true)
      assert close?(state.ssm, golden["ssm_state"])
      assert close?(state.conv, golden["conv_state"])
    end
  end

  for set <- @with_gradients, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend}: gradients" do
      set = unquote(set)
      policy = load(set, backend: unquote(backend))
      recorded = read(set, "grad.safetensors")
      assert close?(Policy.forward!(policy, recorded["obs"]), recorded["logits"])
      gradients = Policy.grad!(policy, recorded["obs"], recorded["g"])
      {_, shape, _} = recorded["obs"]
      assert shape |> elem(0) == 3
      for {name, gradient} <- gradients, do: assert(close?(gradient, recorded["grad." <> name], 1.0e-4), name)
      names = for "grad." <> name <- Map.keys(recorded), name != "obs", do: name
      assert Enum.sort(names) == gradients |> Map.keys() |> Enum.sort()
    end
  end

  for set <- @cases, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend}: steps, snapshots, rollback, exported states, batches" do
      set = unquote(set)
      policy = load(set, backend: unquote(backend))
      {width, bytes} = frames(set)
      at = &binary_part(bytes, &1 * width * 4, width * 4)
      session = Policy.new_session!(policy, history: 8)
      outs = for t <- 0..19, do: Policy.step!(session, at.(t))

      assert Policy.prefill!(Policy.new_session!(policy), binary_part(bytes, 0, 20 * width * 4)) ==
               IO.iodata_to_binary(outs)

      again = Policy.resimulate!(session, 3, IO.iodata_to_binary(for t <- 17..19, do: at.(t)))
      assert again == outs |> Enum.drop(17) |> IO.iodata_to_binary()
      snapshot = Policy.snapshot!(session)
      next = Policy.step!(session, at.(20))
      Policy.restore!(session, snapshot)
      other = Policy.new_session!(policy)
      Policy.import_state!(other, Policy.export_state!(session))
      assert Policy.step_batch!([session, other], at.(20) <> at.(20)) == next <> next
    end
  end

  # The file without its metadata, and perhaps with a config.json beside it.
  defp copy(set, folder, metadata, config \\ nil) do
    path = Path.join(folder, "policy.safetensors")
    Safetensors.write!(path, read(set, "policy.safetensors"), metadata)
    if config, do: File.write!(Path.join(folder, "config.json"), config)
    path
  end

  defp open(path, options \\ []), do: Policy.load(path, [backend: :host] ++ options)

  defp window(policy) do
    %{d_input: width} = Policy.info!(policy)
    Policy.window!(policy, uniform(3, {2, 12, width}, -1.0, 1.0))
  end

  test "what shapes cannot say: by the metadata, a config.json, an option or the default", %{tmp_dir: folder} do
    set = "mamba2_grouped_small"
    expected = window(load(set))
    assert {:ok, policy} = open(copy(set, folder, %{"ngroups" => "2", "norm_before_gate" => "true"}))
    assert %{ngroups: 2, norm_before_gate: true, settings_from: :metadata} = Policy.info!(policy)
    assert window(policy) == expected

    path = copy(set, folder, %{})
    assert {:ok, policy} = open(path, ngroups: 2, norm_before_gate: true)
    assert %{ngroups: 2, norm_before_gate: true, settings_from: :options} = Policy.info!(policy)
    assert window(policy) == expected
    assert {:ok, policy} = open(path)
    assert %{ngroups: 1, norm_before_gate: false, settings_from: :defaults} = Policy.info!(policy)
    assert window(policy) != expected

    config =
      ~s({"ssm_cfg": {"layer": "Mamba2", "ngroups": 2, "norm_before_gate": true, "dt_limit": [0.0, Infinity]}})

    path = copy(set, folder, %{}, config)
    assert {:ok, policy} = open(path)

    assert %{ngroups: 2, norm_before_gate: true, settings_from: :config, dt_limit_max: nil} =
             Policy.info!(policy)

    assert window(policy) == expected
    assert {:error, %Error{kind: :invalid_argument, message: message}} = open(path, ngroups: 4)
    assert message =~ ":ngroups contradicts the file"

    # transformers' names.
    config =
      ~s({"model_type": "mamba2", "n_groups": 1, "time_step_limit": [0.008, 0.05], "layer_norm_epsilon": 0.001})

    assert {:ok, policy} = open(copy("mamba2_dtlimit", folder, %{}, config), norm_before_gate: false)
    assert_in_delta Policy.info!(policy).dt_limit_max, 0.05, 1.0e-8
    assert window(policy) == window(load("mamba2_dtlimit"))
  end

  test "saved, and loaded again", %{tmp_dir: folder} do
    for set <- @cases do
      policy = load(set)
      path = Path.join(folder, set <> ".safetensors")
      Policy.save!(policy, path)
      saved = Policy.load!(path, backend: :host)
      assert window(saved) == window(policy)
      assert Policy.info!(saved).fingerprint == Policy.info!(policy).fingerprint
    end
  end

  test "what is not supported is named", %{tmp_dir: folder} do
    error = fn path, options ->
      {:error, %Error{message: message}} = open(path, options)
      message
    end

    set = "mamba2_base"
    assert error.(file("mamba3_siso", "policy.safetensors"), []) =~ "is a Mamba-3 policy"
    assert error.(copy(set, folder, %{"d_intermediate" => "64"}), []) =~ "an MLP between its mixers"

    assert error.(copy(set, folder, %{"ngroups" => "3"}), []) =~
             "ngroups is 3, which does not divide"

    assert error.(copy(set, folder, %{"norm_before_gate" => "1"}), []) =~
             "norm_before_gate is \"1\", neither true nor"

    assert error.(copy(set, folder, %{"dt_limit_min" => "x"}), []) =~ "dt_limit_min is \"x\", not a number"

    assert error.(copy(set, folder, %{}), dialect: :edifice_mamba) =~
             ":dialect is not an option of a Mamba-2 policy"

    assert error.(copy(set, folder, %{}, "[1]"), []) =~ "is not a JSON object"
    assert error.(copy(set, folder, %{}, ~s({"rms_norm": false})), []) =~ "LayerNorms between its mixers"
    assert error.(copy(set, folder, %{}, ~s({"n_groups": []})), []) =~ "has for n_groups neither a number"
  end

  test "converting has nothing to do", %{tmp_dir: folder} do
    assert {:error, %Error{message: message}} =
             Checkpoint.convert(
               file("mamba2_base", "policy.safetensors"),
               Path.join(folder, "out.safetensors")
             )

    assert message =~ "has state-spaces' names: there is nothing to convert"
  end
end
