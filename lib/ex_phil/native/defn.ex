defn? = Code.ensure_loaded?(Nx) and Code.ensure_loaded?(Nx.Defn)

if defn? and not function_exported?(Nx, :block, 4) do
  why =
    "ExPhil.Native.Defn needs Nx 0.12 or later, and is left out: this is Nx #{Application.spec(:nx, :vsn)}"

  IO.warn(why, [])
end

if defn? and function_exported?(Nx, :block, 4) do
  defmodule ExPhil.Native.Defn do
    @moduledoc """
    The scans as operations of `Nx.Defn`: inside `defn`, Axon layers and training loops, with gradients.

        defn layer(x, dt, a, b, c, params) do
          ExPhil.Native.Defn.selective_scan(x, dt, a, b, c, d: params.d, dt_softplus: true)
        end

    This module exists if Nx 0.12 or later was available when the library was compiled.

    ## Where the kernels run

    Each operation is an `Nx.block/4` of an `ExPhil.Native.Block`. Its default body calls the library through
    `Nx.runtime_call/4`, so it works with every compiler and backend; tensors are then copied through host memory. With
    EXLA 0.12 or later and after `register/0`, the block becomes an XLA custom call instead: the kernel runs on XLA's
    stream, without copying the tensors. `ExPhil.Native.info/0` reports under `:xla` whether that is the case.

    ## Types

    Tensors are cast as `ExPhil.Native.SelectiveScan` casts Nx tensors: `x` of another numeric type to f32, the others to
    the type that goes with `x`. Vectorized tensors are refused; `Nx.devectorize/2` them first.

    ## Gradients

    They equal `ExPhil.Native.SelectiveScan.grad/7` and `ExPhil.Native.AssociativeScan.grad/4`. There is no second
    derivative of `selective_scan/6` or `state_space_duality/6`. For complex tensors they follow Nx's convention, dL/dRe - i dL/dIm, which
    is the conjugate of the eager calls'.
    """

    import Nx.Defn

    import ExPhil.Native.Defn.Blocks

    use ExPhil.Native.Raising

    alias ExPhil.Native.{Block, Options, XLA}
    alias ExPhil.Native.Defn.{Duality, Recurrent}

    @doc """
    Registers the custom calls with the XLA that EXLA has loaded. Call it once, after EXLA has started and before the first
    computation is compiled. Without it, or if it fails, every operation goes through host memory.

    Returns `:ok`, or an error of kind `:unsupported` that says what is missing.
    """
    fallible register() :: :ok
    def register, do: XLA.register()

    @type tensor :: Nx.Tensor.t() | number()

    @scan_options [
                    :d,
                    :z,
                    :dt_bias,
                    :initial_state,
                    :discretization,
                    :dt_softplus,
                    :dt_range,
                    :reverse,
                    :return_state
                  ] ++
                    [:algorithm]

    @doc """
    `ExPhil.Native.SelectiveScan.scan/6` as an operation: y, of the shape and the type of `x`, or `{y, final_state}` with
    `return_state: true`, {batch, dim, state}. `x` and `dt` are {batch, seq, dim}, `a` {dim, state}, `b` and `c` {batch, seq, state}. Raises
    `ExPhil.Native.Error`.

    Shapes and options are those of the eager call, without `:backend` and `:device`: the compiler chooses the device.
    Differentiable in `x dt a b c` and in `:d :z :dt_bias :initial_state`.
    """
    @spec selective_scan(tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) ::
            Nx.Tensor.t() | {Nx.Tensor.t(), Nx.Tensor.t()}
    deftransform selective_scan(x, dt, a, b, c, options \\ []) do
      options = Options.read!(options, @scan_options, & &1)
      tensors = cast_operands({x, dt, a, b, c}, options)
      {given, values} = tensors |> Map.take([:d, :z, :dt_bias, :initial_state]) |> Enum.unzip()
      main = Enum.map([:x, :dt, :a, :b, :c], &tensors[&1])
      static = Keyword.drop(options, [:d, :z, :dt_bias, :initial_state])

      block = %Block{
        target: "exphil_selective_scan",
        function: :scan,
        operands: given,
        options: static,
        results: if(options[:return_state], do: [:final_state], else: []),
        attributes: scan_attributes(static, given, if(options[:return_state], do: [:final_state], else: []))
      }

      out = run_block(block, main ++ values, scan_template(tensors, options))
      with_gradient(out, main ++ values, &scan_gradient(&1, main ++ values, given, static, tensors))
    end

    @doc """
    `ExPhil.Native.StateSpaceDuality.scan/6`, the operator of Mamba-2, as an operation: y, or `{y, final_state}` with
    `return_state: true`.

    Shapes and options are those of the eager call, without `:backend` and `:device`. Differentiable, once, in `x dt a b c` and in
    `:d :z :dt_bias :initial_state`; the gradients are those of `ExPhil.Native.StateSpaceDuality.grad/7`.
    """
    @spec state_space_duality(tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) ::
            Nx.Tensor.t() | {Nx.Tensor.t(), Nx.Tensor.t()}
    deftransform(state_space_duality(x, dt, a, b, c, options \\ []),
      do: Duality.run([x, dt, a, b, c], options)
    )

    @doc "The cumulative sum, of the type and the shape of `x`: `ExPhil.Native.AssociativeScan.cumsum/2`. Options: `:axis :reverse :compensated`."
    @spec cumsum(tensor(), keyword()) :: Nx.Tensor.t()
    deftransform(cumsum(x, options \\ []), do: cumulative(:cumsum, x, options))

    @doc "The cumulative product, of the type and the shape of `x`: `ExPhil.Native.AssociativeScan.cumprod/2`. Options: `:axis :reverse`."
    @spec cumprod(tensor(), keyword()) :: Nx.Tensor.t()
    deftransform(cumprod(x, options \\ []), do: cumulative(:cumprod, x, options))

    @doc "The running maximum, of the type and the shape of `x`: `ExPhil.Native.AssociativeScan.cummax/2`. Its gradient goes to the first of equal maxima."
    @spec cummax(tensor(), keyword()) :: Nx.Tensor.t()
    deftransform(cummax(x, options \\ []), do: cumulative(:cummax, x, options))

    @doc "The running minimum, of the type and the shape of `x`: `ExPhil.Native.AssociativeScan.cummin/2`. Its gradient goes to the first of equal minima."
    @spec cummin(tensor(), keyword()) :: Nx.Tensor.t()
    deftransform(cummin(x, options \\ []), do: cumulative(:cummin, x, options))

    @doc """
    h_t = a_t h_(t-1) + b_t from h = 0, of the shape and the type of `b`: `ExPhil.Native.AssociativeScan.linear_recurrence/3`. Options:
    `:axis :reverse`.
    """
    @spec linear_recurrence(tensor(), tensor(), keyword()) :: Nx.Tensor.t()
    deftransform linear_recurrence(a, b, options \\ []) do
      b = as_floating(Nx.to_tensor(b))
      a = Nx.as_type(Nx.to_tensor(a), b.type)
      {axis, reverse} = recurrence_options(b, options)
      h = recurrence(a, b, axis, reverse)

      with_gradient(h, [a, b], fn dh ->
        # db_t = dh_t + a_(t+1) db_(t+1);  da_t = db_t h_(t-1). Halves are computed in f32 and rounded once.
        {wide_a, wide_b} = {wide(a), wide(b)}
        h = if wide_a.type == a.type, do: h, else: recurrence(wide_a, wide_b, axis, reverse)
        db = recurrence(earlier(wide_a, axis, not reverse, 0), wide(dh), axis, not reverse)
        da = Nx.multiply(db, earlier(h, axis, reverse, 0))
        [Nx.as_type(da, a.type), Nx.as_type(db, b.type)]
      end)
    end

    @typedoc "h, or with `return_state: true` h and the last state, of an LSTM `{final_h, final_c}`."
    @type recurrence :: Nx.Tensor.t() | {Nx.Tensor.t(), Nx.Tensor.t() | {Nx.Tensor.t(), Nx.Tensor.t()}}

    @doc """
    `ExPhil.Native.RecurrentScan.gru_scan/3` as an operation: h, or `{h, final_h}` with `return_state: true`.

    This and the seven operations below take the options of the eager call (`:h0 :return_state`, and what its table says), without
    `:backend` and `:device`. They are differentiable in their inputs and in `:h0` and `:c0`, once. The gradients are those of the
    eager call's `_grad`.
    """
    @spec gru_scan(tensor(), tensor(), keyword()) :: recurrence()
    deftransform(gru_scan(wx, r, options \\ []), do: Recurrent.run(:gru_scan, [wx, r], options))

    @doc """
    `ExPhil.Native.RecurrentScan.lstm_scan/3` as an operation: h, {batch, seq, hidden}, or `{h, {final_h, final_c}}` with `return_state: true`.
    `wx` is {batch, seq, 4 hidden}, `r` {hidden, 4 hidden}.
    """
    @spec lstm_scan(tensor(), tensor(), keyword()) :: recurrence()
    deftransform(lstm_scan(wx, r, options \\ []), do: Recurrent.run(:lstm_scan, [wx, r], options))

    @doc """
    `ExPhil.Native.RecurrentScan.mingru/3` as an operation: h, or `{h, final_h}` with `return_state: true`. `gates` and `candidates` are {batch, seq,
    hidden}, as h.
    """
    @spec mingru(tensor(), tensor(), keyword()) :: recurrence()
    deftransform(mingru(gates, candidates, options \\ []),
      do: Recurrent.run(:mingru, [gates, candidates], options)
    )

    @doc """
    `ExPhil.Native.RecurrentScan.minlstm/4` as an operation: h, or `{h, final_h}` with `return_state: true`. `forget_gates`, `input_gates` and `candidates` are {batch, seq,
    hidden}, as h.
    """
    @spec minlstm(tensor(), tensor(), tensor(), keyword()) :: recurrence()
    deftransform(minlstm(forget_gates, input_gates, candidates, options \\ []),
      do: Recurrent.run(:minlstm, [forget_gates, input_gates, candidates], options)
    )

    @doc """
    `ExPhil.Native.RecurrentScan.elu_gru/3` as an operation: h, or `{h, final_h}` with `return_state: true`. `gates` and `candidates` are {batch, seq,
    hidden}, as h.
    """
    @spec elu_gru(tensor(), tensor(), keyword()) :: recurrence()
    deftransform(elu_gru(gates, candidates, options \\ []),
      do: Recurrent.run(:elu_gru, [gates, candidates], options)
    )

    @doc """
    `ExPhil.Native.RecurrentScan.real_gru/3` as an operation: h, or `{h, final_h}` with `return_state: true`. `gates` and `candidates` are {batch, seq,
    hidden}, as h.
    """
    @spec real_gru(tensor(), tensor(), keyword()) :: recurrence()
    deftransform(real_gru(gates, candidates, options \\ []),
      do: Recurrent.run(:real_gru, [gates, candidates], options)
    )

    @doc """
    `ExPhil.Native.RecurrentScan.diag_linear/3` as an operation: h, or `{h, final_h}` with `return_state: true`. `a` and `b` are {batch, seq,
    hidden}, as h.
    """
    @spec diag_linear(tensor(), tensor(), keyword()) :: recurrence()
    deftransform(diag_linear(a, b, options \\ []), do: Recurrent.run(:diag_linear, [a, b], options))

    @doc """
    `ExPhil.Native.RecurrentScan.liquid/3` as an operation: h, or `{h, final_h}` with `return_state: true`. `tau` and `activation` are {batch, seq,
    hidden}, as h.
    """
    @spec liquid(tensor(), tensor(), keyword()) :: recurrence()
    deftransform(liquid(tau, activation, options \\ []),
      do: Recurrent.run(:liquid, [tau, activation], options)
    )

    # ---- the selective scan ----------------------------------------------------------------------------------

    defp cast_operands({x, dt, a, b, c}, options) do
      x = as_floating(Nx.to_tensor(x))
      a = Nx.to_tensor(a)
      {state_type, projection_type} = if complex?(a), do: {{:c, 64}, {:c, 64}}, else: {{:f, 32}, x.type}
      types = %{d: {:f, 32}, z: x.type, dt_bias: {:f, 32}, initial_state: state_type}

      required = %{
        x: x,
        dt: Nx.as_type(Nx.to_tensor(dt), x.type),
        a: Nx.as_type(a, state_type),
        b: Nx.as_type(Nx.to_tensor(b), projection_type),
        c: Nx.as_type(Nx.to_tensor(c), projection_type)
      }

      for {name, type} <- types, options[name] != nil, into: required do
        {name, Nx.as_type(Nx.to_tensor(options[name]), type)}
      end
      |> Map.new(&refuse_vectorized/1)
    end

    defp scan_template(%{x: x, a: a}, options) do
      y = Nx.template(x.shape, x.type, names: x.names)

      if options[:return_state],
        do: {y, Nx.template({elem(x.shape, 0), elem(x.shape, 2), elem(a.shape, 1)}, a.type)},
        else: y
    end

    defp scan_attributes(options, operands, results) do
      range =
        case options[:dt_range] do
          nil -> []
          {min, max} -> [{"dt_min", min / 1}, {"dt_max", max / 1}]
        end

      [
        {"operands", Enum.join(operands, " ")},
        {"results", Enum.join(results, " ")},
        {"discretization", to_string(options[:discretization] || :zoh)},
        {"direction", if(options[:reverse], do: "reverse", else: "forward")},
        {"dt_softplus", options[:dt_softplus] || false}
      ] ++ range ++ if(options[:algorithm], do: [{"algorithm", to_string(options[:algorithm])}], else: [])
    end

    # g: dy, or {dy, d_final_state}. Returns the gradients of the tensors, in their order.
    defp scan_gradient(g, tensors, given, static, %{x: x} = named) do
      {dy, more, operands} =
        case g do
          {dy, d_final} ->
            {dy, [d_final |> broadcast_to(state_shape(named)) |> conjugate(named.a)], [:d_final_state]}

          dy ->
            {dy, [], []}
        end

      dy = dy |> broadcast_to(x.shape) |> Nx.as_type(x.type)
      more = Enum.map(more, &Nx.as_type(&1, named.a.type))
      static = Keyword.drop(static, [:return_state, :algorithm])
      results = [:x, :dt, :a, :b, :c | given]

      block = %Block{
        target: "exphil_selective_scan_grad",
        function: :grad,
        operands: given ++ operands,
        results: results,
        options: static,
        attributes: scan_attributes(static, given ++ operands, results)
      }

      templates = tensors |> Enum.map(&Nx.template(&1.shape, &1.type)) |> List.to_tuple()

      block
      |> run_block([dy | tensors] ++ more, templates)
      |> Tuple.to_list()
      |> Enum.map(&conjugate(&1, &1))
    end

    defp state_shape(%{x: x, a: a}), do: {elem(x.shape, 0), elem(x.shape, 2), elem(a.shape, 1)}

    # Where `like` is complex: the library's gradient is dL/dRe + i dL/dIm, Nx's its conjugate.
    defp conjugate(tensor, like), do: if(complex?(like), do: Nx.conjugate(tensor), else: tensor)

    # ---- associative scans -----------------------------------------------------------------------------------

    defp cumulative(op, x, options) do
      x = as_floating(Nx.to_tensor(x))
      {axis, reverse} = recurrence_options(x, Keyword.delete(options, :compensated))
      compensated = op == :cumsum and Options.boolean(options, :compensated, false)
      y = cumulative(op, x, axis, reverse, compensated)
      with_gradient(y, [x], &[cumulative_gradient(op, x, y, &1, axis, reverse, compensated)])
    end

    defp cumulative(op, x, axis, reverse, compensated) do
      options = [axis: axis, reverse: reverse] ++ if(op == :cumsum, do: [compensated: compensated], else: [])

      block = %Block{
        target: "exphil_scan_cumulative",
        function: op,
        options: options,
        attributes: [{"op", to_string(op)}, {"compensated", compensated} | axis_attributes(axis, reverse)]
      }

      run_block(block, [x], Nx.template(x.shape, x.type, names: x.names))
    end

    # As core/associative/gradient.hpp: each is a scan in the other direction and elementwise operations.
    defp cumulative_gradient(:cumsum, x, _y, dy, axis, reverse, compensated),
      do: cumulative(:cumsum, Nx.as_type(broadcast_to(dy, x.shape), x.type), axis, not reverse, compensated)

    defp cumulative_gradient(op, x, y, dy, axis, reverse, _compensated) do
      {wide_x, dy} = {wide(x), wide(broadcast_to(dy, x.shape))}

      {factor, scale} =
        if op == :cumprod do
          {wide_x, earlier(cumulative(op, wide_x, axis, reverse, false), axis, reverse, 1)}
        else
          changes = changes(op, wide_x, wide(y), axis, reverse)
          {Nx.subtract(1, changes), changes}
        end

      s = recurrence(earlier(Nx.as_type(factor, dy.type), axis, not reverse, 0), dy, axis, not reverse)
      s = if op == :cumprod, do: Nx.multiply(scale, s), else: Nx.select(scale, s, 0)
      Nx.as_type(s, x.type)
    end

    # 1 where the extremum changes: at the first element, and where an element is beyond all before it. A NaN is the
    # last extremum.
    defp changes(op, x, y, axis, reverse) do
      before = earlier(y, axis, reverse, 0)
      kept = if op == :cummax, do: Nx.less_equal(x, before), else: Nx.greater_equal(x, before)
      first = earlier(Nx.broadcast(Nx.u8(0), x.shape), axis, reverse, 1)
      Nx.logical_or(first, Nx.logical_not(Nx.logical_or(kept, Nx.is_nan(before))))
    end

    defp recurrence(a, b, axis, reverse) do
      block = %Block{
        target: "exphil_linear_recurrence",
        function: :linear_recurrence,
        options: [axis: axis, reverse: reverse],
        attributes: axis_attributes(axis, reverse)
      }

      run_block(block, [a, b], Nx.template(b.shape, b.type, names: b.names))
    end

    defp axis_attributes(axis, reverse),
      do: [{"axis", axis}, {"direction", if(reverse, do: "reverse", else: "forward")}]

    defp recurrence_options(tensor, options) do
      options = Options.read!(options, [:axis, :reverse], & &1)
      {_, tensor} = refuse_vectorized({:x, tensor})

      axis =
        Nx.Shape.normalize_axis(tensor.shape, options[:axis] || min(1, Nx.rank(tensor) - 1), tensor.names)

      {axis, Options.boolean(options, :reverse, false)}
    end

    # The element before each in the order of the scan, and `first` before the first.
    defp earlier(tensor, axis, reverse, first) do
      steps = Nx.axis_size(tensor, axis)
      edge = Nx.broadcast(Nx.tensor(first, type: tensor.type), put_elem(tensor.shape, axis, 1))

      {from, order} = if reverse, do: {1, &[&1, edge]}, else: {0, &[edge, &1]}

      if steps == 1,
        do: edge,
        else: Nx.concatenate(order.(Nx.slice_along_axis(tensor, from, steps - 1, axis: axis)), axis: axis)
    end

    defp wide(%{type: {kind, 16}} = tensor) when kind in [:f, :bf], do: Nx.as_type(tensor, {:f, 32})
    defp wide(tensor), do: tensor
  end
end
