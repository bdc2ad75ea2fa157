defmodule ExPhil.Native.JsonTest do
  use ExUnit.Case, async: true
  doctest ExPhil.Native.Json

  alias ExPhil.Native.Json

  test "only the characters that need it are escaped" do
    assert Json.encode("a\"b\\c\td é") == ~S("a\"b\\c\u0009d é")
    assert Json.encode(%{"k\"" => []}) == ~S({"k\"":[]})
  end

  test "a byte that is not UTF-8 becomes the replacement character, and nothing behind it is lost" do
    assert Json.encode(<<"a", 255, "b\n">>) == "\"a\uFFFDb" <> ~S(\u000A")
  end

  test "numbers and names" do
    assert Json.encode([true, false, nil, :host, 1.0e-7, -3]) == ~S([true,false,null,"host",1.0e-7,-3])
  end
end
