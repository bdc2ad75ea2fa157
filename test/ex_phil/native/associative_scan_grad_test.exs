defmodule ExPhil.Native.AssociativeScan.GradTest do
  # The gradients of associative scans through the public call. Every type and shape is swept in
  # test/c_src/core/associative/gradient_test.cpp.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.AssociativeScan

  @operations [:cumsum, :cumprod, :cummax, :cummin]

  # <dy, y> by central differences of x, whose elements are far enough apart for the extrema not to change.
  defp differences(x, loss) do
    {type, shape, _} = x
    list = floats(x)

    for i <- 0..(length(list) - 1) do
      at = fn step -> loss.(f32(List.update_at(list, i, &(&1 + step)), shape)) end
      true = type == :f32
      (at.(0.0078125) - at.(-0.0078125)) / 0.015625
    end
  end

  backend_test "agree with differences along every axis, in every direction", %{backend: backend} do
    x = uniform(1, {2, 3, 4}, 0.5, 1.5)
    {dy, dz} = {uniform(2, {2, 3, 4}, -1.0, 1.0), uniform(3, {2, 3, 4}, -1.0, 1.0)}

    for op <- @operations, axis <- 0..2, reverse <- [false, true] do
      options = [axis: axis, reverse: reverse, backend: backend]
      expected = differences(x, &dot(dy, apply(AssociativeScan, op, [&1, options])))
      gradient = AssociativeScan.grad(op, dy, x, options)
      assert {:f32, {2, 3, 4}, _} = gradient
      assert relative_error(gradient, f32(expected, {2, 3, 4})) <= 1.0e-3
    end

    for op <- @operations do
      loss = fn x ->
        {y, z} = AssociativeScan.bidirectional(x, op: op, backend: backend)
        dot(dy, y) + dot(dz, z)
      end

      gradient = AssociativeScan.grad(op, {dy, dz}, x, bidirectional: true, backend: backend)
      assert relative_error(gradient, f32(differences(x, loss), {2, 3, 4})) <= 1.0e-3
    end
  end

  backend_test "of the linear recurrence", %{backend: backend} do
    {a, b} = {uniform(1, {2, 5}, 0.5, 0.9), uniform(2, {2, 5}, -1.0, 1.0)}
    dy = uniform(3, {2, 5}, -1.0, 1.0)
    {da, db} = AssociativeScan.grad(:linear_recurrence, dy, a, b, backend: backend)
    loss = fn a, b -> dot(dy, AssociativeScan.linear_recurrence(a, b, backend: backend)) end
    assert relative_error(da, f32(differences(a, &loss.(&1, b)), {2, 5})) <= 1.0e-3
    assert relative_error(db, f32(differences(b, &loss.(a, &1)), {2, 5})) <= 1.0e-3
  end

  test "bad arguments are refused by name" do
    x = f32([1.0, 2.0], {2})
    on_host = fn op, dy, x, options -> AssociativeScan.grad(op, dy, x, [backend: :host] ++ options) end

    for {argument, call} <- [
          {":op", fn -> on_host.(:product, x, x, []) end},
          {"dy", fn -> on_host.(:cumsum, f32([1.0], {1}), x, []) end},
          {"dy", fn -> on_host.(:cumsum, f16([1.0, 2.0], {2}), x, []) end},
          {"dy", fn -> on_host.(:cumsum, {x, x}, x, []) end},
          {"dy", fn -> on_host.(:cumsum, x, x, bidirectional: true) end},
          {"dy_reverse", fn -> on_host.(:cumsum, {x, 1}, x, bidirectional: true) end},
          {":reverse", fn -> on_host.(:cumsum, {x, x}, x, bidirectional: true, reverse: true) end},
          {":axis", fn -> on_host.(:cumsum, x, x, axis: 1) end},
          {":compensated", fn -> on_host.(:cumprod, x, x, compensated: true) end},
          {":causal", fn -> on_host.(:cumsum, x, x, causal: true) end},
          {"b", fn -> AssociativeScan.grad(:linear_recurrence, x, x) end},
          {"a", fn -> AssociativeScan.grad(:linear_recurrence, x, nil, x, backend: :host) end},
          {"x", fn -> on_host.(:cumsum, {:s32, {2}, <<0::64>>}, {:s32, {2}, <<0::64>>}, []) end}
        ] do
      assert %Error{argument: ^argument} = assert_raise(Error, call)
    end
  end
end
