defmodule ExPhil.Native.OptionsTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Error, Options}

  # Each reader with an accepted and a refused value.
  defp readers do
    [
      {&Options.one_of(&1, :mode, [:fast, :slow]), [mode: :slow], :slow, [mode: :other]},
      {&Options.boolean(&1, :on, false), [on: true], true, [on: 1]},
      {&Options.positive_integer(&1, :count, 3), [], 3, [count: 0]},
      {&Options.positive_integer(&1, :count, 3), [count: 7], 7, [count: 0x8000000000000000]},
      {&Options.positive_float(&1, :scale, 1.0), [scale: 2], 2.0, [scale: -1.0]},
      {&Options.positive_float(&1, :scale, nil), [], nil, [scale: Integer.pow(10, 400)]},
      {&Options.range(&1, :range), [range: {0, 1}], {0.0, 1.0}, [range: {1, 0}]},
      {&Options.place/1, [backend: :host, device: 0], {:host, 0}, [backend: :tpu]},
      {&Options.place/1, [backend: :host], {:host, 0}, [device: -1]}
    ]
  end

  test "a reader gives the value or raises an error that names the option" do
    for {reader, good, value, bad} <- readers() do
      known = [:mode, :on, :count, :scale, :range, :backend, :device]
      [{name, _}] = bad
      assert Options.read!(good, known, reader) == value
      assert Options.read(good, known, reader) == {:ok, value}
      error = assert_raise Error, fn -> Options.read!(bad, known, reader) end
      assert {error.kind, error.argument} == {:invalid_argument, inspect(name)}
      assert Options.read(bad, known, reader) == {:error, error}
    end
  end

  test "an unknown name is an error that lists the known ones" do
    assert {:error, %Error{argument: ":fsat"} = error} = Options.read([fsat: 1], [:fast, :slow], & &1)
    assert Exception.message(error) =~ "known: :fast, :slow"
    assert {:error, %Error{argument: "options"}} = Options.read(%{fast: 1}, [:fast], & &1)
  end
end
