defmodule ExPhil.Native.SelectiveScan.GradientTest do
  # The gradient of the scan through the public calls: the goldens, types, backward, and bad input of every kind.
  # test/c_src/host/scan/gradient_test.cpp sweeps the host's numbers.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  for name <- Shared.goldens(), name != "long_4096" do
    @tag :shared
    @tag golden: name
    test "golden #{name}", %{golden: name} do
      {tensors, metadata} = Shared.golden(name)
      [dy, x, dt, a, b, c] = Enum.map(~w(dy x dt a b c), &Map.fetch!(tensors, &1))

      given =
        for option <- [:d, :z, :dt_bias, :initial_state],
            tensor = tensors[to_string(option)],
            do: {option, tensor}

      options =
        given ++
          [
            discretization: String.to_existing_atom(metadata["discretization"]),
            dt_softplus: metadata["dt_softplus"] == "true",
            reverse: metadata["reverse"] == "true",
            backend: :host
          ]

      gradients = SelectiveScan.grad(dy, x, dt, a, b, c, options)
      assert Enum.sort(Map.keys(gradients)) == Enum.sort([:x, :dt, :a, :b, :c] ++ Keyword.keys(given))

      for {name, gradient} <- gradients do
        assert relative_error(gradient, Map.fetch!(tensors, "grad_#{name}")) <= 2.0e-5
        assert shape_and_type(gradient) == shape_and_type(Map.fetch!(tensors, to_string(name)))
      end

      {_y, states} = SelectiveScan.scan_with_states(x, dt, a, b, c, options)

      assert SelectiveScan.backward(dy, x, states, dt, a, b, c, options) ==
               {gradients.x, gradients.dt, gradients.b, gradients.c}
    end
  end

  defp shape_and_type({type, shape, _binary}), do: {type, shape}

  setup do
    {:ok,
     good: %{
       dy: uniform(6, {2, 4, 6}, -1.0, 1.0),
       x: uniform(1, {2, 4, 6}, -1.0, 1.0),
       dt: uniform(2, {2, 4, 6}, 0.1, 0.2),
       a: uniform(3, {6, 3}, -1.0, -0.1),
       b: uniform(4, {2, 4, 3}, -1.0, 1.0),
       c: uniform(5, {2, 4, 3}, -1.0, 1.0)
     }}
  end

  defp grad(inputs, options \\ []),
    do:
      SelectiveScan.grad(
        inputs.dy,
        inputs.x,
        inputs.dt,
        inputs.a,
        inputs.b,
        inputs.c,
        Keyword.merge([backend: :host], options)
      )

  test "halves: gradients in the type of x, those of a, d and dt_bias in f32", %{good: good} do
    vector = uniform(8, {6}, 0.0, 0.1)

    for {type, cast, limit} <- [{:f16, &f16/2, 4.0e-3}, {:bf16, &bf16/2, 3.0e-2}] do
      half =
        Map.new(good, fn {name, {_, shape, _} = t} ->
          {name, if(name == :a, do: t, else: cast.(floats(t), shape))}
        end)

      wide = Map.new(half, fn {name, {_, shape, _} = t} -> {name, f32(floats(t), shape)} end)
      gradients = grad(half, d: vector, dt_bias: vector)
      expected = grad(wide, d: vector, dt_bias: vector)

      for {name, {actual, _, _} = gradient} <- gradients do
        assert actual == if(name in [:a, :d, :dt_bias], do: :f32, else: type)
        assert relative_error(gradient, expected[name]) <= limit
      end
    end
  end

  test "the final state's gradient reaches the operands; without steps it is the initial state's", %{
    good: good
  } do
    d_final_state = uniform(7, {2, 6, 3}, -1.0, 1.0)
    refute grad(good, d_final_state: d_final_state) == grad(good)

    empty = fn {_type, shape, _binary} -> {:f32, put_elem(shape, 1, 0), <<>>} end
    none = Map.new(good, fn {name, t} -> {name, if(name == :a, do: t, else: empty.(t))} end)
    zeros = f32(List.duplicate(0.0, 36), {2, 6, 3})
    gradients = grad(none, initial_state: zeros, d_final_state: d_final_state)
    assert gradients.initial_state == d_final_state
    assert gradients.x == {:f32, {2, 0, 6}, <<>>}
    assert Enum.all?(floats(gradients.a), &(&1 == 0.0))
  end

  test "a NaN in one sequence leaves the gradients of the other as they were", %{good: good} do
    {type, shape, <<_::32, rest::binary>>} = good.x
    poisoned = grad(%{good | x: {type, shape, <<0, 0, 0xC0, 0x7F>> <> rest}})
    clean = grad(good)

    for name <- [:x, :dt, :b, :c] do
      {_, _, binary} = poisoned[name]
      {_, _, expected} = clean[name]
      half = div(byte_size(binary), 2)
      assert binary_part(binary, half, half) == binary_part(expected, half, half)
    end
  end

  # Raises, names `argument`, and contains all `words`.
  defp assert_refused(kind \\ :invalid_argument, argument, words, call) do
    error = assert_raise Error, call
    assert {error.kind, error.argument} == {kind, argument}
    for word <- words, do: assert(Exception.message(error) =~ word)
  end

  test "bad tensors name the argument", %{good: good} do
    wrong = uniform(1, {2, 4, 5}, 0.0, 1.0)
    assert_refused("dy", ["{2, 4, 6}", "{2, 4, 5}"], fn -> grad(%{good | dy: wrong}) end)
    assert_refused("dy", ["f16"], fn -> grad(%{good | dy: f16(floats(good.dy), {2, 4, 6})}) end)
    assert_refused("dy", [":no"], fn -> grad(%{good | dy: :no}) end)
    assert_refused("dt", ["{2, 4, 5}"], fn -> grad(%{good | dt: wrong}) end)
    assert_refused(":d_final_state", ["{2, 6, 3}"], fn -> grad(good, d_final_state: good.b) end)
    assert_refused(":d_final_state", ["1.0"], fn -> grad(good, d_final_state: 1.0) end)

    %{dy: dy, x: x, dt: dt, a: a, b: b, c: c} = good
    backward = fn states -> SelectiveScan.backward(dy, x, states, dt, a, b, c, backend: :host) end
    assert_refused("states", ["{2, 4, 6, 3}"], fn -> backward.(uniform(1, {2, 4, 6, 2}, 0.0, 1.0)) end)
    assert_refused("states", ["nil"], fn -> backward.(nil) end)
    {_, states} = SelectiveScan.scan_with_states(x, dt, a, b, c, backend: :host)
    assert {{:f32, {2, 4, 6}, _}, _, _, {:f32, {2, 4, 3}, _}} = backward.(states)
  end

  test "bad options are named", %{good: good} do
    assert_refused(":return_state", ["unknown option"], fn -> grad(good, return_state: true) end)
    assert_refused(":algorithm", ["unknown option"], fn -> grad(good, algorithm: :chunked) end)
    assert_refused(":reverse", ["true or false"], fn -> grad(good, reverse: 1) end)
    assert_refused(":discretization", [":zoh"], fn -> grad(good, discretization: :euler) end)
    assert_refused(":dt_range", ["min"], fn -> grad(good, dt_range: {1.0, 0.0}) end)
  end

  # The device's numbers are swept in test/c_src/cuda/scan/gradient_test.cpp.
  @tag :gpu
  test "CUDA's gradients are the host's", %{good: good} do
    optional = [
      z: uniform(7, {2, 4, 6}, -1.0, 1.0),
      d: uniform(8, {6}, -1.0, 1.0),
      dt_bias: uniform(9, {6}, 0.0, 0.1),
      initial_state: uniform(10, {2, 6, 3}, -1.0, 1.0),
      d_final_state: uniform(11, {2, 6, 3}, -1.0, 1.0),
      dt_softplus: true
    ]

    for options <- [[], [reverse: true, discretization: :foh], optional] do
      on_cuda = grad(good, [backend: :cuda] ++ options)
      on_host = grad(good, [backend: :host] ++ options)
      assert Map.keys(on_cuda) == Map.keys(on_host)

      for {name, gradient} <- on_cuda do
        assert relative_error(gradient, on_host[name]) <= 2.0e-5
        assert shape_and_type(gradient) == shape_and_type(on_host[name])
      end

      {_y, states} =
        SelectiveScan.scan_with_states(
          good.x,
          good.dt,
          good.a,
          good.b,
          good.c,
          [backend: :cuda] ++ Keyword.delete(options, :d_final_state)
        )

      arguments = [good.dy, good.x, states, good.dt, good.a, good.b, good.c, [backend: :cuda] ++ options]
      backward = apply(SelectiveScan, :backward, arguments)

      for {gradient, name} <- Enum.zip(Tuple.to_list(backward), [:x, :dt, :b, :c]) do
        assert relative_error(gradient, on_host[name]) <= 2.0e-5
      end
    end
  end
end
