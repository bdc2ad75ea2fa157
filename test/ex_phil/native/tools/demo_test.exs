defmodule ExPhil.Native.Tools.DemoTest do
  use ExUnit.Case, async: true
  doctest ExPhil.Native.Tools.Demo

  import ExPhil.Native.TestSupport.Numbers, only: [floats: 1]

  alias ExPhil.Native.Safetensors
  alias ExPhil.Native.Tools.Demo

  defp digest(tensors) do
    hash =
      tensors
      |> Enum.sort()
      |> Enum.reduce(:crypto.hash_init(:sha256), fn {name, {_, _, data}}, hash ->
        hash |> :crypto.hash_update(name) |> :crypto.hash_update(data)
      end)

    hash |> :crypto.hash_final() |> Base.encode16(case: :lower) |> binary_part(0, 16)
  end

  test "a seed always gives the same bytes, and another seed others" do
    assert digest(Demo.policy(1)) == "b7be15c97f676b65"
    assert digest(Demo.frames(600, 1)) == "dc67530aa4f9bae2"
    refute Demo.policy(2) == Demo.policy(1)
    refute Demo.frames(10, 2) == Demo.frames(10, 1)
  end

  test "a longer stream begins with the shorter one" do
    %{"obs" => {_, _, short}} = Demo.frames(10)
    %{"obs" => {_, _, long}} = Demo.frames(50)
    assert binary_part(long, 0, byte_size(short)) == short
  end

  test "every tensor has the bytes of its shape" do
    for {name, {:f32, shape, data}} <- Demo.policy() do
      assert {name, byte_size(data)} == {name, 4 * Enum.product(Tuple.to_list(shape))}
    end
  end

  test "the state space starts as Mamba's: A = -(1..16), D = 1, dt from 0.001 to 0.1" do
    policy = Demo.policy()

    for mixer <- ["backbone.layers.0.mixer", "backbone.layers.1.mixer"] do
      for row <- policy["#{mixer}.A_log"] |> floats() |> Enum.chunk_every(16) |> Enum.uniq(),
          {a_log, n} <- Enum.zip(row, 1..16) do
        assert_in_delta :math.exp(a_log), n, 1.0e-5
      end

      assert policy["#{mixer}.D"] |> floats() |> Enum.uniq() == [1.0]
      dts = for bias <- floats(policy["#{mixer}.dt_proj.bias"]), do: :math.log(1 + :math.exp(bias))
      assert Enum.min(dts) >= 0.99e-3 and Enum.max(dts) <= 1.01e-1
      # Log-uniform: the median is the geometric mean of the ends, 0.01, within the spread of 512 draws.
      assert_in_delta :math.log10(Enum.at(Enum.sort(dts), 256)), -2.0, 0.15
    end
  end

  test "linear layers are uniform within 1 / sqrt(inputs) and fill that range" do
    bound = 1 / :math.sqrt(287)
    values = floats(Demo.policy()["input_proj.weight"])
    assert Enum.max(values) <= bound and Enum.min(values) >= -bound
    assert Enum.max(values) > 0.99 * bound and Enum.min(values) < -0.99 * bound
    assert_in_delta Enum.sum(values) / length(values), 0.0, bound / 50
  end

  test "an observation has one action of 128 for each player, and moves smoothly" do
    rows = Demo.frames(300)["obs"] |> floats() |> Enum.chunk_every(287)

    for row <- rows, start <- [11, 150] do
      assert row |> Enum.slice(start, 128) |> Enum.sort(:desc) |> Enum.take(2) == [1.0, 0.0]
    end

    for [before, next] <- Enum.chunk_every(rows, 2, 1, :discard) do
      assert abs(hd(next) - hd(before)) < 0.1
      assert next |> Enum.take(-9) |> Enum.all?(&(abs(&1) <= 1.0))
    end

    positions = Enum.map(rows, &hd/1)
    assert Enum.max(positions) - Enum.min(positions) > 0.1
  end

  @tag :tmp_dir
  test "write/2 writes two files that can be read", %{tmp_dir: folder} do
    {policy, frames} = Demo.write(folder, seed: 3, frames: 5)
    assert {:ok, tensors} = Safetensors.read(policy)
    assert tensors == Demo.policy(3)
    assert {:ok, %{"obs" => {:f32, {5, 287}, _}}} = Safetensors.read(frames)
    assert Enum.sort(File.ls!(folder)) == ["frames.safetensors", "policy.safetensors"]
  end
end
