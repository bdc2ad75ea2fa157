defmodule ExPhil.Native.SelectiveScanTest do
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Properties

  doctest ExPhil.Native.SelectiveScan

  @optional ~w(d z dt_bias initial_state)a

  # ---- the goldens: float64 results of the operator --------------------------------------------------------

  for name <- Shared.goldens() do
    @tag :shared
    @tag golden: name
    backend_test "golden #{name}", %{backend: backend, golden: name} do
      {tensors, metadata} = Shared.golden(name)
      [x, dt, a, b, c] = Enum.map(~w(x dt a b c), &Map.fetch!(tensors, &1))
      options = [backend: backend] ++ golden_options(tensors, metadata)

      {y, final_state} = SelectiveScan.scan(x, dt, a, b, c, [return_state: true] ++ options)
      assert relative_error(y, tensors["y"]) <= 1.0e-5
      assert relative_error(final_state, tensors["final_state"]) <= 1.0e-5
      assert SelectiveScan.scan(x, dt, a, b, c, options) == y

      if states = tensors["states"] do
        {^y, out} = SelectiveScan.scan_with_states(x, dt, a, b, c, options)
        assert relative_error(out, states) <= 1.0e-5
      end
    end
  end

  # Public, because it is unused where the goldens are missing.
  def golden_options(tensors, metadata) do
    given = for name <- @optional, tensor = tensors[to_string(name)], do: {name, tensor}

    given ++
      [
        discretization: String.to_existing_atom(metadata["discretization"]),
        dt_softplus: metadata["dt_softplus"] == "true",
        reverse: metadata["reverse"] == "true"
      ]
  end

  # ---- step, scan and splits -------------------------------------------------------------------------------

  @batch 2
  @dim 5
  @state 3

  defp problem(seq, seed \\ 1) do
    {uniform(seed, {@batch, seq, @dim}, -1.0, 1.0), uniform(seed + 1, {@batch, seq, @dim}, 0.01, 0.3),
     uniform(seed + 2, {@dim, @state}, -3.0, -0.1), uniform(seed + 3, {@batch, seq, @state}, -1.0, 1.0),
     uniform(seed + 4, {@batch, seq, @state}, -1.0, 1.0)}
  end

  # Steps from..from+count-1 of a {batch, seq, n} tensor; without seq where count is :one.
  defp cut({:f32, {batch, seq, n}, binary}, from, count) do
    steps = if count == :one, do: 1, else: count
    rows = for i <- 0..(batch - 1), do: binary_part(binary, 4 * n * (i * seq + from), 4 * n * steps)
    shape = if count == :one, do: {batch, n}, else: {batch, steps, n}
    {:f32, shape, IO.iodata_to_binary(rows)}
  end

  defp zeros, do: f32(List.duplicate(0.0, @batch * @dim * @state), {@batch, @dim, @state})

  backend_test "n steps equal one scan, for every length from 1 to 130", %{backend: backend} do
    {x, dt, a, b, c} = problem(130)
    z = uniform(9, {@batch, 130, @dim}, -2.0, 2.0)
    d = uniform(10, {@dim}, -1.0, 1.0)
    options = [d: d, dt_softplus: true, backend: backend]

    Enum.reduce(0..129, {[], zeros()}, fn t, {ys, state} ->
      one = &cut(&1, t, :one)
      {y, state} = SelectiveScan.step(state, one.(x), one.(dt), a, one.(b), one.(c), [z: one.(z)] ++ options)
      ys = ys ++ [y]
      n = t + 1
      part = &cut(&1, 0, n)

      {scanned, scanned_state} =
        SelectiveScan.scan(
          part.(x),
          part.(dt),
          a,
          part.(b),
          part.(c),
          [z: part.(z), return_state: true] ++ options
        )

      assert relative_error(scanned, interleave(ys)) <= 1.0e-5
      assert relative_error(scanned_state, state) <= 1.0e-5
      {ys, state}
    end)
  end

  # {batch, dim} of each step to {batch, seq, dim}.
  defp interleave(ys) do
    for i <- 0..(@batch - 1),
        {_, _, binary} <- ys,
        into: <<>>,
        do: binary_part(binary, 4 * @dim * i, 4 * @dim)
  end

  backend_test "a scan in two parts equals one scan, wherever it is split", %{backend: backend} do
    {x, dt, a, b, c} = problem(70)
    {y, final} = SelectiveScan.scan(x, dt, a, b, c, return_state: true, backend: backend)

    for at <- 0..70 do
      first = &cut(&1, 0, at)
      second = &cut(&1, at, 70 - at)
      options = [return_state: true, backend: backend]
      {y1, middle} = SelectiveScan.scan(first.(x), first.(dt), a, first.(b), first.(c), options)

      {y2, last} =
        SelectiveScan.scan(
          second.(x),
          second.(dt),
          a,
          second.(b),
          second.(c),
          [initial_state: middle] ++ options
        )

      assert relative_error(join(y1, y2), y) <= 1.0e-5
      assert relative_error(last, final) <= 1.0e-5
    end
  end

  defp join({:f32, {batch, n, dim}, first}, {:f32, {batch, m, dim}, second}) do
    for i <- 0..(batch - 1), into: <<>> do
      binary_part(first, 4 * dim * n * i, 4 * dim * n) <> binary_part(second, 4 * dim * m * i, 4 * dim * m)
    end
  end

  @tag :property
  backend_test "any split into parts equals one scan", %{backend: backend} do
    {x, dt, a, b, c} = problem(200, 50)
    {y, final} = SelectiveScan.scan(x, dt, a, b, c, return_state: true, backend: backend)

    assert_property(list(integer(0, 60)), 40, fn lengths ->
      lengths = fit(lengths, 200)

      {parts, {200, last}} =
        Enum.map_reduce(lengths, {0, zeros()}, fn length, {from, state} ->
          part = &cut(&1, from, length)
          options = [return_state: true, initial_state: state, backend: backend]
          {y, state} = SelectiveScan.scan(part.(x), part.(dt), a, part.(b), part.(c), options)
          {{length, y}, {from + length, state}}
        end)

      full =
        for i <- 0..(@batch - 1),
            {n, {_, _, binary}} <- parts,
            into: <<>>,
            do: binary_part(binary, 4 * @dim * n * i, 4 * @dim * n)

      relative_error(full, y) <= 1.0e-5 and relative_error(last, final) <= 1.0e-5
    end)
  end

  # The lengths, cut or extended so that they sum to `total`.
  defp fit([], total), do: [total]
  defp fit([length | _], total) when length >= total, do: [total]
  defp fit([length | rest], total), do: [length | fit(rest, total - length)]

  backend_test "a sequence's result does not depend on the rest of the batch", %{backend: backend} do
    {x, dt, a, b, c} = problem(33)
    full = SelectiveScan.scan(x, dt, a, b, c, backend: backend)

    second = fn {:f32, {2, seq, n}, binary} ->
      {:f32, {1, seq, n}, binary_part(binary, 4 * n * seq, 4 * n * seq)}
    end

    alone = SelectiveScan.scan(second.(x), second.(dt), a, second.(b), second.(c), backend: backend)
    assert second.(full) == alone
  end

  backend_test "the same call gives the same bits", %{backend: backend} do
    {x, dt, a, b, c} = problem(513)
    first = SelectiveScan.scan(x, dt, a, b, c, backend: backend)
    for _ <- 1..5, do: assert(SelectiveScan.scan(x, dt, a, b, c, backend: backend) == first)
  end

  backend_test "both directions in one launch equal a scan and its reverse", %{backend: backend} do
    {x, dt, a, b, c} = problem(61)
    options = [d: uniform(3, {@dim}, -1.0, 1.0), discretization: :foh, backend: backend]
    {causal, anti_causal} = SelectiveScan.bidirectional(x, dt, a, b, c, options)
    assert relative_error(causal, SelectiveScan.scan(x, dt, a, b, c, options)) <= 1.0e-6

    assert relative_error(anti_causal, SelectiveScan.scan(x, dt, a, b, c, [reverse: true] ++ options)) <=
             1.0e-6
  end

  backend_test "dt is clipped last", %{backend: backend} do
    {x, dt, a, b, c} = problem(20)
    clipped = SelectiveScan.scan(x, dt, a, b, c, dt_range: {0.1, 0.15}, backend: backend)
    by_hand = dt |> floats() |> Enum.map(&min(max(&1, 0.1), 0.15)) |> f32({@batch, 20, @dim})
    assert relative_error(clipped, SelectiveScan.scan(x, by_hand, a, b, c, backend: backend)) <= 1.0e-6
    full = SelectiveScan.scan(x, dt, a, b, c, dt_range: {-1, 1.0e300}, backend: backend)
    assert full == SelectiveScan.scan(x, dt, a, b, c, backend: backend)
  end

  backend_test "half types: y has the type of x and is near the f32 result", %{backend: backend} do
    {x, dt, a, b, c} = problem(40)

    for {convert, type, limit} <- [{&f16/2, :f16, 2.0e-3}, {&bf16/2, :bf16, 1.5e-2}] do
      half = fn {_, shape, _} = tensor -> tensor |> floats() |> convert.(shape) end
      back = fn {_, shape, _} = tensor -> tensor |> floats() |> f32(shape) end
      [hx, hdt, hb, hc] = Enum.map([x, dt, b, c], half)
      {y, state} = SelectiveScan.scan(hx, hdt, a, hb, hc, return_state: true, backend: backend)
      # Against f32 with the same rounded inputs: only the rounding of y differs.
      ref = SelectiveScan.scan(back.(hx), back.(hdt), a, back.(hb), back.(hc), backend: backend)
      assert {^type, {@batch, 40, @dim}, _} = y
      assert {:f32, {@batch, @dim, @state}, _} = state
      assert relative_error(y, ref) <= limit
    end
  end

  backend_test "step takes projections per step, in groups, and constant", %{backend: backend} do
    x = uniform(1, {2, 6}, -1.0, 1.0)
    dt = uniform(2, {2, 6}, 0.1, 0.2)
    a = uniform(3, {6, 4}, -1.0, -0.1)
    state = uniform(4, {2, 6, 4}, -1.0, 1.0)
    {:f32, _, one} = uniform(5, {4}, -1.0, 1.0)
    # The same row in each layout: for each agent, in each of three groups, for each channel.
    layouts = [
      {:f32, {2, 4}, String.duplicate(one, 2)},
      {:f32, {2, 3, 4}, String.duplicate(one, 6)},
      {:f32, {6, 4}, String.duplicate(one, 6)}
    ]

    [first | others] =
      for b <- layouts, c <- layouts, do: SelectiveScan.step(state, x, dt, a, b, c, backend: backend)

    for {y, next} <- others do
      assert relative_error(y, elem(first, 0)) <= 1.0e-6
      assert relative_error(next, elem(first, 1)) <= 1.0e-6
    end
  end

  backend_test "an empty sequence gives an empty result and the state unchanged", %{backend: backend} do
    {x, dt, a, b, c} = problem(0)
    state = uniform(8, {@batch, @dim, @state}, -1.0, 1.0)

    assert SelectiveScan.scan(x, dt, a, b, c, initial_state: state, return_state: true, backend: backend) ==
             {{:f32, {@batch, 0, @dim}, <<>>}, state}

    assert SelectiveScan.scan(x, dt, a, b, c, backend: backend) == {:f32, {@batch, 0, @dim}, <<>>}

    assert {_, {:f32, {@batch, 0, @dim, @state}, <<>>}} =
             SelectiveScan.scan_with_states(x, dt, a, b, c, backend: backend)
  end

  backend_test "inputs may start at any byte", %{backend: backend} do
    {x, dt, a, b, c} = problem(17)

    moved = fn {type, shape, binary} ->
      <<_, rest::binary>> = <<0>> <> binary
      {type, shape, rest}
    end

    [mx, mdt, ma, mb, mc] = Enum.map([x, dt, a, b, c], moved)

    assert SelectiveScan.scan(mx, mdt, ma, mb, mc, backend: backend) ==
             SelectiveScan.scan(x, dt, a, b, c, backend: backend)
  end

  backend_test "large results outlive the call and do not share memory", %{backend: backend} do
    seq = 700
    x = uniform(1, {1, seq, 64}, -1.0, 1.0)
    dt = uniform(2, {1, seq, 64}, 0.1, 0.2)
    a = uniform(3, {64, 4}, -1.0, -0.1)
    b = uniform(4, {1, seq, 4}, -1.0, 1.0)
    expected = SelectiveScan.scan(x, dt, a, b, b, backend: backend)
    copy = :binary.copy(elem(expected, 2))
    results = for _ <- 1..20, do: SelectiveScan.scan(x, dt, a, b, b, backend: backend)
    :erlang.garbage_collect()
    assert Enum.all?(results, &(elem(&1, 2) == copy))
    # Parts of it, sent to another process, keep it alive.
    part = binary_part(elem(hd(results), 2), 1000, 1000)
    assert Task.await(Task.async(fn -> part end), :infinity) == binary_part(copy, 1000, 1000)
  end

  # On a machine with one GPU, or none, that is one device.
  backend_test "all devices together give what one gives", %{backend: backend} do
    for {seq, options} <- [{40, []}, {300, [reverse: true]}, {600, []}] do
      {x, dt, a, b, c} = problem(seq)
      options = [return_state: true, backend: backend] ++ options
      {y, final_state} = SelectiveScan.scan(x, dt, a, b, c, options)
      {all_y, all_final} = SelectiveScan.scan(x, dt, a, b, c, [device: :all] ++ options)
      assert relative_error(all_y, y) <= 1.0e-5
      assert relative_error(all_final, final_state) <= 1.0e-5
      assert SelectiveScan.scan(x, dt, a, b, c, [device: [0]] ++ options) == {y, final_state}

      options = Keyword.delete(options, :return_state)
      gradients = SelectiveScan.grad(x, x, dt, a, b, c, options)
      several = SelectiveScan.grad(x, x, dt, a, b, c, [device: :all] ++ options)
      assert Map.keys(several) == Map.keys(gradients)
      for {name, gradient} <- gradients, do: assert(relative_error(several[name], gradient) <= 2.0e-5)
    end
  end

  test "devices that are none, and calls that take one, are errors" do
    {x, dt, a, b, c} = problem(3)

    for bad <- [[], [0, 0], [:a], -1, :every] do
      assert %Error{argument: ":device"} =
               catch_error(SelectiveScan.scan(x, dt, a, b, c, backend: :host, device: bad))
    end

    error = catch_error(SelectiveScan.scan(x, dt, a, b, c, backend: :host, device: [0, 1]))
    assert %Error{kind: :backend_unavailable, argument: ":device"} = error
    assert Exception.message(error) =~ "only device 0"

    step = [cut(x, 0, :one), cut(dt, 0, :one), a, cut(b, 0, :one), cut(c, 0, :one)]

    assert %Error{argument: ":device"} =
             catch_error(apply(SelectiveScan, :step, [zeros() | step] ++ [[device: :all]]))
  end

  test "availability and the device" do
    assert SelectiveScan.available?()
    assert SelectiveScan.cuda_available?() == ExPhil.Native.cuda_available?()
    assert {:ok, text} = SelectiveScan.device_info()
    assert text =~ ~r/^#{ExPhil.Native.default_backend()}: ./
  end
end
