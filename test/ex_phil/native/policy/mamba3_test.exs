defmodule ExPhil.Native.Policy.Mamba3Test do
  # Mamba-3 policies of state-spaces/mamba, SISO and MIMO: the recorded policies of mamba23. Every kind of call of every size is in
  # heads_test.cpp of test/c_src/host/policy and mamba3_test.cpp of test/c_src/cuda/policy.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Mixers
  import ExPhil.Native.TestSupport.Numbers, only: [uniform: 4]

  alias ExPhil.Native.{Checkpoint, Error, Policy, Safetensors}

  @moduletag :shared
  @moduletag :tmp_dir

  @cases ~w(mamba3_siso mamba3_mimo mamba3_groups mamba3_siso_norm mamba3_mimo_norm mamba3_real)

  # Apart on the circle, where 0 and 2 pi are one.
  defp angles_apart({:f32, _, found}, {:f64, _, expected}) do
    turn = 2 * :math.pi()
    found = for <<x::float-32-little <- found>>, do: x
    expected = for <<x::float-64-little <- expected>>, do: x
    assert length(found) == length(expected)

    for {x, y} <- Enum.zip(found, expected), reduce: 0.0 do
      most -> max(most, abs(x - y - turn * round((x - y) / turn)))
    end
  end

  for set <- @cases, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend}: a carried state, windows, the state after the last frame" do
      {info, state, golden} = check_answers(unquote(set), backend: unquote(backend))
      assert %{trunk: :mamba3, settings_from: :metadata} = info
      assert Enum.sort(Map.keys(state)) == [:angle, :k, :ssm, :v]
      # Plain f32 adds up to 2e-5 rad over the frames, and k and the state turn with the angles.
      assert angles_apart(state.angle, golden["angle_state"]) < 5.0e-5
      for part <- [:ssm, :k, :v], do: assert(close?(state[part], golden["#{part}_state"], 5.0e-5), "#{part}")
    end
  end

  for set <- @cases -- ["mamba3_real"], backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)
    test "#{set} on #{backend}: gradients", do: check_gradients(unquote(set), backend: unquote(backend))
  end

  for set <- @cases, backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "#{set} on #{backend}: steps, snapshots, rollback, exported states, batches",
      do: check_calls(unquote(set), backend: unquote(backend))
  end

  test "saved, and loaded again", %{tmp_dir: folder} do
    for set <- @cases, do: check_saved(set, folder)
  end

  test "what the shapes say is known without metadata; the floor of A is not", %{tmp_dir: folder} do
    set = "mamba3_groups"
    expected = window(load(set))

    assert %{ngroups: 2, num_rope_angles: 8, is_mimo: false, mimo_rank: nil, a_floor: 0.5} =
             Policy.info!(load(set))

    path = copy(set, folder, %{})
    assert {:ok, policy} = open(path, a_floor: 0.5)
    assert %{ngroups: 2, num_rope_angles: 8, settings_from: :options} = Policy.info!(policy)
    assert window(policy) == expected
    assert {:ok, policy} = open(path)
    assert %{settings_from: :defaults, a_floor: floor} = Policy.info!(policy)
    assert_in_delta floor, 1.0e-4, 1.0e-9
    assert window(policy) != expected

    config =
      ~s({"ssm_cfg": {"layer": "Mamba3", "ngroups": 2, "rope_fraction": 1.0, "A_floor": 0.5, "is_mimo": false}})

    assert {:ok, policy} = open(copy(set, folder, %{}, config))
    assert %{settings_from: :config} = Policy.info!(policy)
    assert window(policy) == expected
    assert {:error, %Error{kind: :invalid_argument, message: message}} = open(path, a_floor: 0.25)
    assert message =~ ":a_floor is 0.25, but the file says 0.5"
    assert {:error, %Error{message: message}} = open(path, a_floor: 0.50000006)
    assert message =~ ":a_floor is 0.50000006, but the file says 0.5"

    assert %{is_mimo: true, mimo_rank: 2, is_outproj_norm: true} = Policy.info!(load("mamba3_mimo_norm"))
  end

  test "converted, a file has what its config.json said", %{tmp_dir: folder} do
    config = ~s({"ssm_cfg": {"layer": "Mamba3", "A_floor": 0.5}})
    from = copy("mamba3_groups", folder, %{}, config)
    to = Path.join([folder, "alone", "policy.safetensors"])
    File.mkdir_p!(Path.dirname(to))
    assert {:ok, %{settings_from: :metadata, a_floor: 0.5}} = Checkpoint.convert(from, to)
    assert Safetensors.metadata!(to)["exphil_native.a_floor"] == "0.5"
    assert window(Policy.load!(to, backend: :host)) == window(load("mamba3_groups"))
    assert {:error, %Error{message: message}} = Checkpoint.convert(to, from)
    assert message =~ "there is nothing to convert"
  end

  test "what contradicts the tensors, or is not supported, is named", %{tmp_dir: folder} do
    error = fn metadata, options ->
      {:error, %Error{message: message}} = open(copy("mamba3_mimo", folder, metadata), options)
      message
    end

    assert error.(%{"ngroups" => "2"}, []) =~ "says that ngroups is 2, but its tensors are those of 1"
    assert error.(%{"rope_fraction" => "1.0"}, []) =~ "says that rope_fraction is 1"

    assert error.(%{"is_mimo" => "false"}, []) =~
             "says that is_mimo is false, but its tensors are those of MIMO"

    assert error.(%{"mimo_rank" => "2"}, []) =~ "says that mimo_rank is 2, but its tensors are those of 4"
    assert error.(%{"is_outproj_norm" => "true"}, []) =~ "those of a layer without norm.weight"
    assert error.(%{"A_floor" => "low"}, []) =~ "A_floor is \"low\", not a number"

    assert error.(%{"mixer" => "mamba2"}, []) =~
             "has the mixer \"mamba2\", but the tensors of a Mamba-3 policy"

    assert error.(%{"d_intermediate" => "64"}, []) =~ "an MLP between its mixers"
    assert error.(%{}, norm_before_gate: true) =~ ":norm_before_gate is not an option of a Mamba-3 policy"
  end

  test "fresh policies play, train and load from their file", %{tmp_dir: folder} do
    sizes = [d_input: 5, d_output: 3, d_model: 12, layers: 2, headdim: 6, d_state: 8, backend: :host]

    for {trunk, own} <- [mamba2: [ngroups: 2, d_conv: 3], mamba3: [ngroups: 2], mamba3: [mimo_rank: 2]] do
      policy = Policy.init!(trunk, sizes ++ own)
      assert %{trunk: ^trunk, num_heads: 4, headdim: 6, d_state: 8} = info = Policy.info!(policy)
      assert info.ngroups == Keyword.get(own, :ngroups, 1)
      {_, _, out} = window(policy)
      assert byte_size(out) == 2 * 3 * 4
      frames = uniform(5, {2, 4, 5}, -1.0, 1.0)

      gradients =
        Policy.grad!(policy, frames, {:f32, {2, 4, 3}, String.duplicate(<<1.0::float-32-little>>, 24)})

      assert gradients |> Map.keys() |> Enum.sort() ==
               policy |> Policy.weights!() |> Map.keys() |> Enum.sort()

      path = Path.join(folder, "fresh.safetensors")
      Policy.save!(policy, path)
      assert window(Policy.load!(path, backend: :host)) == window(policy)
    end

    assert {:error, %Error{message: message}} = Policy.init(:mamba3, Keyword.put(sizes, :headdim, 5))
    assert message =~ ":headdim is 5, which does not divide the 24 channels of a layer"
  end
end
