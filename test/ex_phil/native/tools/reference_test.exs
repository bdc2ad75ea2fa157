defmodule ExPhil.Native.Tools.ReferenceTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Device, Error, NIF}
  alias ExPhil.Native.Tools.Reference

  test "copy rates are those of the named device" do
    {:ok, host} = Device.fetch(backend: :host)
    {:ok, rates} = Reference.copy_rates(host)
    assert Enum.sort(Map.keys(rates)) == [:from_device, :memory, :to_device]
    assert Enum.all?(Map.values(rates), &(&1 > 1.0e7))

    assert {:error, %Error{kind: :backend_unavailable, argument: ":device"}} =
             Reference.copy_rates(%{host | index: 1})
  end

  test "a random binary depends on the seed" do
    one = Reference.random_binary!(:f32, 1000, 7, {0.0, 1.0})
    assert byte_size(one) == 4000
    assert one == Reference.random_binary!(:f32, 1000, 7, {0.0, 1.0})
    assert one != Reference.random_binary!(:f32, 1000, 8, {0.0, 1.0})
  end

  test "arguments that are wrong raise an error that names them" do
    for {arguments, argument} <- [
          {[:c64, 1, 1, {0.0, 1.0}], "type"},
          {[:f32, -1, 1, {0.0, 1.0}], "count"},
          {[:f32, 1, 1, nil], "range"}
        ] do
      error = assert_raise Error, fn -> apply(Reference, :random_binary!, arguments) end
      assert {error.kind, error.argument} == {:invalid_argument, argument}
    end
  end

  test "a binary larger than memory is an error" do
    error = assert_raise Error, fn -> Reference.random_binary!(:f32, 1_000_000_000_000_000, 1, {0.0, 1.0}) end
    assert error.kind == :out_of_memory
  end

  test "an unknown tool, and arguments that are not a tuple" do
    assert {:error, {:invalid_argument, "tool", message}} = NIF.tool(:no_such_tool, {1, 2})
    assert message =~ "no_such_tool/2"
    assert {:error, {:invalid_argument, "tool", _}} = NIF.tool(:random_binary, {:f32})
    assert {:error, {:invalid_argument, "arguments", _}} = NIF.tool(:random_binary, [:f32])
  end
end
