defmodule ExPhil.Native.XLATest do
  # Without EXLA, which this project's tests do not have. test/xla tests the registration.
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Block, Error, NIF, XLA}

  doctest Block

  test "without EXLA nothing is registered, and every call gives the reason" do
    assert {:error, reason} = XLA.status()
    assert reason =~ "not loaded"
    assert {:error, %Error{kind: :unsupported} = error} = XLA.register()
    assert error.message =~ "EXLA" or error.message =~ "XLA_INCLUDE"
    refute XLA.registered?("exphil_selective_scan", :host)
    refute XLA.registered?("exphil_selective_scan", :tpu)
    assert %{registered: false, reason: ^reason} = ExPhil.Native.info().xla
  end

  # dlopen copies its argument to the stack of the scheduler's thread.
  test "a path that no file can have is refused before it is looked up" do
    long = String.duplicate("a", 20_000_000)

    for path <- [long, String.duplicate("a", 4096), "a\0b"] do
      assert {:error, {:invalid_argument, "path", message}} = NIF.xla_status(path)
      assert message =~ "path must be below 4096 bytes"
      assert {:error, {:invalid_argument, "path", _}} = NIF.xla_registered(path, "target", "Host")
    end

    assert NIF.xla_status(String.duplicate("a", 4095)) == {:ok, nil}
    assert NIF.xla_registered("absent.so", long, long) == {:ok, false}
  end

  test "attributes as MLIR writes them" do
    block = %Block{target: "t", attributes: [{"dt_min", 0.001}, {"dt_softplus", true}, {"operands", ""}]}

    assert Block.mlir_attributes(block) ==
             [{"dt_min", "1.00000000000000002e-03 : f64"}, {"dt_softplus", "true"}, {"operands", ~s("")}]
  end
end
