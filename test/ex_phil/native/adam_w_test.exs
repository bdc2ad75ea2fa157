defmodule ExPhil.Native.AdamWTest do
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Numbers, only: [floats: 1]
  alias ExPhil.Native.{AdamW, Error}

  defp f64(list, shape), do: {:f64, shape, for(v <- list, into: <<>>, do: <<v::float-64-little>>)}

  # The published algorithm on one number.
  defp expected(weight, gradients, rate, decay) do
    {weight, _, _} =
      gradients
      |> Enum.with_index(1)
      |> Enum.reduce({weight, 0.0, 0.0}, fn {g, step}, {w, m, v} ->
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        {m_hat, v_hat} = {m / (1 - :math.pow(0.9, step)), v / (1 - :math.pow(0.999, step))}
        {w - rate * decay * w - rate * m_hat / (:math.sqrt(v_hat) + 1.0e-8), m, v}
      end)

    weight
  end

  test "steps are those of the published algorithm; vectors and A_log do not decay" do
    names = [{"matrix", {2, 1}, 0.1}, {"vector", {2}, 0.0}, {"layer.A_log", {2, 1}, 0.0}]
    weights = for {name, shape, _} <- names, into: %{}, do: {name, f64([1.0, -2.0], shape)}
    gradients = for g <- [0.5, -1.0, 0.25], do: g
    optimiser = AdamW.new(weights, learning_rate: 0.01, weight_decay: 0.1)

    {weights, _} =
      Enum.reduce(gradients, {weights, optimiser}, fn g, {weights, optimiser} ->
        all = for {name, shape, _} <- names, into: %{}, do: {name, f64([g, 2 * g], shape)}
        {weights, optimiser, norm} = AdamW.step(optimiser, weights, all)
        assert_in_delta norm, abs(g) * :math.sqrt(15), 1.0e-12
        {weights, optimiser}
      end)

    for {name, _, decay} <- names, {found, at} <- Enum.with_index(floats(weights[name])) do
      all = Enum.map(gradients, &(&1 * (at + 1)))
      assert_in_delta found, expected(Enum.at([1.0, -2.0], at), all, 0.01, decay), 1.0e-12
    end
  end

  test "clipping scales all gradients together" do
    weights = %{"a" => f64([0.0], {1}), "b" => f64([0.0], {1})}
    step = fn gradients, options -> weights |> AdamW.new(options) |> AdamW.step(weights, gradients) end
    {_, clipped, norm} = step.(%{"a" => f64([3.0], {1}), "b" => f64([4.0], {1})}, clip_norm: 1.0)
    assert norm == 5.0
    {_, small, _} = step.(%{"a" => f64([0.6], {1}), "b" => f64([0.8], {1})}, [])

    for name <- ["a", "b"],
        do: assert_in_delta(hd(floats(clipped.m[name])), hd(floats(small.m[name])), 1.0e-15)
  end

  test "bad gradients raise" do
    weights = %{"a" => f64([0.0], {1})}
    optimiser = AdamW.new(weights)

    refused = fn gradients ->
      assert_raise(Error, fn -> AdamW.step(optimiser, weights, gradients) end).argument
    end

    assert refused.(%{}) == "gradients"
    assert refused.(%{"a" => f64([0.0], {1, 1})}) == "a"
    assert refused.(%{"a" => {:f32, {1}, <<0::32>>}}) == "a"
    assert refused.(%{"a" => {:f64, {1}, <<0, 0, 0, 0, 0, 0, 248, 127>>}}) == "gradients"
    assert_raise Error, fn -> AdamW.new(weights, beta1: 1.0) end
  end

  test "what is no map of tensors raises an error that names the argument" do
    weights = %{"a" => f64([0.0], {1})}
    optimiser = AdamW.new(weights)
    argument = fn call -> assert_raise(Error, call).argument end

    for garbage <- [
          nil,
          [1],
          [{"a", f64([0.0], {1})}],
          MapSet.new(),
          %{a: f64([0.0], {1})},
          %{"a" => nil},
          %{"a" => {:f64, {2}, <<0::64>>}},
          %{"a" => {:s32, {1}, <<0::32>>}},
          %{"a" => {:f64, [1], <<0::64>>}}
        ] do
      assert argument.(fn -> AdamW.new(garbage) end) == "weights"
      assert argument.(fn -> AdamW.step(optimiser, garbage, weights) end) == "weights"
      assert argument.(fn -> AdamW.step(optimiser, weights, garbage) end) == "gradients"
    end
  end

  defp f32(bits), do: {:f32, {1}, <<bits::32-little>>}

  test "a step takes and gives finite numbers only" do
    one = 0x3F800000
    optimiser = AdamW.new(%{"a" => f32(one)})

    step = fn weight, gradient, options ->
      AdamW.step(optimiser, %{"a" => f32(weight)}, %{"a" => f32(gradient)}, options)
    end

    argument = fn call -> assert_raise(Error, call).argument end

    for wrong <- [0x7FC00000, 0x7F800000, 0xFF800000] do
      assert argument.(fn -> step.(wrong, one, []) end) == "weights"
      assert argument.(fn -> step.(one, wrong, []) end) == "gradients"
      damaged = %{optimiser | m: %{"a" => f32(wrong)}}
      assert argument.(fn -> AdamW.step(damaged, %{"a" => f32(one)}, %{"a" => f32(one)}) end) == "optimiser"
    end

    assert argument.(fn -> AdamW.new(%{"a" => f32(one)}, learning_rate: 1.0e308) end) == ":learning_rate"
    assert argument.(fn -> step.(one, one, learning_rate: 1.0e308) end) == ":learning_rate"
    # f32 holds the rate, and not the weight after it.
    assert argument.(fn -> step.(one, one, learning_rate: 3.0e38) end) == ":learning_rate"
    # 2^100: f32 holds it, and not its square.
    assert argument.(fn -> step.(one, 0x71800000, []) end) == "gradients"
    assert {%{"a" => {:f32, {1}, _}}, _, 1.0} = step.(one, one, learning_rate: 1.0e30)
  end
end
