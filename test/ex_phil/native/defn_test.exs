# The operations of ExPhil.Native.Defn under the real Nx. test_helper.exs reports where Nx is not available.
if Code.ensure_loaded?(Nx.Defn) do
  defmodule ExPhil.Native.DefnTest do
    use ExUnit.Case, async: true
    import Nx.Defn

    alias ExPhil.Native.{AssociativeScan, Error, SelectiveScan}
    alias ExPhil.Native.Defn, as: Native

    @moduletag :nx

    # Nx's defaults are its application's environment; a path dependency of mix loads it, ERL_LIBS does not.
    setup_all do: Application.load(:nx) && :ok

    # A scan step by step in Nx, as the reference of the gradients.
    deftransform plain_scan(x, dt, a, b, c, options \\ []) do
      {batch, seq, dim} = x.shape
      {_, state} = a.shape
      dt = if options[:dt_bias], do: Nx.add(dt, options[:dt_bias]), else: dt
      dt = if options[:dt_softplus], do: Nx.log1p(Nx.exp(dt)), else: dt
      start = options[:initial_state] || Nx.broadcast(Nx.tensor(0, type: a.type), {batch, dim, state})

      {h, rows} =
        Enum.reduce(0..(seq - 1), {start, []}, fn t, {h, rows} ->
          [x_t, dt_t] = for v <- [x, dt], do: v[[.., t, ..]] |> Nx.new_axis(-1)
          [b_t, c_t] = for v <- [b, c], do: v[[.., t, ..]] |> Nx.new_axis(1)

          h =
            Nx.add(Nx.multiply(Nx.exp(Nx.multiply(dt_t, a)), h), dt_t |> Nx.multiply(x_t) |> Nx.multiply(b_t))

          y = Nx.sum(Nx.multiply(h, c_t), axes: [2])
          y = if match?({:c, _}, y.type), do: Nx.multiply(2, Nx.real(y)), else: y
          {h, [y | rows]}
        end)

      y = rows |> Enum.reverse() |> Nx.stack(axis: 1)
      y = if options[:d], do: Nx.add(y, Nx.multiply(options[:d], x)), else: y
      y = if options[:z], do: Nx.multiply(y, Nx.multiply(options[:z], Nx.sigmoid(options[:z]))), else: y
      if options[:return_state], do: {y, h}, else: y
    end

    defn(scan(x, dt, a, b, c), do: Native.selective_scan(x, dt, a, b, c))
    defn(square_loss(tensors, static), do: loss_of(tensors, static))

    # The sum of squares of y and, with return_state, of the final state.
    deftransformp loss_of(tensors, {module, static}) do
      {main, optional} = Map.split(tensors, [:x, :dt, :a, :b, :c])
      %{x: x, dt: dt, a: a, b: b, c: c} = main
      options = Map.to_list(optional) ++ static

      case module do
        :native -> Native.selective_scan(x, dt, a, b, c, options)
        :plain -> plain_scan(x, dt, a, b, c, options)
      end
      |> case do
        {y, h} -> Nx.add(Nx.sum(Nx.multiply(y, y)), Nx.sum(Nx.multiply(Nx.real(h), Nx.cos(Nx.real(h)))))
        y -> Nx.sum(Nx.multiply(y, y))
      end
    end

    defp tensors(seed, optional, type \\ {:f, 32}) do
      key = Nx.Random.key(seed)
      shapes = [x: {2, 7, 3}, dt: {2, 7, 3}, a: {3, 4}, b: {2, 7, 4}, c: {2, 7, 4}]
      more = [d: {3}, z: {2, 7, 3}, dt_bias: {3}, initial_state: {2, 3, 4}]

      {tensors, _} =
        Enum.map_reduce(shapes ++ Keyword.take(more, optional), key, fn {name, shape}, key ->
          {value, key} = Nx.Random.normal(key, shape: shape)
          {{name, value}, key}
        end)

      tensors
      |> Map.new()
      |> Map.update!(:dt, &Nx.add(0.02, Nx.multiply(0.1, Nx.abs(&1))))
      |> Map.update!(:a, &Nx.negate(Nx.abs(&1)))
      |> Map.new(fn {name, value} ->
        {name, if(name in [:x, :dt, :b, :c, :z], do: Nx.as_type(value, type), else: value)}
      end)
    end

    defp close(out, expected, limit) do
      difference = Nx.subtract(Nx.as_type(out, expected.type), expected)
      norm = fn t -> t |> Nx.abs() |> Nx.pow(2) |> Nx.sum() |> Nx.sqrt() |> Nx.to_number() end
      assert norm.(difference) <= limit * max(norm.(expected), 1.0e-30)
    end

    # The same numbers; a zero may have another sign, because the eager call adds its gradients up from 0.
    defp same(out, expected) do
      assert out.type == expected.type
      assert Nx.to_number(Nx.all(Nx.equal(out, expected))) == 1
    end

    test "a defn gives the eager call's bits" do
      %{x: x, dt: dt, a: a, b: b, c: c} = tensors(1, [])
      assert scan(x, dt, a, b, c) == SelectiveScan.scan(x, dt, a, b, c)
      assert Nx.Defn.jit(&Native.selective_scan/5).(x, dt, a, b, c) == SelectiveScan.scan(x, dt, a, b, c)
      assert Native.selective_scan(x, dt, a, b, c) == SelectiveScan.scan(x, dt, a, b, c)
    end

    test "every option reaches the library" do
      for options <- [
            [discretization: :foh],
            [dt_softplus: true, dt_range: {0.01, 0.05}],
            [reverse: true, return_state: true],
            [algorithm: :sequential]
          ] do
        t = tensors(2, [:d, :z, :dt_bias, :initial_state])
        given = Keyword.merge(Map.to_list(Map.take(t, [:d, :z, :dt_bias, :initial_state])), options)
        out = Nx.Defn.jit(&Native.selective_scan(&1, &2, &3, &4, &5, given)).(t.x, t.dt, t.a, t.b, t.c)
        assert out == SelectiveScan.scan(t.x, t.dt, t.a, t.b, t.c, given)
      end
    end

    test "gradients are those of a plain scan in Nx" do
      for {optional, static} <- [
            {[], []},
            {[:d, :z], []},
            {[:d, :z, :dt_bias, :initial_state], [dt_softplus: true]},
            {[:initial_state], [return_state: true]}
          ] do
        t = tensors(3, optional)
        out = Nx.Defn.grad(t, &square_loss(&1, {:native, static}))
        expected = Nx.Defn.grad(t, &square_loss(&1, {:plain, static}))
        assert Map.keys(out) == Map.keys(expected)
        for {name, gradient} <- out, do: close(gradient, expected[name], 2.0e-5)
      end
    end

    test "gradients are the eager call's bits" do
      for {optional, options, type} <- [
            {[], [], {:f, 32}},
            {[:d, :z, :dt_bias, :initial_state], [dt_softplus: true], {:f, 32}},
            {[:d, :z, :dt_bias], [discretization: :foh, reverse: true, dt_range: {0.01, 0.1}], {:f, 32}},
            {[:d, :z], [], {:bf, 16}}
          ] do
        t = tensors(9, optional, type)
        dy = Nx.cos(t.x)

        loss = fn t ->
          given = t |> Map.take(optional) |> Map.to_list()
          Nx.sum(Nx.multiply(dy, Native.selective_scan(t.x, t.dt, t.a, t.b, t.c, given ++ options)))
        end

        out = Nx.Defn.grad(t, loss)
        given = t |> Map.take(optional) |> Map.to_list()
        expected = SelectiveScan.grad(dy, t.x, t.dt, t.a, t.b, t.c, given ++ options)
        assert Map.keys(out) == Map.keys(expected)
        for {name, gradient} <- out, do: assert({name, gradient} == {name, expected[name]})
      end
    end

    test "gradients of complex tensors follow Nx's convention" do
      t = tensors(4, [])
      i = Nx.Constants.i()

      t = %{
        t
        | a: Nx.add(t.a, Nx.multiply(i, 0.7)),
          b: Nx.add(t.b, Nx.multiply(i, t.c)),
          c: Nx.multiply(t.c, Nx.add(1, i))
      }

      out = Nx.Defn.grad(t, &square_loss(&1, {:native, []}))
      expected = Nx.Defn.grad(t, &square_loss(&1, {:plain, []}))

      # Nx leaves an imaginary part in the gradient of a real tensor; it has no meaning.
      for {name, gradient} <- out do
        real? = name in [:x, :dt]
        close(gradient, if(real?, do: Nx.real(expected[name]), else: expected[name]), 2.0e-5)
      end
    end

    test "tensors from outside of the computation, beside expressions and in every place" do
      t = tensors(10, [:d, :z, :dt_bias, :initial_state])
      options = t |> Map.take([:d, :z, :dt_bias, :initial_state]) |> Map.to_list()
      expected = SelectiveScan.scan(t.x, t.dt, t.a, t.b, t.c, options)

      call =
        &Native.selective_scan(
          &1.x,
          &1.dt,
          &1.a,
          &1.b,
          &1.c,
          Map.to_list(Map.take(&1, [:d, :z, :dt_bias, :initial_state]))
        )

      for name <- Map.keys(t) do
        assert Nx.Defn.jit(&call.(%{t | name => &1})).(t[name]) == expected
        loss = &Nx.sum(Nx.multiply(Nx.cos(t.x), call.(%{t | name => &1})))
        gradients = SelectiveScan.grad(Nx.cos(t.x), t.x, t.dt, t.a, t.b, t.c, options)
        assert {name, Nx.Defn.grad(t[name], loss)} == {name, gradients[name]}
      end

      a = Nx.sigmoid(t.x)
      expected = AssociativeScan.linear_recurrence(a, t.x)
      assert Nx.Defn.jit(&Native.linear_recurrence(a, &1)).(t.x) == expected
      assert Nx.Defn.jit(&Native.linear_recurrence(&1, t.x)).(a) == expected
      {_, db} = AssociativeScan.grad(:linear_recurrence, t.dt, a, t.x)
      same(Nx.Defn.grad(t.x, &Nx.sum(Nx.multiply(t.dt, Native.linear_recurrence(a, &1)))), db)
    end

    test "the eager scan is this operation, where one of its tensors is an expression" do
      t = tensors(11, [:d])
      call = &SelectiveScan.scan(&1.x, &1.dt, &1.a, &1.b, &1.c, d: &1.d, dt_softplus: true)
      assert Nx.Defn.jit(call).(t) == call.(t)
      assert Nx.Defn.jit(&call.(%{t | d: &1})).(t.d) == call.(t)
      gradient = Nx.Defn.grad(t, &Nx.sum(Nx.multiply(Nx.cos(t.dt), call.(&1))))
      assert gradient == SelectiveScan.grad(Nx.cos(t.dt), t.x, t.dt, t.a, t.b, t.c, d: t.d, dt_softplus: true)

      placed = &SelectiveScan.scan(&1.x, &1.dt, &1.a, &1.b, &1.c, backend: :host)
      assert_raise Error, ~r/unknown option :backend/, fn -> Nx.Defn.jit(placed).(t) end
    end

    test "halves keep their type, other types are cast" do
      t = tensors(5, [], {:bf, 16})
      assert scan(t.x, t.dt, t.a, t.b, t.c).type == {:bf, 16}
      gradient = Nx.Defn.grad(t, &square_loss(&1, {:native, []}))
      assert gradient.x.type == {:bf, 16} and gradient.a.type == {:f, 32}

      wide = Map.new(tensors(5, []), fn {name, value} -> {name, Nx.as_type(value, {:f, 64})} end)
      assert scan(wide.x, wide.dt, wide.a, wide.b, wide.c).type == {:f, 32}
    end

    test "bad calls name the argument" do
      t = tensors(6, [])
      assert_raise Error, ~r/dt must be/, fn -> scan(t.x, t.dt[[.., 0..3, ..]], t.a, t.b, t.c) end
      unknown = fn -> Native.selective_scan(t.x, t.dt, t.a, t.b, t.c, softplus: true) end
      assert_raise Error, ~r/unknown option :softplus/, unknown
      vectorized = Nx.vectorize(t.x, :batch)
      assert_raise Error, ~r/vectorized/, fn -> Native.selective_scan(vectorized, t.dt, t.a, t.b, t.c) end
    end

    test "cumulative operations and the recurrence give the eager call's bits" do
      x = tensors(7, []).x

      for name <- [:cumsum, :cumprod, :cummax, :cummin], axis <- [0, 1, 2], reverse <- [false, true] do
        options = [axis: axis, reverse: reverse]
        out = Nx.Defn.jit(&apply(Native, name, [&1, options])).(x)
        assert out == apply(AssociativeScan, name, [x, options])
      end

      a = Nx.sigmoid(x)
      out = Nx.Defn.jit(&Native.linear_recurrence(&1, &2, axis: 1)).(a, x)
      assert out == AssociativeScan.linear_recurrence(a, x, axis: 1)
    end

    test "their gradients are the eager call's" do
      x = Nx.put_slice(tensors(8, []).x, [0, 3, 1], Nx.tensor([[[0.0]]]))
      dy = Nx.cos(Nx.add(x, 1))
      a = Nx.sigmoid(x)

      for name <- [:cumsum, :cumprod, :cummax, :cummin], axis <- [0, 1, 2], reverse <- [false, true] do
        options = [axis: axis, reverse: reverse]
        out = Nx.Defn.grad(x, &Nx.sum(Nx.multiply(dy, apply(Native, name, [&1, options]))))
        same(out, AssociativeScan.grad(name, dy, x, options))
      end

      for reverse <- [false, true] do
        options = [axis: 1, reverse: reverse]
        loss = &Nx.sum(Nx.multiply(dy, Native.linear_recurrence(elem(&1, 0), elem(&1, 1), options)))
        {da, db} = Nx.Defn.grad({a, x}, loss)
        {expected_da, expected_db} = AssociativeScan.grad(:linear_recurrence, dy, a, x, options)
        same(da, expected_da)
        same(db, expected_db)
      end
    end

    # ---- the operator of Mamba-2 -----------------------------------------------------------------------------

    alias ExPhil.Native.StateSpaceDuality

    @duality_options [:d, :z, :dt_bias, :initial_state]

    # batch 2, seq 6, heads 4, headdim 3, groups 2, state 5
    defp duality_tensors(type \\ {:f, 32}) do
      shapes = [x: {2, 6, 4, 3}, dt: {2, 6, 4}, a: {4}, b: {2, 6, 2, 5}, c: {2, 6, 2, 5}]
      more = [d: {4}, z: {2, 6, 4, 3}, dt_bias: {4}, initial_state: {2, 4, 3, 5}]

      {tensors, _} =
        Enum.map_reduce(shapes ++ more, Nx.Random.key(21), fn {name, shape}, key ->
          {value, key} = Nx.Random.normal(key, shape: shape)
          {{name, value}, key}
        end)

      Map.new(tensors, fn
        {:a, a} -> {:a, Nx.negate(Nx.abs(a))}
        {name, value} -> {name, if(name in [:x, :dt, :b, :c, :z], do: Nx.as_type(value, type), else: value)}
      end)
    end

    # Step by step in Nx: {y, final state}.
    defp plain_duality(t) do
      dt = Nx.log1p(Nx.exp(Nx.add(t.dt, Map.get(t, :dt_bias, 0))))
      start = Map.get_lazy(t, :initial_state, fn -> Nx.broadcast(0.0, {2, 4, 3, 5}) end)
      # A group for each head.
      [b, c] =
        for v <- [t.b, t.c],
            do: v |> Nx.new_axis(3) |> Nx.broadcast({2, 6, 2, 2, 5}) |> Nx.reshape({2, 6, 4, 5})

      {state, rows} =
        Enum.reduce(0..5, {start, []}, fn i, {s, rows} ->
          dt = dt[[.., i]] |> Nx.new_axis(-1) |> Nx.new_axis(-1)
          [x, b, c] = for {v, axis} <- [{t.x, 3}, {b, 2}, {c, 2}], do: Nx.new_axis(v[[.., i]], axis)

          s =
            Nx.add(
              Nx.multiply(Nx.exp(Nx.multiply(dt, Nx.reshape(t.a, {4, 1, 1}))), s),
              Nx.multiply(Nx.multiply(dt, x), b)
            )

          {s, [Nx.sum(Nx.multiply(s, c), axes: [3]) | rows]}
        end)

      y = rows |> Enum.reverse() |> Nx.stack(axis: 1)
      y = if t[:d], do: Nx.add(y, Nx.multiply(Nx.reshape(t.d, {4, 1}), t.x)), else: y
      {if(t[:z], do: Nx.multiply(y, Nx.multiply(t.z, Nx.sigmoid(t.z))), else: y), state}
    end

    defp duality(module, function, t, options),
      do:
        apply(module, function, [
          t.x,
          t.dt,
          t.a,
          t.b,
          t.c,
          Map.to_list(Map.take(t, @duality_options)) ++ options
        ])

    test "the operator of Mamba-2 gives the eager call's bits, in a defn and outside" do
      for type <- [{:f, 32}, {:bf, 16}],
          optional <- [[], @duality_options],
          options <- [[], [dt_softplus: true, return_state: true], [dt_range: {0.1, 0.5}]] do
        t = Map.take(duality_tensors(type), [:x, :dt, :a, :b, :c] ++ optional)
        expected = duality(StateSpaceDuality, :scan, t, options)
        assert duality(Native, :state_space_duality, t, options) == expected
        assert Nx.Defn.jit(&duality(Native, :state_space_duality, &1, options)).(t) == expected
        # The eager call of expressions is this operation.
        assert Nx.Defn.jit(&duality(StateSpaceDuality, :scan, &1, options)).(t) == expected
      end
    end

    test "the gradients of the operator of Mamba-2 are those of a plain one in Nx, and the eager call's bits" do
      for optional <- [[], [:z], @duality_options], final <- [false, true] do
        t = Map.take(duality_tensors(), [:x, :dt, :a, :b, :c] ++ optional)
        dy = Nx.cos(Nx.iota({2, 6, 4, 3}))
        d_final = Nx.sin(Nx.iota({2, 4, 3, 5}))

        weigh = fn {y, state} ->
          sum = &Nx.sum(Nx.multiply(&1, &2))
          if final, do: Nx.add(sum.(y, dy), sum.(state, d_final)), else: sum.(y, dy)
        end

        options = [dt_softplus: true, return_state: final]

        of_native = fn t ->
          out = duality(Native, :state_space_duality, t, options)
          weigh.(if final, do: out, else: {out, nil})
        end

        gradient = Nx.Defn.grad(t, of_native)
        expected = Nx.Defn.grad(t, &weigh.(plain_duality(&1)))
        for {name, value} <- gradient, do: close(value, expected[name], 2.0e-5)

        given =
          Map.to_list(Map.take(t, @duality_options)) ++ if(final, do: [d_final_state: d_final], else: [])

        eager = StateSpaceDuality.grad(dy, t.x, t.dt, t.a, t.b, t.c, [dt_softplus: true] ++ given)
        assert gradient == eager
      end
    end

    test "the operator of Mamba-2 casts, and refuses, as the eager call does" do
      t = duality_tensors()
      run = &Native.state_space_duality(&1.x, &1.dt, &1.a, &1.b, &1.c, &2)
      assert run.(%{t | x: Nx.as_type(t.x, {:f, 64}), dt: Nx.iota({2, 6, 4})}, []).type == {:f, 32}

      assert_raise Error, ~r/x must be {batch, seq, heads, headdim}/, fn ->
        run.(%{t | x: t.dt}, return_state: true)
      end

      assert_raise Error, ~r/b must be {batch, seq, groups, state}/, fn ->
        run.(%{t | b: t.dt}, return_state: true)
      end

      assert_raise Error, ~r/a must be {heads}/, fn -> run.(%{t | a: t.dt}, []) end
      assert_raise Error, ~r/a must be real/, fn -> run.(%{t | a: Nx.as_type(t.a, {:c, 64})}, []) end
      assert_raise Error, ~r/vectorized/, fn -> run.(%{t | x: Nx.vectorize(t.x, :batch)}, []) end
      assert_raise Error, ~r/unknown option :backend/, fn -> run.(t, backend: :host) end
    end

    # ---- the fused recurrent operators -----------------------------------------------------------------------

    alias ExPhil.Native.RecurrentScan
    alias ExPhil.Native.RecurrentScan.Operators

    # {inputs, [h0: _, c0: _]} of sequences of 6 steps.
    defp recurrent_tensors(row, type \\ {:f, 32}) do
      {batch, seq, hidden} = {2, 6, 3}

      shapes =
        if row.gates > 1,
          do: [{batch, seq, row.gates * hidden}, {hidden, row.gates * hidden}],
          else: Enum.map(row.inputs, fn _ -> {batch, seq, hidden} end)

      {values, _} =
        Enum.map_reduce(shapes ++ Enum.map(row.states, fn _ -> {batch, hidden} end), Nx.Random.key(12), fn
          shape, key -> Nx.Random.normal(key, shape: shape)
        end)

      values = Enum.map(values, &Nx.as_type(&1, type))
      values = if row.name == :liquid, do: List.update_at(values, 0, &Nx.add(0.3, Nx.abs(&1))), else: values
      {inputs, states} = Enum.split(values, length(row.inputs))
      {Enum.map(inputs, &Nx.as_type(&1, type)), Enum.zip(row.states, states)}
    end

    defp native(row, inputs, options), do: apply(Native, row.name, inputs ++ [options])
    defp eager(row, inputs, options), do: apply(RecurrentScan, row.name, inputs ++ [options])

    defp both({h, {final_h, final_c}}), do: {h, final_h, final_c}
    defp both(out), do: out

    # Step by step in Nx: {h, last states}.
    defp plain_recurrence(row, [first | more] = inputs, states) do
      {_, seq, _} = first.shape

      {state, rows} =
        Enum.reduce(0..(seq - 1), {Keyword.values(states), []}, fn t, {state, rows} ->
          x = if row.gates > 1, do: [first[[.., t, ..]] | more], else: Enum.map(inputs, & &1[[.., t, ..]])
          state = plain_step(row.name, x, state)
          {state, [hd(state) | rows]}
        end)

      {rows |> Enum.reverse() |> Nx.stack(axis: 1), state}
    end

    defp plain_step(:gru_scan, [wx, r], [h]) do
      rh = Nx.dot(h, r)
      [{xr, hr}, {xz, hz}, {xn, hn}] = Enum.zip(parts(wx, 3), parts(rh, 3))
      z = Nx.sigmoid(Nx.add(xz, hz))
      n = Nx.tanh(Nx.add(xn, Nx.multiply(Nx.sigmoid(Nx.add(xr, hr)), hn)))
      [mix(z, h, n)]
    end

    defp plain_step(:lstm_scan, [wx, r], [h, c]) do
      [i, f, g, o] = wx |> Nx.add(Nx.dot(h, r)) |> parts(4)
      c = Nx.add(Nx.multiply(Nx.sigmoid(f), c), Nx.multiply(Nx.sigmoid(i), Nx.tanh(g)))
      [Nx.multiply(Nx.sigmoid(o), Nx.tanh(c)), c]
    end

    defp plain_step(:minlstm, [f, i, v], [h]) do
      {f, i} = {Nx.sigmoid(f), Nx.sigmoid(i)}
      total = Nx.add(Nx.add(f, i), 1.0e-6)
      [Nx.divide(Nx.add(Nx.multiply(f, h), Nx.multiply(i, v)), total)]
    end

    defp plain_step(:diag_linear, [a, b], [h]), do: [Nx.add(Nx.multiply(Nx.sigmoid(a), h), b)]

    defp plain_step(:liquid, [tau, v], [h]) do
      decay = Nx.exp(Nx.divide(-1, tau))
      [Nx.add(v, Nx.multiply(Nx.subtract(h, v), decay))]
    end

    defp plain_step(:elu_gru, [z, v], [h]) do
      raised = Nx.select(Nx.greater(v, 0), Nx.add(v, 1), Nx.exp(Nx.min(v, 0)))
      [mix(Nx.sigmoid(z), raised, h)]
    end

    defp plain_step(_min, [z, v], [h]), do: [mix(Nx.sigmoid(z), v, h)]

    # z a + (1 - z) b
    defp mix(z, a, b), do: Nx.add(Nx.multiply(z, a), Nx.multiply(Nx.subtract(1, z), b))

    defp parts(tensor, count) do
      size = div(elem(tensor.shape, 1), count)
      for i <- 0..(count - 1), do: Nx.slice_along_axis(tensor, i * size, size, axis: 1)
    end

    test "the fused recurrent operators give the eager call's bits, in a defn and outside" do
      for row <- Operators.all(), type <- [{:f, 32}, {:bf, 16}] do
        {inputs, states} = recurrent_tensors(row, type)

        for options <- [[], states, [return_state: true], [return_state: true] ++ states] do
          expected = eager(row, inputs, options)
          assert native(row, inputs, options) == expected
          call = fn inputs -> row |> native(Tuple.to_list(inputs), options) |> both() end
          assert Nx.Defn.jit(call).(List.to_tuple(inputs)) == both(expected)
          # The eager call of expressions is this operation.
          call = fn inputs -> row |> eager(Tuple.to_list(inputs), options) |> both() end
          assert Nx.Defn.jit(call).(List.to_tuple(inputs)) == both(expected)
        end
      end
    end

    test "their activated inputs are those after the activations" do
      for name <- [:mingru, :minlstm, :real_gru, :diag_linear] do
        row = Operators.fetch!(name)
        {inputs, states} = recurrent_tensors(row)
        {gates, [last]} = Enum.split(inputs, -1)
        active = Enum.map(gates, &Nx.sigmoid/1) ++ [last]
        call = &native(row, Tuple.to_list(&1), [activated: true] ++ states)
        close(Nx.Defn.jit(call).(List.to_tuple(active)), native(row, inputs, states), 1.0e-6)
      end
    end

    test "their gradients are those of a plain recurrence in Nx, and the eager call's bits" do
      for row <- Operators.all(), final <- [false, true] do
        {inputs, states} = recurrent_tensors(row)
        tensors = Map.new(Enum.zip(row.inputs, inputs) ++ states)
        dh = Nx.cos(Nx.iota({2, 6, 3}))
        d_final = for name <- Operators.d_final(row), do: {name, Nx.sin(Nx.iota({2, 3}))}
        split = fn t -> {Enum.map(row.inputs, &t[&1]), Enum.map(row.states, &{&1, t[&1]})} end

        weigh = fn h, state ->
          sum = &Nx.sum(Nx.multiply(&1, &2))
          finals = if final, do: Enum.zip_with(Keyword.values(d_final), state, sum), else: []
          Enum.reduce(finals, sum.(dh, h), &Nx.add/2)
        end

        of_native = fn t ->
          {inputs, states} = split.(t)
          out = row |> native(inputs, [return_state: true] ++ states) |> both() |> Tuple.to_list()
          if final, do: weigh.(hd(out), tl(out)), else: weigh.(native(row, inputs, states), [])
        end

        of_plain = fn t ->
          {inputs, states} = split.(t)
          {h, state} = plain_recurrence(row, inputs, states)
          weigh.(h, state)
        end

        gradient = Nx.Defn.grad(tensors, of_native)
        expected = Nx.Defn.grad(tensors, of_plain)
        for {name, value} <- gradient, do: close(value, expected[name], 2.0e-5)

        options = states ++ if(final, do: d_final, else: [])
        eager = apply(RecurrentScan, :"#{row.name}_grad", [dh | inputs] ++ [options])
        assert {row.name, gradient} == {row.name, eager}
      end
    end

    test "the fused recurrent operators cast, and refuse, as the eager calls do" do
      x = Nx.iota({1, 2, 3}, type: {:f, 64})
      assert Native.mingru(x, Nx.as_type(x, {:s, 32})).type == {:f, 32}
      assert_raise Error, ~r/gates must be {batch, seq, hidden}/, fn -> Native.mingru(x[0], x[0]) end
      assert_raise Error, ~r/r must be {hidden, 3 hidden}/, fn -> Native.gru_scan(x, x[0]) end
      assert_raise Error, ~r/unknown option :c0/, fn -> Native.gru_scan(x, x[0], c0: x[0]) end
      assert_raise Error, ~r/vectorized/, fn -> Native.mingru(Nx.vectorize(x, :batch), x) end
      assert_raise Error, ~r/unknown option :backend/, fn -> Native.mingru(x, x, backend: :host) end
    end
  end
end
