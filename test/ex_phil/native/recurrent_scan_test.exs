defmodule ExPhil.Native.RecurrentScanTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Error, RecurrentScan, Tensor}
  alias ExPhil.Native.RecurrentScan.Operators

  import ExPhil.Native.TestSupport.Numbers

  doctest RecurrentScan

  # {batch, seq, hidden} of every test.
  @sizes {2, 5, 3}

  defp inputs(%{gates: gates}, {batch, seq, hidden}) when gates > 1,
    do: [uniform(1, {batch, seq, gates * hidden}), uniform(2, {hidden, gates * hidden})]

  defp inputs(%{name: :liquid}, shape), do: [uniform(1, shape, 0.3, 2.0), uniform(2, shape)]
  defp inputs(row, shape), do: for({_, i} <- Enum.with_index(row.inputs), do: uniform(i + 1, shape))

  defp states(row, {batch, _, hidden}) do
    for {name, i} <- Enum.with_index(row.states), do: {name, uniform(10 + i, {batch, hidden})}
  end

  defp call(row, inputs, options), do: apply(RecurrentScan, row.name, inputs ++ [options ++ [backend: :host]])

  defp grad(row, dh, inputs, options),
    do: apply(RecurrentScan, :"#{row.name}_grad", [dh | inputs] ++ [options ++ [backend: :host]])

  defp cut(row, [wx, r], from, count) when row.gates > 1, do: [steps(wx, from, count), r]
  defp cut(_row, inputs, from, count), do: Enum.map(inputs, &steps(&1, from, count))

  test "the last state, and a sequence in two chunks, give the bits of the whole" do
    for row <- Operators.all() do
      inputs = inputs(row, @sizes)
      given = states(row, @sizes)
      {h, state} = call(row, inputs, [return_state: true] ++ given)
      assert call(row, inputs, given) == h
      {first, middle} = call(row, cut(row, inputs, 0, 2), [return_state: true] ++ given)
      middle = if row.name == :lstm_scan, do: Tuple.to_list(middle), else: [middle]
      carried = Enum.zip(row.states, middle)
      {second, last} = call(row, cut(row, inputs, 2, 3), [return_state: true] ++ carried)
      assert {row.name, first} == {row.name, steps(h, 0, 2)}
      assert second == steps(h, 2, 3)
      assert last == state
      final_h = if row.name == :lstm_scan, do: elem(state, 0), else: state
      assert floats(final_h) == floats(steps(h, 4, 1))
    end
  end

  test "gradients are those of finite differences, and a key for each operand" do
    for row <- Operators.all() do
      inputs = inputs(row, @sizes)
      given = states(row, @sizes)
      {batch, _, hidden} = @sizes
      dh = uniform(20, @sizes)
      d_final = for name <- Operators.d_final(row), do: {name, uniform(21, {batch, hidden})}
      gradients = grad(row, dh, inputs, given ++ d_final)
      assert Enum.sort(Map.keys(gradients)) == Enum.sort(row.inputs ++ row.states)

      loss = fn operands ->
        {inputs, given} = Keyword.split(operands, row.inputs)
        {h, state} = call(row, Keyword.values(inputs), [return_state: true] ++ given)
        finals = if is_tuple(elem(state, 0)), do: Tuple.to_list(state), else: [state]

        for {d, out} <- [{dh, h} | Enum.zip(Keyword.values(d_final), finals)],
            reduce: 0.0,
            do: (sum -> sum + dot(d, out))
      end

      operands = Enum.zip(row.inputs, inputs) ++ given

      for {name, {:f32, shape, binary}} <- operands, at <- [0, div(byte_size(binary), 8)] do
        difference = difference(operands, name, at, loss)
        assert_in_delta Enum.at(floats(gradients[name]), at), difference, 2.0e-3, "#{row.name} #{name}"
        assert elem(gradients[name], 1) == shape
      end
    end
  end

  test "back-propagation through chunks gives the gradient of the whole" do
    for row <- Operators.all() do
      inputs = inputs(row, @sizes)
      given = states(row, @sizes)
      dh = uniform(20, @sizes)
      whole = grad(row, dh, inputs, given)
      {_, middle} = call(row, cut(row, inputs, 0, 2), [return_state: true] ++ given)
      middle = if row.name == :lstm_scan, do: Tuple.to_list(middle), else: [middle]
      carried = Enum.zip(row.states, middle)
      second = grad(row, steps(dh, 2, 3), cut(row, inputs, 2, 3), carried)
      back = Enum.zip(Operators.d_final(row), Enum.map(row.states, &second[&1]))
      first = grad(row, steps(dh, 0, 2), cut(row, inputs, 0, 2), given ++ back)
      x = hd(row.inputs)
      assert_close(first[x], steps(whole[x], 0, 2), 1.0e-6)
      assert_close(second[x], steps(whole[x], 2, 3), 1.0e-6)
      for state <- row.states, do: assert_close(first[state], whole[state], 1.0e-6)
    end
  end

  test "the results of the operator save computing them again, and change no bit" do
    for row <- Operators.all() do
      inputs = inputs(row, @sizes)
      dh = uniform(20, @sizes)
      assert grad(row, dh, inputs, h: call(row, inputs, [])) == grad(row, dh, inputs, [])
    end
  end

  test "large calls are queued, and give the same bits" do
    row = Operators.fetch!(:mingru)
    big = inputs(row, {64, 60, 64})
    h = call(row, big, [])

    small =
      Enum.map(big, fn {type, {_, seq, n}, binary} ->
        {type, {1, seq, n}, binary_part(binary, 0, seq * n * 4)}
      end)

    {:f32, _, first} = call(row, small, [])
    assert binary_part(elem(h, 2), 0, byte_size(first)) == first
  end

  @tag :gpu
  test "the GPU's results are those of the CPU, within rounding" do
    for row <- Operators.all() do
      inputs = inputs(row, {3, 70, 33})
      given = states(row, {3, 70, 33})
      dh = uniform(20, {3, 70, 33})
      on = fn backend -> [backend: backend] ++ given end
      assert_close(call(row, inputs, on.(:cuda)), call(row, inputs, on.(:host)), 1.0e-4)
      of_gpu = grad(row, dh, inputs, on.(:cuda))
      of_cpu = grad(row, dh, inputs, on.(:host))
      assert Map.keys(of_gpu) == Map.keys(of_cpu)
      for {name, gradient} <- of_gpu, do: assert_close(gradient, of_cpu[name], 1.0e-3)
    end
  end

  test "halves keep their type" do
    for type <- [:f16, :bf16] do
      z = Tensor.from_list([[[0.0], [1.0]]], type)
      assert {^type, {1, 2, 1}, _} = RecurrentScan.mingru(z, z, backend: :host)
      gradients = RecurrentScan.mingru_grad(z, z, z, backend: :host)
      assert {^type, {1, 2, 1}, _} = gradients.candidates
    end
  end

  test "bad calls name the argument" do
    x = uniform(1, @sizes)
    wx = uniform(1, {2, 5, 9})
    r = uniform(2, {3, 9})

    for {argument, call} <- [
          {"r", fn -> RecurrentScan.gru_scan(wx, uniform(1, {3, 8}), backend: :host) end},
          {"wx", fn -> RecurrentScan.gru_scan(uniform(1, {2, 5, 8}), r, backend: :host) end},
          {"wx", fn -> RecurrentScan.lstm_scan(wx, r, backend: :host) end},
          {":h0", fn -> RecurrentScan.gru_scan(wx, r, h0: x, backend: :host) end},
          {":c0", fn -> RecurrentScan.gru_scan(wx, r, c0: x, backend: :host) end},
          {":activated", fn -> RecurrentScan.gru_scan(wx, r, activated: true, backend: :host) end},
          {":activated", fn -> RecurrentScan.mingru(x, x, activated: 1, backend: :host) end},
          {"candidates", fn -> RecurrentScan.mingru(x, wx, backend: :host) end},
          {"candidates", fn -> RecurrentScan.minlstm(x, x, {:f16, {1, 1, 1}, <<0, 0>>}, backend: :host) end},
          {"gates", fn -> RecurrentScan.mingru({:s32, {1, 1, 1}, <<0::32>>}, x, backend: :host) end},
          {"dh", fn -> RecurrentScan.mingru_grad(wx, x, x, backend: :host) end},
          {"dh", fn -> RecurrentScan.mingru_grad(nil, x, x, backend: :host) end},
          {":d_final_h", fn -> RecurrentScan.mingru_grad(x, x, x, d_final_h: x, backend: :host) end},
          {":h", fn -> RecurrentScan.mingru_grad(x, x, x, h: wx, backend: :host) end}
        ] do
      error = assert_raise Error, call
      assert {error.argument, error.message} |> elem(0) == argument, error.message
    end
  end
end
