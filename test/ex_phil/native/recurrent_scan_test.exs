defmodule ExPhil.Native.RecurrentScanTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Error, RecurrentScan, Tensor}
  alias ExPhil.Native.RecurrentScan.Operators

  doctest RecurrentScan

  # {batch, seq, hidden} of every test.
  @sizes {2, 5, 3}

  defp tensor(shape, seed, low \\ -1.0, high \\ 1.0) do
    count = shape |> Tuple.to_list() |> Enum.product()
    state = :rand.seed_s(:exsss, seed)
    {values, _} = Enum.map_reduce(1..count//1, state, fn _, s -> :rand.uniform_s(s) end)
    {:f32, shape, for(v <- values, into: <<>>, do: <<low + v * (high - low)::float-32-little>>)}
  end

  defp numbers({:f32, _, binary}), do: for(<<v::float-32-little <- binary>>, do: v)

  defp inputs(%{gates: gates}, {batch, seq, hidden}) when gates > 1,
    do: [tensor({batch, seq, gates * hidden}, 1), tensor({hidden, gates * hidden}, 2)]

  defp inputs(%{name: :liquid}, shape), do: [tensor(shape, 1, 0.3, 2.0), tensor(shape, 2)]
  defp inputs(row, shape), do: for({_, i} <- Enum.with_index(row.inputs), do: tensor(shape, i + 1))

  defp states(row, {batch, _, hidden}) do
    for {name, i} <- Enum.with_index(row.states), do: {name, tensor({batch, hidden}, 10 + i)}
  end

  defp call(row, inputs, options), do: apply(RecurrentScan, row.name, inputs ++ [options ++ [backend: :host]])

  defp grad(row, dh, inputs, options),
    do: apply(RecurrentScan, :"#{row.name}_grad", [dh | inputs] ++ [options ++ [backend: :host]])

  # The frames [from, from + count) of {batch, seq, n}.
  defp frames({:f32, {batch, seq, n}, binary}, from, count) do
    row = n * 4
    parts = for b <- 0..(batch - 1), do: binary_part(binary, (b * seq + from) * row, count * row)
    {:f32, {batch, count, n}, IO.iodata_to_binary(parts)}
  end

  defp cut(row, [wx, r], from, count) when row.gates > 1, do: [frames(wx, from, count), r]
  defp cut(_row, inputs, from, count), do: Enum.map(inputs, &frames(&1, from, count))

  defp close(out, expected, limit) do
    for {a, b} <- Enum.zip(numbers(out), numbers(expected)), do: assert_in_delta(a, b, limit)
  end

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
      assert {row.name, first} == {row.name, frames(h, 0, 2)}
      assert second == frames(h, 2, 3)
      assert last == state
      final_h = if row.name == :lstm_scan, do: elem(state, 0), else: state
      assert numbers(final_h) == numbers(frames(h, 4, 1))
    end
  end

  test "gradients are those of finite differences, and a key for each operand" do
    for row <- Operators.all() do
      inputs = inputs(row, @sizes)
      given = states(row, @sizes)
      {batch, _, hidden} = @sizes
      dh = tensor(@sizes, 20)
      d_final = for name <- Operators.d_final(row), do: {name, tensor({batch, hidden}, 21)}
      gradients = grad(row, dh, inputs, given ++ d_final)
      assert Enum.sort(Map.keys(gradients)) == Enum.sort(row.inputs ++ row.states)

      loss = fn inputs, given ->
        {h, state} = call(row, inputs, [return_state: true] ++ given)
        finals = if is_tuple(elem(state, 0)), do: Tuple.to_list(state), else: [state]

        [{dh, h} | Enum.zip(Keyword.values(d_final), finals)]
        |> Enum.map(fn {d, out} -> Enum.zip_with(numbers(d), numbers(out), &(&1 * &2)) |> Enum.sum() end)
        |> Enum.sum()
      end

      operands = Enum.zip(row.inputs, inputs) ++ given

      for {name, {:f32, shape, binary} = operand} <- operands, at <- [0, div(byte_size(binary), 8)] do
        bump = fn by ->
          <<before::binary-size(at * 4), v::float-32-little, rest::binary>> = binary
          bumped = {:f32, shape, <<before::binary, v + by::float-32-little, rest::binary>>}
          operands = Keyword.put(operands, name, bumped)
          loss.(Enum.map(row.inputs, &operands[&1]), Enum.map(row.states, &{&1, operands[&1]}))
        end

        difference = (bump.(0.015625) - bump.(-0.015625)) / 0.03125
        assert_in_delta Enum.at(numbers(gradients[name]), at), difference, 2.0e-3, "#{row.name} #{name}"
        assert elem(gradients[name], 1) == elem(operand, 1)
      end
    end
  end

  test "back-propagation through chunks gives the gradient of the whole" do
    for row <- Operators.all() do
      inputs = inputs(row, @sizes)
      given = states(row, @sizes)
      dh = tensor(@sizes, 20)
      whole = grad(row, dh, inputs, given)
      {_, middle} = call(row, cut(row, inputs, 0, 2), [return_state: true] ++ given)
      middle = if row.name == :lstm_scan, do: Tuple.to_list(middle), else: [middle]
      carried = Enum.zip(row.states, middle)
      second = grad(row, frames(dh, 2, 3), cut(row, inputs, 2, 3), carried)
      back = Enum.zip(Operators.d_final(row), Enum.map(row.states, &second[&1]))
      first = grad(row, frames(dh, 0, 2), cut(row, inputs, 0, 2), given ++ back)
      x = hd(row.inputs)
      close(first[x], frames(whole[x], 0, 2), 1.0e-6)
      close(second[x], frames(whole[x], 2, 3), 1.0e-6)
      for state <- row.states, do: close(first[state], whole[state], 1.0e-6)
    end
  end

  test "the results of the operator save computing them again, and change no bit" do
    for row <- Operators.all() do
      inputs = inputs(row, @sizes)
      dh = tensor(@sizes, 20)
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
      dh = tensor({3, 70, 33}, 20)
      on = fn backend -> [backend: backend] ++ given end
      close(call(row, inputs, on.(:cuda)), call(row, inputs, on.(:host)), 1.0e-4)
      of_gpu = grad(row, dh, inputs, on.(:cuda))
      of_cpu = grad(row, dh, inputs, on.(:host))
      assert Map.keys(of_gpu) == Map.keys(of_cpu)
      for {name, gradient} <- of_gpu, do: close(gradient, of_cpu[name], 1.0e-3)
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
    x = tensor(@sizes, 1)
    wx = tensor({2, 5, 9}, 1)
    r = tensor({3, 9}, 2)

    for {argument, call} <- [
          {"r", fn -> RecurrentScan.gru_scan(wx, tensor({3, 8}, 1), backend: :host) end},
          {"wx", fn -> RecurrentScan.gru_scan(tensor({2, 5, 8}, 1), r, backend: :host) end},
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
