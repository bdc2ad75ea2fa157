defmodule ExPhil.Native.AssociativeScanTest do
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.AssociativeScan

  doctest ExPhil.Native.AssociativeScan

  defp lists({:f32, _, _} = tensor), do: floats(tensor)
  defp lists({:s32, _, binary}), do: for(<<v::32-signed-little <- binary>>, do: v)
  defp lists({:s64, _, binary}), do: for(<<v::64-signed-little <- binary>>, do: v)

  defp s32(list, shape), do: {:s32, shape, for(v <- list, into: <<>>, do: <<v::32-signed-little>>)}
  defp s64(list, shape), do: {:s64, shape, for(v <- list, into: <<>>, do: <<v::64-signed-little>>)}

  # The sequential definition, in Erlang's floats and integers.
  defp cumulate(list, operation) do
    {out, _} =
      Enum.map_reduce(list, nil, fn v, h ->
        h = if(h == nil, do: v, else: operation.(h, v))
        {h, h}
      end)

    out
  end

  @operations [cumsum: &Kernel.+/2, cumprod: &Kernel.*/2, cummax: &Kernel.max/2, cummin: &Kernel.min/2]

  defp call(name, x, options), do: apply(AssociativeScan, name, [x, options])

  # {outer, length, inner} as lists of sequences and back.
  defp sequences(list, {_outer, length, inner}) do
    for block <- Enum.chunk_every(list, length * inner),
        i <- 0..(inner - 1),
        do: Enum.take_every(Enum.drop(block, i), inner)
  end

  defp unsequence(sequences, {_outer, _length, inner}) do
    sequences
    |> Enum.chunk_every(inner)
    |> Enum.flat_map(&Enum.zip_with(&1, fn column -> column end))
    |> List.flatten()
  end

  backend_test "every operation along every axis, in both directions", %{backend: backend} do
    x = uniform(1, {3, 4, 5}, 0.5, 1.5)

    for {name, operation} <- @operations,
        {axis, view} <- [{0, {1, 3, 20}}, {1, {3, 4, 5}}, {-1, {12, 5, 1}}] do
      forward = x |> floats() |> sequences(view) |> Enum.map(&cumulate(&1, operation)) |> unsequence(view)

      reverse =
        x
        |> floats()
        |> sequences(view)
        |> Enum.map(fn s -> s |> Enum.reverse() |> cumulate(operation) |> Enum.reverse() end)
        |> unsequence(view)

      assert {:f32, {3, 4, 5}, _} = y = call(name, x, axis: axis, backend: backend)
      assert relative_error(y, f32(forward, {3, 4, 5})) <= 1.0e-6
      z = call(name, x, axis: axis, reverse: true, backend: backend)
      assert relative_error(z, f32(reverse, {3, 4, 5})) <= 1.0e-6
      assert {^y, ^z} = AssociativeScan.bidirectional(x, op: name, axis: axis, backend: backend)
    end
  end

  backend_test "the default axis is time", %{backend: backend} do
    x = uniform(1, {2, 6, 3}, -1.0, 1.0)
    assert AssociativeScan.cumsum(x, backend: backend) == AssociativeScan.cumsum(x, axis: 1, backend: backend)
    flat = uniform(1, {6}, -1.0, 1.0)

    assert AssociativeScan.cumsum(flat, backend: backend) ==
             AssociativeScan.cumsum(flat, axis: 0, backend: backend)
  end

  backend_test "integers are exact and wrap around", %{backend: backend} do
    assert lists(AssociativeScan.cumsum(s32([2_147_483_647, 1, -5], {3}), backend: backend)) ==
             [2_147_483_647, -2_147_483_648, 2_147_483_643]

    big = s64([9_223_372_036_854_775_807, 1], {2})

    assert lists(AssociativeScan.cumsum(big, backend: backend)) == [
             9_223_372_036_854_775_807,
             -9_223_372_036_854_775_808
           ]

    assert lists(AssociativeScan.cummax(s64([-3, 7, 2], {3}), backend: backend)) == [-3, 7, 7]
    assert lists(AssociativeScan.cummin(s32([-3, 7, -9], {3, 1}), axis: 0, backend: backend)) == [-3, -3, -9]
  end

  backend_test "linear recurrences, real and complex", %{backend: backend} do
    a = uniform(1, {2, 40, 3}, -1.0, 1.0)
    b = uniform(2, {2, 40, 3}, -1.0, 1.0)
    view = {2, 40, 3}

    expected =
      Enum.zip_with(sequences(floats(a), view), sequences(floats(b), view), fn as, bs ->
        {out, _} = Enum.zip(as, bs) |> Enum.map_reduce(0.0, fn {a, b}, h -> {a * h + b, a * h + b} end)
        out
      end)
      |> unsequence(view)

    h = AssociativeScan.linear_recurrence(a, b, backend: backend)
    assert relative_error(h, f32(expected, view)) <= 1.0e-6

    # A quarter turn each step: 1, 1 + i, i, 0.
    turn = {:c64, {4}, elem(f32([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0], {8}), 2)}
    one = {:c64, {4}, elem(f32([1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0], {8}), 2)}

    assert floats(AssociativeScan.linear_recurrence(turn, one, backend: backend)) == [
             1.0,
             0.0,
             1.0,
             1.0,
             0.0,
             1.0,
             0.0,
             0.0
           ]

    {causal, anti} = AssociativeScan.bidirectional(b, op: :linear_recurrence, a: a, backend: backend)
    assert causal == h
    assert anti == AssociativeScan.linear_recurrence(a, b, reverse: true, backend: backend)
  end

  backend_test "half types accumulate in f32", %{backend: backend} do
    tenths = List.duplicate(0.1, 3000)
    {:f16, {3000}, _} = y = AssociativeScan.cumsum(f16(tenths, {3000}), backend: backend)
    assert_in_delta List.last(floats(y)), 3000 * hd(floats(f16([0.1], {1}))), 0.3
    {:bf16, {3000}, _} = y = AssociativeScan.cumsum(bf16(tenths, {3000}), backend: backend)
    assert_in_delta List.last(floats(y)), 3000 * hd(floats(bf16([0.1], {1}))), 2.0
  end

  backend_test "compensated sums are exact to f32", %{backend: backend} do
    count = 100_000
    x = f32(List.duplicate(0.1, count), {count})
    exact = count * hd(floats(f32([0.1], {1})))
    last = fn tensor -> List.last(floats(tensor)) end

    assert_in_delta last.(AssociativeScan.cumsum(x, compensated: true, backend: backend)),
                    exact,
                    2 * 0.0009765625
  end

  backend_test "block sizes agree up to rounding", %{backend: backend} do
    x = uniform(3, {5000}, -1.0, 1.0)
    y = AssociativeScan.cumsum(x, backend: backend)

    for size <- [32, 256, 8192] do
      assert relative_error(AssociativeScan.cumsum(x, block_size: size, backend: backend), y) <= 1.0e-5
    end
  end

  backend_test "empty tensors give empty tensors", %{backend: backend} do
    for shape <- [{0}, {2, 0}, {2, 0, 3}, {0, 4}] do
      assert AssociativeScan.cumsum(f32([], shape), backend: backend) == {:f32, shape, ""}
    end
  end

  # ---- bad input -------------------------------------------------------------------------------------------

  defp assert_refused(function, kind \\ :invalid_argument, argument, words) do
    error = assert_raise Error, function
    assert error.kind == kind
    assert error.argument == argument
    for word <- words, do: assert(Exception.message(error) =~ word)
  end

  backend_test "bad shapes", %{backend: backend} do
    on = [backend: backend]
    assert_refused(fn -> AssociativeScan.cumsum(f32([1.0], {}), on) end, "x", ["rank 1 to 4", "{}"])
    assert_refused(fn -> AssociativeScan.cumsum(f32([1.0], {1, 1, 1, 1, 1}), on) end, "x", ["rank 1 to 4"])
    assert_refused(fn -> AssociativeScan.cumsum({:f32, {3}, <<0::64>>}, on) end, "x", ["12", "8"])

    assert_refused(
      fn -> AssociativeScan.cumsum({:f32, {4_000_000_000, 4_000_000_000}, ""}, on) end,
      :limit_exceeded,
      "x",
      []
    )

    a = f32([1.0, 2.0], {2})
    assert_refused(fn -> AssociativeScan.linear_recurrence(a, f32([1.0], {1}), on) end, "a", ["{1}", "{2}"])

    assert_refused(fn -> AssociativeScan.linear_recurrence(a, f32([1.0], {1, 1, 1, 1, 1}), on) end, "b", [
      "rank"
    ])

    assert_refused(fn -> AssociativeScan.bidirectional(a, [op: :linear_recurrence] ++ on) end, "a", [
      "needs a"
    ])

    assert_refused(fn -> AssociativeScan.bidirectional(a, [op: :cumsum, a: a] ++ on) end, "a", ["no a"])
    assert_refused(fn -> AssociativeScan.cumsum(:no_tensor, on) end, "x", ["Nx tensor"])
  end

  backend_test "bad axes", %{backend: backend} do
    x = f32([1.0, 2.0], {1, 2})

    for axis <- [2, -3, 100, -100] do
      assert_refused(fn -> AssociativeScan.cumsum(x, axis: axis, backend: backend) end, ":axis", [
        "from -2 to 1",
        "got #{axis}"
      ])
    end

    for axis <- [:time, "1", 1.0] do
      assert_refused(fn -> AssociativeScan.cumsum(x, axis: axis, backend: backend) end, ":axis", [
        inspect(axis)
      ])
    end
  end

  backend_test "bad types", %{backend: backend} do
    on = [backend: backend]
    c64 = {:c64, {1}, <<0::64>>}

    assert_refused(fn -> AssociativeScan.cumsum({:f64, {1}, <<0::64>>}, on) end, :unsupported, "x", [
      "f64",
      "f32"
    ])

    assert_refused(fn -> AssociativeScan.cumprod(s32([1], {1}), on) end, :unsupported, "x", ["cumprod", "s32"])

    assert_refused(fn -> AssociativeScan.cummax(c64, on) end, :unsupported, "x", ["cummax", "c64"])

    assert_refused(
      fn -> AssociativeScan.linear_recurrence(s32([1], {1}), s32([1], {1}), on) end,
      :unsupported,
      "b",
      ["s32"]
    )

    assert_refused(fn -> AssociativeScan.linear_recurrence(c64, f32([1.0], {1}), on) end, "a", ["f32", "c64"])
    assert_refused(fn -> AssociativeScan.cumsum({:u7, {1}, <<0>>}, on) end, "x", ["u7"])
  end

  backend_test "bad options", %{backend: backend} do
    x = f32([1.0, 2.0], {2})

    refused = fn name, options, argument, words ->
      assert_refused(fn -> call(name, x, [backend: backend] ++ options) end, argument, words)
    end

    refused.(:cumsum, [axes: 1], ":axes", ["unknown option", ":axis"])
    refused.(:cumprod, [compensated: true], ":compensated", ["unknown option"])
    refused.(:cumsum, [reverse: 1], ":reverse", ["true or false"])
    refused.(:cumsum, [compensated: :yes], ":compensated", ["true or false"])
    refused.(:bidirectional, [reverse: true], ":reverse", ["unknown option"])
    refused.(:bidirectional, [op: :mean], ":op", [":cumsum"])
    refused.(:bidirectional, [op: :cummax, compensated: true], ":compensated", ["cummax"])
    for size <- [16, 33, 16384, 0, -1, 1.5], do: refused.(:cumsum, [block_size: size], ":block_size", [])

    assert_refused(
      fn -> AssociativeScan.cumsum(s32([1], {1}), compensated: true, backend: backend) end,
      ":compensated",
      ["s32"]
    )

    assert_refused(fn -> AssociativeScan.cumsum(x, backend: :tpu) end, ":backend", [":tpu"])
  end
end
