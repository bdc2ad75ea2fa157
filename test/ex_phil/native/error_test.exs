defmodule ExPhil.Native.ErrorTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Error

  test "a NIF's reason becomes an exception with its fields" do
    error = Error.from_nif({:mismatch, "snapshot", "the snapshot belongs to another policy"})
    assert %Error{kind: :mismatch, argument: "snapshot", hint: nil} = error
    assert Exception.message(error) == "the snapshot belongs to another policy"
    assert Error.from_nif({:internal, "", "x"}).argument == nil
  end

  test "a hint follows the message" do
    error = Error.from_nif({:backend_unavailable, ":backend", "no CUDA here"})
    assert Exception.message(error) == "no CUDA here (#{error.hint})"
    assert error.hint =~ "doctor"
  end

  test "the given value is described briefly" do
    long = String.duplicate("x", 10_000)
    assert Exception.message(Error.invalid("obs", "a binary", {:f32, {2}, long})) =~ "a binary of 10000 bytes"
    assert Exception.message(Error.invalid("obs", "a map", long)) =~ "a binary of 10000 bytes"
    assert String.length(Exception.message(Error.invalid("obs", "a map", Enum.to_list(1..1000)))) < 200
  end

  test "texts are valid and bounded, whatever their source" do
    nested = Enum.reduce(1..6, "x", fn _, inner -> List.duplicate(inner, 8) end)

    for error <- [
          Error.invalid(String.duplicate("☃", 5000), "a map", nested),
          Error.invalid("a name \xFF", "a map", "\xFF\0"),
          Error.new(:internal, "", "☃" <> String.duplicate("\xFF", 5000))
        ] do
      assert String.valid?(error.message) and byte_size(error.message) <= 4096
      assert error.argument == nil or (String.valid?(error.argument) and byte_size(error.argument) <= 256)
    end
  end
end
