defmodule ExPhil.Native.StateSpaceDualityTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Error, SelectiveScan, StateSpaceDuality, Tensor}

  import ExPhil.Native.TestSupport.Numbers

  doctest StateSpaceDuality

  # batch, seq, heads, headdim, groups, state
  @sizes {2, 6, 4, 3, 2, 5}

  defp inputs({batch, seq, heads, headdim, groups, state}) do
    [
      x: uniform(1, {batch, seq, heads, headdim}),
      dt: uniform(2, {batch, seq, heads}, -2.0, 1.0),
      a: uniform(3, {heads}, -2.0, -0.1),
      b: uniform(4, {batch, seq, groups, state}),
      c: uniform(5, {batch, seq, groups, state})
    ]
  end

  defp optional({batch, seq, heads, headdim, _groups, state}) do
    [
      d: uniform(6, {heads}),
      z: uniform(7, {batch, seq, heads, headdim}),
      dt_bias: uniform(8, {heads}),
      initial_state: uniform(9, {batch, heads, headdim, state})
    ]
  end

  defp scan(inputs, options) do
    [x, dt, a, b, c] = Keyword.values(inputs)
    StateSpaceDuality.scan(x, dt, a, b, c, [dt_softplus: true, backend: :host] ++ options)
  end

  defp grad(dy, inputs, options) do
    [x, dt, a, b, c] = Keyword.values(inputs)
    StateSpaceDuality.grad(dy, x, dt, a, b, c, [dt_softplus: true, backend: :host] ++ options)
  end

  # The steps [from, from + count) of the tensors that have them.
  defp cut(named, from, count) do
    for {name, tensor} <- named,
        do: {name, if(name in [:x, :dt, :b, :c, :z], do: steps(tensor, from, count), else: tensor)}
  end

  test "the last state, and a sequence in two parts, give the bits of the whole" do
    {inputs, given} = {inputs(@sizes), optional(@sizes)}
    {y, last} = scan(inputs, [return_state: true] ++ given)
    assert scan(inputs, given) == y
    assert elem(y, 1) == {2, 6, 4, 3}
    assert elem(last, 1) == {2, 4, 3, 5}
    {first, middle} = scan(cut(inputs, 0, 2), [return_state: true] ++ cut(given, 0, 2))
    given = Keyword.put(given, :initial_state, middle)
    {second, end_state} = scan(cut(inputs, 2, 4), [return_state: true] ++ cut(given, 2, 4))
    assert first == steps(y, 0, 2)
    assert second == steps(y, 2, 4)
    assert end_state == last
  end

  test "it is the selective scan whose channels of a head share dt and a" do
    {batch, seq, heads, headdim, _groups, state} = @sizes
    inputs = inputs(@sizes)
    dim = heads * headdim
    {:f32, _, x} = inputs[:x]

    repeat = fn {:f32, _, binary}, times, shape ->
      {:f32, shape, for(<<v::binary-size(4) <- binary>>, into: <<>>, do: String.duplicate(v, times))}
    end

    {:f32, _, y} =
      SelectiveScan.scan(
        {:f32, {batch, seq, dim}, x},
        repeat.(inputs[:dt], headdim, {batch, seq, dim}),
        repeat.(inputs[:a], headdim * state, {dim, state}),
        inputs[:b],
        inputs[:c],
        dt_softplus: true,
        dt_range: {0.2, 0.9},
        backend: :host
      )

    assert_close(scan(inputs, dt_range: {0.2, 0.9}), {:f32, {batch, seq, heads, headdim}, y}, 1.0e-5)
  end

  test "gradients are those of finite differences, and a key for each operand" do
    {inputs, given} = {inputs(@sizes), optional(@sizes)}
    {batch, seq, heads, headdim, _groups, state} = @sizes
    dy = uniform(20, {batch, seq, heads, headdim})
    d_final = uniform(21, {batch, heads, headdim, state})
    gradients = grad(dy, inputs, [d_final_state: d_final] ++ given)
    operands = inputs ++ given
    assert Enum.sort(Map.keys(gradients)) == Enum.sort(Keyword.keys(operands))

    loss = fn operands ->
      {inputs, given} = Keyword.split(operands, [:x, :dt, :a, :b, :c])
      {y, last} = scan(inputs, [return_state: true] ++ given)

      dot(dy, y) + dot(d_final, last)
    end

    for {name, {:f32, shape, binary}} <- operands, at <- [0, div(byte_size(binary), 8)] do
      difference = difference(operands, name, at, loss)
      assert_in_delta Enum.at(floats(gradients[name]), at), difference, 4.0e-3, "#{name}"
      assert elem(gradients[name], 1) == shape
    end
  end

  test "back-propagation through parts gives the gradient of the whole" do
    {inputs, given} = {inputs(@sizes), optional(@sizes)}
    dy = uniform(20, {2, 6, 4, 3})
    whole = grad(dy, inputs, given)
    {_, middle} = scan(cut(inputs, 0, 2), [return_state: true] ++ cut(given, 0, 2))
    later = given |> Keyword.put(:initial_state, middle) |> cut(2, 4)
    second = grad(steps(dy, 2, 4), cut(inputs, 2, 4), later)

    first =
      grad(steps(dy, 0, 2), cut(inputs, 0, 2), [d_final_state: second.initial_state] ++ cut(given, 0, 2))

    for name <- [:x, :dt, :b, :c, :z] do
      assert_close(first[name], steps(whole[name], 0, 2), 1.0e-5)
      assert_close(second[name], steps(whole[name], 2, 4), 1.0e-5)
    end

    assert_close(first.initial_state, whole.initial_state, 1.0e-5)
  end

  test "large calls are queued, and a sequence has the same bits in them" do
    sizes = {32, 60, 8, 32, 1, 64}
    inputs = inputs(sizes)
    y = scan(inputs, [])

    alone =
      for {name, {:f32, shape, binary}} <- inputs do
        size = div(byte_size(binary), 32)

        if name == :a,
          do: {name, inputs[:a]},
          else: {name, {:f32, put_elem(shape, 0, 1), binary_part(binary, 0, size)}}
      end

    {:f32, _, first} = scan(alone, [])
    assert binary_part(elem(y, 2), 0, byte_size(first)) == first
  end

  @tag :gpu
  test "the GPU's results are those of the CPU, within rounding" do
    for sizes <- [@sizes, {3, 70, 6, 40, 2, 128}] do
      {inputs, given} = {inputs(sizes), optional(sizes)}
      on = fn backend -> [backend: backend] ++ given end
      options = &Keyword.merge([dt_softplus: true, return_state: true], on.(&1))
      run = fn backend -> apply(StateSpaceDuality, :scan, Keyword.values(inputs) ++ [options.(backend)]) end
      {{y, last}, {expected, last_expected}} = {run.(:cuda), run.(:host)}
      assert_close(y, expected, 1.0e-4)
      assert_close(last, last_expected, 1.0e-4)

      back = fn backend ->
        options = Keyword.delete(options.(backend), :return_state)
        apply(StateSpaceDuality, :grad, [uniform(20, elem(y, 1)) | Keyword.values(inputs)] ++ [options])
      end

      {of_gpu, of_cpu} = {back.(:cuda), back.(:host)}
      assert Map.keys(of_gpu) == Map.keys(of_cpu)
      for {name, gradient} <- of_gpu, do: assert_close(gradient, of_cpu[name], 2.0e-3)
    end
  end

  test "halves keep their type, and states are f32" do
    for type <- [:f16, :bf16] do
      x = Tensor.from_list([[[[0.5]], [[1.0]]]], type)
      dt = Tensor.from_list([[[0.5], [1.0]]], type)
      a = Tensor.from_list([-1.0])
      {y, state} = StateSpaceDuality.scan(x, dt, a, x, x, return_state: true, backend: :host)
      assert {^type, {1, 2, 1, 1}, _} = y
      assert {:f32, {1, 1, 1, 1}, _} = state
      gradients = StateSpaceDuality.grad(x, x, dt, a, x, x, backend: :host)
      assert {^type, {1, 2, 1}, _} = gradients.dt
      assert {:f32, {1}, _} = gradients.a
    end
  end

  test "bad calls name the argument" do
    inputs = inputs(@sizes)
    half = {:f16, {1}, <<0, 0>>}
    x = inputs[:x]

    for {argument, call} <- [
          {"x", fn -> scan(Keyword.put(inputs, :x, inputs[:dt]), []) end},
          {"x", fn -> scan(Keyword.put(inputs, :x, :no_tensor), []) end},
          {"dt", fn -> scan(Keyword.replace!(inputs, :dt, x), []) end},
          {"a", fn -> scan(Keyword.replace!(inputs, :a, half), []) end},
          {"a", fn -> scan(Keyword.replace!(inputs, :a, nil), []) end},
          {"b", fn -> scan(Keyword.replace!(inputs, :b, uniform(1, {2, 6, 3, 5})), []) end},
          {"c", fn -> scan(Keyword.replace!(inputs, :c, uniform(1, {2, 6, 2, 4})), []) end},
          {":d", fn -> scan(inputs, d: uniform(1, {3})) end},
          {":z", fn -> scan(inputs, z: inputs[:dt]) end},
          {":dt_bias", fn -> scan(inputs, dt_bias: uniform(1, {2})) end},
          {":initial_state", fn -> scan(inputs, initial_state: uniform(1, {2, 4, 5, 3})) end},
          {":dt_range", fn -> scan(inputs, dt_range: {1.0, 0.5}) end},
          {":dt_softplus", fn -> StateSpaceDuality.scan(x, x, x, x, x, dt_softplus: 1) end},
          {":return_state", fn -> grad(x, inputs, return_state: true) end},
          {":discretization", fn -> scan(inputs, discretization: :zoh) end},
          {"dy", fn -> grad(inputs[:dt], inputs, []) end},
          {"dy", fn -> grad(nil, inputs, []) end},
          {":d_final_state", fn -> grad(x, inputs, d_final_state: x) end}
        ] do
      error = assert_raise Error, call
      assert {error.argument, error.message} |> elem(0) == argument, error.message
    end
  end
end
