defmodule ExPhil.Native.LossTest do
  use ExUnit.Case, async: true
  doctest ExPhil.Native.Loss

  import ExPhil.Native.TestSupport.Numbers
  alias ExPhil.Native.{Error, Loss}

  @groups [{:main, 0..2}, {:buttons, 3..4, :binary}, {:trigger, 6..7}]

  defp targets(rows),
    do: {:s32, {length(rows), 4}, for(v <- List.flatten(rows), into: <<>>, do: <<v::signed-32-little>>)}

  defp f64(shape, list), do: {:f64, shape, for(v <- list, into: <<>>, do: <<v::float-64-little>>)}

  defp outs, do: 1 |> uniform({3, 8}, -2.0, 2.0) |> floats()

  test "d_outs is the slope of the loss" do
    targets = targets([[0, 1, 0, 1], [2, 0, 0, 0], [-1, 1, -1, 1]])
    loss = fn list -> Loss.cross_entropy(f64({3, 8}, list), targets, @groups) end
    slopes = floats(loss.(outs()).d_outs)
    squares = f64({3, 8}, List.duplicate(0.25, 24))
    mse = fn list -> Loss.mean_squared_error(f64({3, 8}, list), squares) end
    mse_slopes = floats(mse.(outs()).d_outs)

    for i <- 0..23 do
      at = fn call, distance -> call.(List.update_at(outs(), i, &(&1 + distance))).loss end
      slope = fn call -> (at.(call, 1.0e-5) - at.(call, -1.0e-5)) / 2.0e-5 end
      assert_in_delta slope.(loss), Enum.at(slopes, i), 1.0e-8
      assert_in_delta slope.(mse), Enum.at(mse_slopes, i), 1.0e-8
    end

    # Output 5 belongs to no group; the last row's main stick and second button are left out.
    assert Enum.at(slopes, 5) == 0.0
    assert Enum.slice(slopes, 16, 3) == [0.0, 0.0, 0.0] and Enum.at(slopes, 20) == 0.0
  end

  test "losses are of each group, and correct is the share of targets met" do
    outs = f64({2, 8}, [9.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, 5.0, 0.0, 9.0, 0.0, -1.0, -1.0, 0.0, 5.0, 0.0])
    loss = Loss.cross_entropy(outs, targets([[0, 1, 1, 1], [0, 0, 0, 1]]), @groups)
    assert loss.correct == %{main: 0.5, buttons: 0.75, trigger: 0.5}
    assert_in_delta loss.loss, loss.losses |> Map.values() |> Enum.sum(), 1.0e-12
    assert loss.losses.main > 4.0
  end

  test "bad arguments are errors that name them" do
    outs = uniform(1, {3, 8}, -1.0, 1.0)
    targets = targets([[0, 1, 0, 1], [2, 0, 0, 0], [0, 1, 0, 1]])
    refused = fn argument, call -> assert %Error{argument: ^argument} = assert_raise(Error, call) end
    refused.("targets", fn -> Loss.cross_entropy(outs, targets([[0, 1, 0, 1]]), @groups) end)
    refused.("targets", fn -> Loss.cross_entropy(outs, targets(List.duplicate([3, 0, 0, 0], 3)), @groups) end)
    refused.("targets", fn -> Loss.cross_entropy(outs, targets(List.duplicate([0, 2, 0, 0], 3)), @groups) end)

    refused.("groups", fn ->
      Loss.cross_entropy(outs, targets, [{:a, 0..2}, {:b, 2..4}, {:c, 5..6}, {:d, 7..7}])
    end)

    refused.("groups", fn ->
      Loss.cross_entropy(outs, targets, [{:a, 0..0}, {:b, 1..1}, {:c, 2..2}, {:d, 7..8}])
    end)

    refused.("groups", fn -> Loss.cross_entropy(outs, targets, main: 3) end)

    # The result has room for one loss of a name.
    refused.("groups", fn ->
      Loss.cross_entropy(outs, targets, [{:main, 0..2}, {:buttons, 3..4, :binary}, {:main, 6..7}])
    end)

    refused.("outs", fn -> Loss.cross_entropy({:f16, {1, 2}, <<0::32>>}, targets, @groups) end)
    refused.("targets", fn -> Loss.mean_squared_error(outs, uniform(1, {8, 3}, -1.0, 1.0)) end)
    nan = {:f32, {1, 8}, :binary.copy(<<0, 0, 192, 127>>, 8)}
    refused.("outs", fn -> Loss.cross_entropy(nan, targets([[0, 1, 0, 1]]), @groups) end)
  end

  test "a masked row counts for nothing, not for the mean either" do
    targets = targets([[0, 1, 0, 1], [2, 0, 0, 0], [1, 1, 0, 1]])
    kept = targets([[0, 1, 0, 1], [1, 1, 0, 1]])
    mask = {:s32, {3}, <<1::32-little, 0::32-little, 1::32-little>>}
    rows = Enum.chunk_every(outs(), 8)
    short = f64({2, 8}, Enum.at(rows, 0) ++ Enum.at(rows, 2))
    masked = Loss.cross_entropy(f64({3, 8}, outs()), targets, @groups, mask: mask)
    expected = Loss.cross_entropy(short, kept, @groups)
    assert Map.delete(masked, :d_outs) == Map.delete(expected, :d_outs)
    d_outs = Enum.chunk_every(floats(masked.d_outs), 8)
    assert [Enum.at(d_outs, 0), Enum.at(d_outs, 2)] == Enum.chunk_every(floats(expected.d_outs), 8)
    assert Enum.at(d_outs, 1) == List.duplicate(0.0, 8)

    zeros = fn rows -> f64({rows, 8}, List.duplicate(0.0, 8 * rows)) end
    masked = Loss.mean_squared_error(f64({3, 8}, outs()), zeros.(3), mask: mask)
    assert masked.loss == Loss.mean_squared_error(short, zeros.(2)).loss
    assert Enum.slice(floats(masked.d_outs), 8, 8) == List.duplicate(0.0, 8)

    none = {:s32, {3}, <<0::96>>}

    nothing = Loss.cross_entropy(f64({3, 8}, outs()), targets, @groups, mask: none)
    assert {nothing.loss, nothing.correct.main} == {0.0, 0.0}

    bad = fn mask -> fn -> Loss.cross_entropy(f64({3, 8}, outs()), targets, @groups, mask: mask) end end
    assert %Error{argument: ":mask"} = assert_raise(Error, bad.({:s32, {2}, <<0::64>>}))
    assert %Error{argument: ":mask"} = assert_raise(Error, bad.({:f32, {3}, <<0::96>>}))
    assert %Error{argument: ":mask"} = assert_raise(Error, bad.(3))
  end

  test "argmax is what cross_entropy counts as correct" do
    outs = f64({3, 8}, outs())
    {:s32, {3, 4}, _} = choices = Loss.argmax(outs, @groups)
    assert Loss.cross_entropy(outs, choices, @groups).correct == %{main: 1.0, buttons: 1.0, trigger: 1.0}
    equal = f64({2, 2, 3}, List.duplicate(0.0, 12))
    assert {:s32, {2, 2, 1}, <<0::128>>} = Loss.argmax(equal, [{"any", 0..2}])
  end

  test "samples have the probabilities of the outputs, and the same numbers for a seed and a frame" do
    groups = [{:choice, 0..2}, {:event, 3..3, :binary}]

    outs =
      f64(
        {4000, 4},
        List.flatten(List.duplicate([0.0, :math.log(2.0), :math.log(5.0), :math.log(3.0)], 4000))
      )

    draw = fn options -> Loss.sample(outs, groups, options) end

    share = fn {:s32, _, binary}, column, value ->
      rows = for <<choice::32-little, event::32-little <- binary>>, do: {choice, event}
      Enum.count(rows, &(elem(&1, column) == value)) / 4000
    end

    first = draw.(seed: 1)

    for {value, expected} <- [{0, 1 / 8}, {1, 2 / 8}, {2, 5 / 8}],
        do: assert_in_delta(share.(first, 0, value), expected, 0.03)

    assert_in_delta share.(first, 1, 1), 0.75, 0.03
    assert draw.(seed: 1, frame: 0) == first
    assert draw.(seed: 1, frame: 1) != first
    assert draw.(seed: 2) != first
    assert draw.(seed: 0x100000001) != first
    # A low temperature leaves the likeliest choice; events are as before.
    cold = draw.(seed: 1, temperature: 1.0e-300)
    assert share.(cold, 0, 2) == 1.0
    assert share.(cold, 1, 1) == share.(first, 1, 1)
  end

  test "bad arguments of choices are errors that name them" do
    refused = fn argument, call -> assert %Error{argument: ^argument} = assert_raise(Error, call) end
    outs = f64({3, 8}, outs())
    refused.("outs", fn -> Loss.argmax({:s32, {1, 2}, <<0::64>>}, a: 0..1) end)
    refused.("outs", fn -> Loss.argmax({:f32, {1, 2}, <<0::32, 0, 0, 192, 127>>}, a: 0..1) end)
    refused.("groups", fn -> Loss.argmax(outs, a: 0..8) end)
    refused.(":temperature", fn -> Loss.sample(outs, @groups, temperature: 0) end)
    refused.(":seed", fn -> Loss.sample(outs, @groups, seed: 0.5) end)
    refused.(":frame", fn -> Loss.sample(outs, @groups, frame: nil) end)
    refused.(":held", fn -> Loss.sample(outs, @groups, held: 1) end)
  end
end
