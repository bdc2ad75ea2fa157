defmodule ExPhil.Native.Policy.PrecisionTest do
  # Models with rounded weights, through the public calls. The numbers against the float64 reference are in
  # test/c_src/*/policy/precision_test.cpp.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.Policy

  @precisions [:f32, :bf16, :f16, :int8, :tf32x3]

  defp load(backend, precision),
    do: Policy.load!(Policies.checkpoint(), backend: backend, precision: precision)

  backend_test "info says the precision, and the fingerprint depends on it", %{backend: backend} do
    infos = for precision <- @precisions, do: Policy.info!(load(backend, precision))
    assert Enum.map(infos, & &1.precision) == @precisions
    assert infos |> Enum.map(& &1.fingerprint) |> Enum.uniq() |> length() == 5
    [f32, bf16, f16, int8, _tf32x3] = Enum.map(infos, & &1.resident_bytes)
    assert f32 > bf16 and bf16 >= f16 and f16 > int8
    assert Policy.info!(Policy.load!(Policies.checkpoint(), backend: backend)) == hd(infos)
  end

  backend_test "steps, batches and prefill give the same bits in every precision", %{backend: backend} do
    for precision <- @precisions,
        do: same_bits_in_every_call(load(backend, precision), Policies.frames(20))
  end

  backend_test "an answer is near that of f32", %{backend: backend} do
    {:f32, _, frames} = Policies.frames(20)
    [f32 | others] = for p <- @precisions, do: Policy.prefill!(Policy.new_session!(load(backend, p)), frames)

    for {out, limit} <- Enum.zip(others, [2.0e-2, 2.0e-3, 4.0e-2]) do
      error = relative_error(out, f32)
      assert error > 0.0 and error <= limit
    end

    assert relative_error(List.last(others), f32) <= 1.0e-5
  end

  test "a state belongs to one precision" do
    state = Policy.export_state!(Policy.new_session!(load(:host, :f32)))

    assert {:error, %Error{kind: :mismatch}} =
             Policy.import_state(Policy.new_session!(load(:host, :int8)), state)

    model = load(:host, :int8)
    state = Policy.export_state!(Policy.new_session!(model))
    assert {:ok, _} = Policy.import_state(Policy.new_session!(load(:host, :int8)), state)
  end

  test "training and the weights need f32" do
    frames = uniform(7, {1, 3, 13}, -1.0, 1.0)
    d_outs = uniform(8, {1, 3, 7}, -1.0, 1.0)
    weights = Policy.weights!(load(:host, :f32))

    for precision <- [:bf16, :f16, :int8, :tf32x3], model = load(:host, precision) do
      for result <- [
            Policy.grad(model, frames, d_outs),
            Policy.forward(model, frames),
            Policy.weights(model),
            Policy.update(model, weights)
          ] do
        assert {:error, %Error{kind: :unsupported, argument: ":precision"} = error} = result
        assert Exception.message(error) =~ "precision: #{inspect(precision)}"
        assert Exception.message(error) =~ "precision: :f32"
      end

      # The model works on.
      assert {:ok, _} = Policy.step(Policy.new_session!(model), binary_part(elem(frames, 2), 0, 52))
    end
  end

  test "other precisions are refused by the option's name" do
    for bad <- [:f64, :int4, "int8", nil, 8] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":precision"} = error} =
               Policy.load(Policies.checkpoint(), precision: bad)

      assert Exception.message(error) =~ ":f32, :bf16, :f16, :int8, :tf32x3"
      assert {:error, %Error{argument: ":precision"}} = Policy.load(Policies.checkpoint(), precision: bad)
    end
  end

  test "a weight that f16 cannot hold is an error that names its matrix" do
    tensors = Policies.tensors()
    {:f32, shape, <<_::32, rest::binary>>} = tensors["head.weight"]
    large = Map.put(tensors, "head.weight", {:f32, shape, <<1.0e6::float-32-little, rest::binary>>})
    path = Policies.checkpoint_of("large_head", large)

    assert {:error, %Error{kind: :limit_exceeded, argument: ":precision"} = error} =
             Policy.load(path, precision: :f16)

    assert Exception.message(error) =~ "head has the weight"
    assert {:ok, _} = Policy.load(path, precision: :bf16)
  end
end
