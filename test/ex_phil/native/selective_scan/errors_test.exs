defmodule ExPhil.Native.SelectiveScan.ErrorsTest do
  # Bad input of every kind, through the public calls: each raises an error that names the argument, what was expected
  # and what was given.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  @seq 4
  setup context do
    good = %{
      x: uniform(1, {2, @seq, 6}, -1.0, 1.0),
      dt: uniform(2, {2, @seq, 6}, 0.1, 0.2),
      a: uniform(3, {6, 3}, -1.0, -0.1),
      b: uniform(4, {2, @seq, 3}, -1.0, 1.0),
      c: uniform(5, {2, @seq, 3}, -1.0, 1.0)
    }

    {:ok, good: good, backend: context[:backend] || :host}
  end

  defp scan(inputs, options),
    do: SelectiveScan.scan(inputs.x, inputs.dt, inputs.a, inputs.b, inputs.c, options)

  # Raises, names `argument`, and contains all `words`; afterwards the valid call still works.
  defp assert_refused(
         %{good: good, backend: backend},
         change,
         options \\ [],
         kind \\ :invalid_argument,
         argument,
         words
       ) do
    error =
      assert_raise Error, fn -> scan(Map.merge(good, Map.new(change)), [backend: backend] ++ options) end

    assert error.kind == kind
    assert error.argument == argument
    for word <- words, do: assert(Exception.message(error) =~ word)
    assert {:f32, {2, @seq, 6}, _} = scan(good, backend: backend)
  end

  backend_test "wrong rank", context do
    for {name, argument} <- [x: "x", dt: "dt", a: "a", b: "b", c: "c"] do
      assert_refused(context, [{name, f32([1.0, 2.0], {2})}], argument, [argument, "{2}"])
      assert_refused(context, [{name, f32([1.0], {1, 1, 1, 1, 1})}], argument, [argument, "{1, 1, 1, 1, 1}"])
    end

    assert_refused(context, [], [d: f32([1.0], {1, 1})], ":d", ["{1, 1}"])
    assert_refused(context, [], [initial_state: f32([1.0], {1})], ":initial_state", ["{1}"])
  end

  backend_test "wrong size", context do
    assert_refused(context, [dt: uniform(1, {2, @seq, 5}, 0.0, 1.0)], "dt", ["{2, 4, 6}", "{2, 4, 5}"])
    assert_refused(context, [dt: uniform(1, {2, 3, 6}, 0.0, 1.0)], "dt", ["{2, 3, 6}"])
    assert_refused(context, [a: uniform(1, {5, 3}, 0.0, 1.0)], "a", ["{5, 3}"])
    assert_refused(context, [b: uniform(1, {2, @seq, 4}, 0.0, 1.0)], "b", ["{2, 4, 4}"])
    assert_refused(context, [b: uniform(1, {2, @seq, 4, 3}, 0.0, 1.0)], "b", ["groups"])
    assert_refused(context, [], [d: uniform(1, {7}, 0.0, 1.0)], ":d", ["{7}"])
    assert_refused(context, [], [dt_bias: uniform(1, {7}, 0.0, 1.0)], ":dt_bias", ["{7}"])
    assert_refused(context, [], [z: uniform(1, {2, @seq, 7}, 0.0, 1.0)], ":z", ["{2, 4, 7}"])

    assert_refused(context, [], [initial_state: uniform(1, {2, 6, 4}, 0.0, 1.0)], ":initial_state", [
      "{2, 6, 4}"
    ])
  end

  backend_test "wrong type", context do
    {:f32, shape, binary} = context.good.x
    assert_refused(context, [x: {:f64, shape, binary <> binary}], [], :unsupported, "x", ["f64"])
    assert_refused(context, [x: {:s32, shape, binary}], [], :unsupported, "x", ["s32"])
    assert_refused(context, [x: {:u8, shape, binary}], "x", ["u8"])
    assert_refused(context, [x: {"f32", shape, binary}], "x", ["f32"])
    assert_refused(context, [dt: f16(floats(context.good.dt), shape)], "dt", ["f16", "f32"])
    assert_refused(context, [b: f16(floats(context.good.b), {2, @seq, 3})], "b", ["f16"])
    assert_refused(context, [a: f16(floats(context.good.a), {6, 3})], "a", ["f16"])
    assert_refused(context, [], [d: f16([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], {6})], ":d", ["f16"])
    assert_refused(context, [a: {:c64, {6, 3}, String.duplicate(<<0::64>>, 18)}], "b", ["c64", "f32"])
    assert_refused(context, [x: :tensor], "x", [":tensor"])
    assert_refused(context, [x: nil], "x", ["nil"])
    assert_refused(context, [dt: binary], "dt", ["binary of 192 bytes"])
    assert_refused(context, [], [d: 1.0], ":d", ["1.0"])
  end

  backend_test "a binary shorter or longer than its shape", context do
    for {name, {type, shape, binary}} <- context.good do
      shorter = {type, shape, binary_part(binary, 0, byte_size(binary) - 1)}
      size = "#{byte_size(binary)}"
      assert_refused(context, [{name, shorter}], to_string(name), [size, "#{byte_size(binary) - 1}"])

      assert_refused(context, [{name, {type, shape, binary <> <<0>>}}], to_string(name), [
        size,
        "#{byte_size(binary) + 1}"
      ])

      assert_refused(context, [{name, {type, shape, <<>>}}], to_string(name), [size])
    end
  end

  backend_test "invalid shapes", context do
    {type, _, binary} = context.good.x
    assert_refused(context, [x: {type, [2, @seq, 6], binary}], "x", ["[2,4,6]"])
    assert_refused(context, [x: {type, {2, @seq, -6}, binary}], "x", ["negative"])
    assert_refused(context, [x: {type, {2, @seq, 6.0}, binary}], "x", ["6.0"])
    assert_refused(context, [x: {type, {2, @seq, :six}, binary}], "x", ["six"])
    assert_refused(context, [x: {type, {1, 1, 1, 1, 1, 1, 1, 1, 1}, binary}], "x", ["9"])
    assert_refused(context, [x: {type, {2, @seq, 6}, [binary]}], "x", ["binary"])
  end

  backend_test "a size product beyond 2^63", context do
    huge = 4_000_000_000
    assert_refused(context, [x: {:f32, {huge, huge, huge}, <<>>}], [], :limit_exceeded, "x", ["2^63"])
    assert_refused(context, [x: {:f32, {huge, 2_000_000_000, 1}, <<>>}], [], :limit_exceeded, "x", ["2^63"])
    assert_refused(context, [x: {:f32, {Bitwise.bsl(1, 64), 1, 1}, <<>>}], [], :limit_exceeded, "x", ["2^63"])
    # An empty sequence needs no bytes, but its other sizes are checked too.
    assert_refused(
      context,
      [x: {:f32, {huge, 0, huge}, <<>>}, dt: {:f32, {huge, 0, huge}, <<>>}],
      [],
      :limit_exceeded,
      "x",
      []
    )
  end

  backend_test "zero-sized dimensions", context do
    assert_refused(context, [x: {:f32, {0, @seq, 6}, <<>>}], "x", ["batch", "{0, 4, 6}"])
    assert_refused(context, [x: {:f32, {2, @seq, 0}, <<>>}], "x", ["dim", "{2, 4, 0}"])
    assert_refused(context, [a: {:f32, {6, 0}, <<>>}], "a", ["state", "{6, 0}"])
  end

  backend_test "state beyond the limit", context do
    a = uniform(1, {6, 257}, -1.0, 0.0)
    b = uniform(1, {2, @seq, 257}, -1.0, 0.0)
    assert_refused(context, [a: a, b: b, c: b], [], :limit_exceeded, "a", ["257", "256"])
    full = uniform(1, {6, 33, 33}, -1.0, 0.0)
    assert_refused(context, [a: full], [discretization: :bilinear], :limit_exceeded, "a", ["33", "32"])
  end

  backend_test "options", context do
    assert_refused(context, [], [softplus: true], ":softplus", [
      "unknown",
      ":dt_softplus",
      ":reverse",
      ":backend"
    ])

    assert_refused(context, [], [dt_softplus: 1], ":dt_softplus", ["true or false"])
    assert_refused(context, [], [reverse: nil], ":reverse", ["nil"])
    assert_refused(context, [], [discretization: :euler], ":discretization", [":euler", ":zoh", ":rk4"])
    assert_refused(context, [], [algorithm: :fast], ":algorithm", [":fast", ":chunked"])
    assert_refused(context, [], [dt_range: {1, 0}], ":dt_range", ["{1, 0}"])
    assert_refused(context, [], [dt_range: 1], ":dt_range", ["min"])
    assert_refused(context, [], [dt_range: {0, Integer.pow(10, 400)}], ":dt_range", ["float"])
    assert_refused(context, [], [:return_state], "options", ["keyword"])
    error = assert_raise Error, fn -> scan(context.good, backend: :gpu) end
    assert error.argument == ":backend"
    full = uniform(1, {6, 3, 3}, -1.0, 0.0)
    assert_refused(context, [a: full], [discretization: :zoh], :unsupported, "a", ["bilinear"])
  end

  backend_test "step names the given shapes", context do
    %{good: good, backend: backend} = context

    row = fn {:f32, {2, @seq, n}, binary} ->
      {:f32, {2, n}, for(i <- 0..1, into: <<>>, do: binary_part(binary, 4 * n * @seq * i, 4 * n))}
    end

    state = uniform(6, {2, 6, 3}, -1.0, 1.0)

    arguments = [
      state: state,
      x: row.(good.x),
      dt: row.(good.dt),
      a: good.a,
      b: row.(good.b),
      c: row.(good.c)
    ]

    step = fn change, options ->
      given = Keyword.merge(arguments, change)

      apply(
        SelectiveScan,
        :step,
        Enum.map([:state, :x, :dt, :a, :b, :c], &given[&1]) ++ [[backend: backend] ++ options]
      )
    end

    expected = step.([], [])

    for {change, options, argument} <- [
          {[x: good.x], [], "x"},
          {[dt: good.dt], [], "dt"},
          {[b: good.b], [], "b"},
          {[c: uniform(1, {5, 3}, 0.0, 1.0)], [], "c"},
          {[state: uniform(1, {2, 6, 4}, 0.0, 1.0)], [], "state"},
          {[state: nil], [], "state"},
          {[a: f32([1.0], {1})], [], "state"},
          {[], [z: good.x], ":z"},
          {[], [initial_state: state], ":initial_state"},
          {[], [return_state: true], ":return_state"},
          {[], [reverse: true], ":reverse"}
        ] do
      error = assert_raise Error, fn -> step.(change, options) end
      assert error.argument == argument
      assert step.([], []) == expected
    end
  end

  backend_test "states with both directions", context do
    %{good: g, backend: backend} = context

    for option <- [return_state: true, reverse: true, initial_state: uniform(1, {2, 6, 3}, 0.0, 1.0)] do
      assert_raise Error, fn ->
        SelectiveScan.bidirectional(g.x, g.dt, g.a, g.b, g.c, [option, backend: backend])
      end
    end

    assert_raise Error, fn -> SelectiveScan.scan_with_states(g.x, g.dt, g.a, g.b, g.c, return_state: true) end
  end
end
