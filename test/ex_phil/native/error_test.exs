defmodule ExPhil.Native.ErrorTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Error

  test "a NIF's reason becomes an exception with its fields" do
    error = Error.from_nif({:mismatch, "snapshot", "the snapshot belongs to another model"})
    assert %Error{kind: :mismatch, argument: "snapshot", hint: nil} = error
    assert Exception.message(error) == "the snapshot belongs to another model"
    assert Error.from_nif({:internal, "", "x"}).argument == nil
  end

  test "a hint follows the message" do
    error = Error.from_nif({:backend_unavailable, ":backend", "no CUDA here"})
    assert Exception.message(error) == "no CUDA here (#{error.hint})"
    assert error.hint =~ "doctor"
  end

  test "what came is described briefly, whatever it is" do
    long = String.duplicate("x", 10_000)
    assert Exception.message(Error.invalid("obs", "a binary", {:f32, {2}, long})) =~ "a binary of 10000 bytes"
    assert Exception.message(Error.invalid("obs", "a map", long)) =~ "a binary of 10000 bytes"
    assert String.length(Exception.message(Error.invalid("obs", "a map", Enum.to_list(1..1000)))) < 200
  end
end
