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
end
