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

    use ExPhil.Native.Raising

    alias ExPhil.Native.Defn.{Associative, Duality, Recurrent, Scan}
    alias ExPhil.Native.XLA

    @doc """
    Registers the custom calls with the XLA that EXLA has loaded. Call it once, after EXLA has started and before the first
    computation is compiled. Without it, or if it fails, every operation goes through host memory.

    Returns `:ok`, or an error of kind `:unsupported` that says what is missing.
    """
    fallible register() :: :ok
    def register, do: XLA.register()

    @type tensor :: Nx.Tensor.t() | number()

    @doc """
    `ExPhil.Native.SelectiveScan.scan/6` as an operation: y, of the shape and the type of `x`, or `{y, final_state}` with
    `return_state: true`, {batch, dim, state}. `x` and `dt` are {batch, seq, dim}, `a` {dim, state}, `b` and `c` {batch, seq, state}. Raises
    `ExPhil.Native.Error`.

    Shapes and options are those of the eager call, without `:backend` and `:device`: the compiler chooses the device.
    Differentiable in `x dt a b c` and in `:d :z :dt_bias :initial_state`.
    """
    @spec selective_scan(tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) ::
            Nx.Tensor.t() | {Nx.Tensor.t(), Nx.Tensor.t()}
    deftransform(selective_scan(x, dt, a, b, c, options \\ []),
      do: Scan.run({x, dt, a, b, c}, options)
    )

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
    deftransform(cumsum(x, options \\ []), do: Associative.cumulative(:cumsum, x, options))

    @doc "The cumulative product, of the type and the shape of `x`: `ExPhil.Native.AssociativeScan.cumprod/2`. Options: `:axis :reverse`."
    @spec cumprod(tensor(), keyword()) :: Nx.Tensor.t()
    deftransform(cumprod(x, options \\ []), do: Associative.cumulative(:cumprod, x, options))

    @doc "The running maximum, of the type and the shape of `x`: `ExPhil.Native.AssociativeScan.cummax/2`. Its gradient goes to the first of equal maxima."
    @spec cummax(tensor(), keyword()) :: Nx.Tensor.t()
    deftransform(cummax(x, options \\ []), do: Associative.cumulative(:cummax, x, options))

    @doc "The running minimum, of the type and the shape of `x`: `ExPhil.Native.AssociativeScan.cummin/2`. Its gradient goes to the first of equal minima."
    @spec cummin(tensor(), keyword()) :: Nx.Tensor.t()
    deftransform(cummin(x, options \\ []), do: Associative.cumulative(:cummin, x, options))

    @doc """
    h_t = a_t h_(t-1) + b_t from h = 0, of the shape and the type of `b`: `ExPhil.Native.AssociativeScan.linear_recurrence/3`. Options:
    `:axis :reverse`.
    """
    @spec linear_recurrence(tensor(), tensor(), keyword()) :: Nx.Tensor.t()
    deftransform(linear_recurrence(a, b, options \\ []), do: Associative.linear_recurrence(a, b, options))

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
  end
end
