defmodule ExPhil.Native.Policy.Mamba2Test do
  # Mamba-2 policies of state-spaces/mamba, as a user loads and plays them: the recorded policies of mamba23. Every kind of call of
  # every size is in heads_test.cpp of test/c_src/host/policy and test/c_src/cuda/policy.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Mixers

  alias ExPhil.Native.{Checkpoint, Error, Policy}

  @moduletag :shared
  @moduletag :tmp_dir

  # The option that decides what the shapes leave open, and what the layers are.
  @cases ~w(mamba2_base mamba2_grouped mamba2_grouped_small mamba2_nonorm mamba2_dtlimit mamba2_dssm mamba2_real)
  @with_gradients @cases -- ~w(mamba2_grouped mamba2_real)

  for set <- @cases, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend}: a carried state, windows, the state after the last frame" do
      {info, state, golden} = check_answers(unquote(set), backend: unquote(backend))
      assert %{trunk: :mamba2, settings_from: :metadata} = info
      assert close?(state.ssm, golden["ssm_state"])
      assert close?(state.conv, golden["conv_state"])
    end
  end

  for set <- @with_gradients, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)
    test "#{set} on #{backend}: gradients", do: check_gradients(unquote(set), backend: unquote(backend))
  end

  for set <- @cases, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend}: steps, snapshots, rollback, exported states, batches",
      do: check_calls(unquote(set), backend: unquote(backend))
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
    assert message =~ ":ngroups is 4, but the file says 2"

    # transformers' names.
    config =
      ~s({"model_type": "mamba2", "n_groups": 1, "time_step_limit": [0.008, 0.05], "layer_norm_epsilon": 0.001})

    assert {:ok, policy} = open(copy("mamba2_dtlimit", folder, %{}, config), norm_before_gate: false)
    assert_in_delta Policy.info!(policy).dt_limit_max, 0.05, 1.0e-8
    assert window(policy) == window(load("mamba2_dtlimit"))
  end

  test "bounds of dt by an option; converted, the file has them", %{tmp_dir: folder} do
    set = "mamba2_dtlimit"
    expected = window(load(set))
    from = copy(set, folder, %{"norm_epsilon" => "0.001", "ngroups" => "1"})
    bounds = [dt_limit: {0.008, 0.05}]
    assert {:ok, policy} = open(from, bounds)
    assert window(policy) == expected
    assert {:ok, policy} = open(from, dt_limit: {0, :infinity})
    assert window(policy) != expected
    to = Path.join(folder, "converted.safetensors")
    assert {:ok, %{settings_from: :metadata}} = Checkpoint.convert(from, to, bounds)
    assert window(Policy.load!(to, backend: :host)) == expected
    assert {:error, %Error{kind: :invalid_argument, message: message}} = open(to, dt_limit: {0.008, 0.06})
    assert message =~ ":dt_limit is 0.06, but the file says 0.05"

    for bad <- [{0.05, 0.008}, {-1, 1}, 0.05, {0, nil}],
        do: assert({:error, %Error{argument: ":dt_limit"}} = open(from, dt_limit: bad))
  end

  test "saved, and loaded again", %{tmp_dir: folder} do
    for set <- @cases, do: check_saved(set, folder)
  end

  test "what is not supported is named", %{tmp_dir: folder} do
    error = fn path, options ->
      {:error, %Error{message: message}} = open(path, options)
      message
    end

    set = "mamba2_base"
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
