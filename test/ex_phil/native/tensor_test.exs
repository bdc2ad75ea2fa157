defmodule ExPhil.Native.TensorTest do
  # Nx tensors in, Nx tensors out: with the user's Nx where available, else with a substitute of the same interface.
  # Not async: the substitute is a module of the entire VM.
  use ExUnit.Case
  doctest ExPhil.Native.Tensor

  import ExPhil.Native.TestSupport.Numbers
  alias ExPhil.Native.{Error, Policy, SelectiveScan, Tensor}
  alias ExPhil.Native.TestSupport.Policies

  # Only a name, so that this file compiles without Nx.
  @nx Nx

  setup_all do
    if Code.ensure_loaded?(@nx) do
      {:ok, _} = Application.ensure_all_started(:nx)
    else
      modules = "../../support/fake_nx.exs" |> Path.expand(__DIR__) |> Code.compile_file()

      on_exit(fn ->
        for {module, _} <- modules do
          :code.purge(module)
          :code.delete(module)
        end
      end)
    end

    :ok
  end

  @types %{f32: {:f, 32}, f16: {:f, 16}, bf16: {:bf, 16}, c64: {:c, 64}, f64: {:f, 64}}

  defp nx({type, shape, binary}, names \\ nil) do
    options = if names, do: [names: names], else: []
    flat = apply(@nx, :from_binary, [binary, Map.get(@types, type, type)])
    apply(@nx, :reshape, [flat, shape, options])
  end

  defp plain(%{__struct__: Nx.Tensor} = tensor) do
    [type] = for {name, type} <- @types, type == tensor.type, do: name
    {type, tensor.shape, apply(@nx, :to_binary, [tensor])}
  end

  defp problem do
    {uniform(1, {2, 9, 6}, -1.0, 1.0), uniform(2, {2, 9, 6}, 0.1, 0.2), uniform(3, {6, 3}, -1.0, -0.1),
     uniform(4, {2, 9, 3}, -1.0, 1.0), uniform(5, {2, 9, 3}, -1.0, 1.0)}
  end

  test "a scan of Nx tensors is the scan of their binaries, as Nx tensors" do
    {x, dt, a, b, c} = problem()
    options = [backend: :host, return_state: true]
    {y, state} = SelectiveScan.scan(x, dt, a, b, c, options)
    {nx_y, nx_state} = SelectiveScan.scan(nx(x), nx(dt), nx(a), nx(b), nx(c), options)
    assert plain(nx_y) == y
    assert plain(nx_state) == state
  end

  test "the form of the result is the form of x, whatever the others are" do
    {x, dt, a, b, c} = problem()
    y = SelectiveScan.scan(x, nx(dt), a, nx(b), c, backend: :host)
    assert {:f32, {2, 9, 6}, _} = y
    assert plain(SelectiveScan.scan(nx(x), dt, nx(a), b, c, backend: :host)) == y
  end

  test "the names of x are kept on y, but not on the state" do
    {x, dt, a, b, c} = problem()
    names = [:batch, :time, nil]
    {y, state} = SelectiveScan.scan(nx(x, names), dt, a, b, c, return_state: true, backend: :host)
    assert y.names == names
    assert state.names == [nil, nil, nil]
    {_, states} = SelectiveScan.scan_with_states(nx(x, names), dt, a, b, c, backend: :host)
    assert {states.shape, states.names} == {{2, 9, 6, 3}, [nil, nil, nil, nil]}
  end

  test "every Nx type that the scan supports" do
    {x, dt, a, b, c} = problem()

    for {type, convert} <- [f16: &f16/2, bf16: &bf16/2] do
      half = fn {_, shape, _} = tensor -> tensor |> floats() |> convert.(shape) end
      [x, dt, b, c] = Enum.map([x, dt, b, c], half)
      y = SelectiveScan.scan(nx(x), nx(dt), nx(a), nx(b), nx(c), backend: :host)
      assert y.type == @types[type]
      assert plain(y) == SelectiveScan.scan(x, dt, a, b, c, backend: :host)
    end

    complex = fn {:f32, shape, binary} ->
      {:c64, shape, for(<<v::binary-4 <- binary>>, into: <<>>, do: v <> <<0.5::float-32-little>>)}
    end

    [a, b, c] = Enum.map([a, b, c], complex)
    {y, state} = SelectiveScan.scan(nx(x), nx(dt), nx(a), nx(b), nx(c), return_state: true, backend: :host)
    assert {y.type, state.type} == {{:f, 32}, {:c, 64}}
    assert {plain(y), plain(state)} == SelectiveScan.scan(x, dt, a, b, c, return_state: true, backend: :host)
  end

  test "Nx tensors of other numeric types are cast: x to f32, the others to the type of x" do
    integers = fn shape, type ->
      count = shape |> Tuple.to_list() |> Enum.product()

      binary =
        for i <- 1..count, into: <<>> do
          case type do
            {:f, 64} -> <<rem(i, 5) * 1.0::float-64-little>>
            {:s, 32} -> <<rem(i, 5)::signed-32-little>>
            {:u, 8} -> <<rem(i, 5)>>
            :f32 -> <<rem(i, 5) * 1.0::float-32-little>>
          end
        end

      {type, shape, binary}
    end

    shapes = [{2, 3, 4}, {2, 3, 4}, {4, 2}, {2, 3, 2}, {2, 3, 2}]
    [x, dt, a, b, c] = Enum.map(shapes, &integers.(&1, :f32))
    options = [backend: :host, d: integers.({4}, :f32), initial_state: integers.({2, 4, 2}, :f32)]
    expected = SelectiveScan.scan(x, dt, a, b, c, options)
    gradients = SelectiveScan.grad(x, x, dt, a, b, c, options)

    for types <- [[{:f, 64}, {:s, 32}, {:u, 8}], [{:s, 32}, {:u, 8}, {:f, 64}], [{:u, 8}, :f32, {:s, 32}]] do
      cast = fn shape, at -> nx(integers.(shape, Enum.at(types, rem(at, 3)))) end
      [x, dt, a, b, c] = for {shape, at} <- Enum.with_index(shapes), do: cast.(shape, at)
      options = [backend: :host, d: cast.({4}, 1), initial_state: cast.({2, 4, 2}, 2)]
      y = SelectiveScan.scan(x, dt, a, b, c, options)
      assert y.type == {:f, 32}
      assert plain(y) == expected
      cast_gradients = SelectiveScan.grad(x, x, dt, a, b, c, options)
      assert Map.new(cast_gradients, fn {name, tensor} -> {name, plain(tensor)} end) == gradients
    end
  end

  test "a step of Nx tensors" do
    x = uniform(1, {2, 6}, -1.0, 1.0)
    a = uniform(3, {6, 3}, -1.0, -0.1)
    b = uniform(4, {2, 3}, -1.0, 1.0)
    state = uniform(5, {2, 6, 3}, -1.0, 1.0)
    dt = uniform(2, {2, 6}, 0.1, 0.2)

    {y, next} =
      SelectiveScan.step(nx(state), nx(x, [:agent, :channel]), nx(dt), nx(a), nx(b), nx(b), backend: :host)

    assert y.names == [:agent, :channel]
    assert {plain(y), plain(next)} == SelectiveScan.step(state, x, dt, a, b, b, backend: :host)
  end

  test "a policy answers Nx tensors with Nx tensors" do
    model = Policy.load!(Policies.checkpoint(), backend: :host)
    frames = Policies.frames(6)
    obs = {:f32, {13}, row(frames, 0)}
    new = fn -> Policy.new_session!(model) end

    out = Policy.step!(new.(), nx(obs, [:feature]))
    assert {plain(out), out.names} == {Policy.step!(new.(), obs), [nil]}
    outs = Policy.prefill!(new.(), nx(frames, [:time, :feature]))
    assert {plain(outs), outs.names} == {Policy.prefill!(new.(), frames), [:time, nil]}
    {:f32, _, binary} = frames
    windows = {:f32, {2, 3, 13}, binary}
    outs = Policy.window!(model, nx(windows, [:agent, :time, :feature]))
    assert {plain(outs), outs.names} == {Policy.window!(model, windows), [:agent, nil]}
    two = rows(frames, 0, 2)
    outs = Policy.step_batch!([new.(), new.()], nx(two))
    assert plain(outs) == Policy.step_batch!([new.(), new.()], two)
    warm = Policy.new_session!(model, warm_start: nx(frames))
    assert Policy.export_state!(warm) == Policy.export_state!(Policy.new_session!(model, warm_start: frames))
  end

  test "tensors that are refused: other types, vectorized ones" do
    {x, dt, a, b, c} = problem()
    bytes = nx({{:u, 8}, {2}, <<1, 2>>})
    complex = nx({:c64, {6, 3}, :binary.copy(<<0::64>>, 18)})
    error = assert_raise Error, fn -> SelectiveScan.scan(x, dt, a, complex, c, backend: :host) end
    assert error.argument == "b"

    # Only Nx tensors are cast.
    for {name, index} <- [{"x", 0}, {"dt", 1}, {"a", 2}] do
      {:f32, shape, _} = elem({x, dt, a}, index)
      f64 = {:f64, shape, :binary.copy(<<0::64>>, shape |> Tuple.to_list() |> Enum.product())}
      {x, dt, a} = put_elem({x, dt, a}, index, f64)
      error = assert_raise Error, fn -> SelectiveScan.scan(x, dt, a, b, c, backend: :host) end
      assert error.argument == name
    end

    vectorized = %{nx(x) | vectorized_axes: [agent: 4]}
    error = assert_raise Error, fn -> SelectiveScan.scan(vectorized, dt, a, b, c, backend: :host) end
    assert error.message =~ "devectorize"
    session = Policy.new_session!(Policy.load!(Policies.checkpoint(), backend: :host))
    assert {:error, %Error{argument: "obs"}} = Policy.step(session, bytes)
    assert {:error, %Error{argument: "obs"}} = Policy.step(session, vectorized)
  end

  test "Nx is reported where available" do
    assert Tensor.nx?()
    assert is_binary(ExPhil.Native.info().nx)
  end

  test "lists and back, of every type" do
    for type <- [:f64, :f32, :f16, :bf16] do
      list = [[[1.0, -2.5], [0.0, 3.0]], [[0.5, 4.0], [-1.0, 1.5]]]
      assert {^type, {2, 2, 2}, _} = tensor = Tensor.from_list(list, type)
      assert Tensor.to_list(tensor) == list
    end

    for type <- [:s32, :s64],
        do: assert([-1, 0, 7] |> Tensor.from_list(type) |> Tensor.to_list() == [-1, 0, 7])

    assert Tensor.to_list(Tensor.from_list(3, :s32)) == 3
    assert Tensor.from_list([]) == {:f32, {0}, <<>>}
    assert Tensor.to_list({:f32, {2, 0, 3}, <<>>}) == [[], []]
    assert Tensor.to_list({:c64, {1}, <<1.0::float-32-little, -2.0::float-32-little>>}) == [{1.0, -2.0}]
    # bf16 rounds to the nearest, to even in the middle.
    assert Tensor.to_list(Tensor.from_list([1.00390625, 1.01171875, 3.3895e38], :bf16)) == [
             1.0,
             1.015625,
             3.3895313892515355e38
           ]
  end

  test "what is not finite" do
    specials = fn type, bits ->
      Tensor.to_list({type, {3}, for({value, size} <- bits, into: <<>>, do: <<value::little-size(size)>>)})
    end

    expected = [:infinity, :neg_infinity, :nan]
    assert specials.(:f32, [{0x7F800000, 32}, {0xFF800000, 32}, {0x7FC00000, 32}]) == expected

    assert specials.(:f64, [{0x7FF0000000000000, 64}, {0xFFF0000000000000, 64}, {0x7FF0000000000001, 64}]) ==
             expected

    assert specials.(:f16, [{0x7C00, 16}, {0xFC00, 16}, {0xFE00, 16}]) == expected
    assert specials.(:bf16, [{0x7F80, 16}, {0xFF80, 16}, {0x7FC0, 16}]) == expected
  end

  test "lists that are no tensors, and numbers that a type does not hold" do
    refused = fn argument, call -> assert %Error{argument: ^argument} = assert_raise(Error, call) end

    for list <- [[[1], [1, 2]], [1, [2]], [[1], 2], ["a"], :a, [nil]],
        do: refused.("list", fn -> Tensor.from_list(list) end)

    refused.("type", fn -> Tensor.from_list([1], :u8) end)

    for {number, type} <- [
          {1.5, :s32},
          {0x80000000, :s32},
          {0x8000000000000000, :s64},
          {1.0e39, :f32},
          {1.0e5, :f16},
          {3.4e38, :bf16},
          {Integer.pow(10, 400), :f64}
        ],
        do: refused.("list", fn -> Tensor.from_list([number], type) end)

    refused.("tensor", fn -> Tensor.to_list({:f32, {2}, <<0::32>>}) end)
    refused.("tensor", fn -> Tensor.to_list({:u8, {1}, <<0>>}) end)
    refused.("tensor", fn -> Tensor.to_list([1.0]) end)
  end
end
