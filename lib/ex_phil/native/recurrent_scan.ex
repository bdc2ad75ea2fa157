defmodule ExPhil.Native.RecurrentScan do
  @moduledoc """
  Recurrences as one call for a whole batch of sequences: GRU and LSTM from the sums of their inputs, and the gated recurrences
  whose gates depend on the inputs alone. Each has a gradient, `NAME_grad`.

  The names, the order of arguments and of gates and the formulas are those of Edifice's fused operators
  (`Edifice.CUDA.FusedScan`), whose layers call them with `ExPhil.Native.Defn` (docs/xla.md).

  | operator | inputs | h_t, from h_(t-1) = h |
  |---|---|---|
  | `gru_scan` | `wx` {batch, seq, 3 hidden}, `r` {hidden, 3 hidden}; gates r, z, n | (1 - z) n + z h with n = tanh(wx_n + r (h R)_n) |
  | `lstm_scan` | `wx` {batch, seq, 4 hidden}, `r` {hidden, 4 hidden}; gates i, f, g, o | o tanh(c) with c' = f c + i g |
  | `mingru` | `gates`, `candidates` | (1 - z) h + z v |
  | `minlstm` | `forget_gates`, `input_gates`, `candidates` | (f h + i v) / (f + i + 1e-6) |
  | `elu_gru` | `gates`, `candidates` | (1 - z) h + z (elu(v) + 1) |
  | `real_gru` | `gates`, `candidates` | (1 - z) h + z v, as `mingru` |
  | `diag_linear` | `a`, `b` | a h + b |
  | `liquid` | `tau`, `activation` | v + (h - v) exp(-1 / tau), the exact step of a liquid neuron; tau in steps, above 0; at 0 h is v, and the gradient by tau is NaN |

  Inputs are {batch, seq, hidden} where the table says nothing else. The sums of `gru_scan` and `lstm_scan` are wx_t + h_(t-1) r,
  with no bias but the one in wx; r, z, i, f and o go through the sigmoid, g through tanh. Of the others z, f, i and a go through
  the sigmoid; candidates, `b` and `activation` (v) are used as they are. `h` is {batch, seq, hidden}: the state after each step.

  `gru_scan` keeps the old state where z is 1, as Edifice's own `gru_scan`, its layers and Axon do. The kernel of Edifice's
  `gru_block` computes (1 - z) h + z n, the opposite; a model that was trained with one cannot be played with the other. There is
  no operator for it here.

  A tensor is an Nx tensor or `{type, shape, binary}` (`ExPhil.Native.Tensor`), of one type of `:f32 :f16 :bf16`; an Nx tensor
  of another type is cast to that of the first. Halves are computed in f32 and rounded once. Results have the form of the first
  input. Inside `defn` or an Axon layer a call with expressions is that of `ExPhil.Native.Defn`.

  ## Options

    * `:h0`, and `:c0` of `lstm_scan` - {batch, hidden}: the states before the first step (zeros)
    * `:return_state` - `true` returns `{h, state}`, the state after the last step, {batch, hidden}; of `lstm_scan` the state is
      `{h, c}` (`false`)
    * `:activated` - `true` where the inputs have gone through the sigmoid (of `elu_gru` also elu + 1) already: for all but
      `gru_scan`, `lstm_scan` and `liquid` (`false`)
    * `:backend`, `:device` - where to run; see `ExPhil.Native.Device`

  ## Gradients

  `NAME_grad(dh, inputs..., options)` is a map with the gradient of each input, and of `:h0` and `:c0` where they are given, from
  `dh`, the gradient of a real loss by h. It takes the options of the operator but `:return_state`, and

    * `:d_final_h`, and `:d_final_c` of `lstm_scan` - {batch, hidden}: the gradient of the loss by the states after the last step
      (zeros). With `:h0` and its gradient that is truncated back-propagation through time: chunk by chunk
    * `:h` - what the operator returned for the same inputs; saves computing it again in f32, but for `gru_scan` and `lstm_scan`

  ## Bits and limits

  The same call gives the same bits in every run and with any number of threads, and a sequence in any batch; the gradient of `r` is
  a sum over the batch, in its order. hidden is at most 16,384 for `gru_scan` and `lstm_scan`. Every invalid argument raises
  `ExPhil.Native.Error` with its name, what was expected and what was given.

      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> z = f32.({1, 3, 1}, [0.5, 0.5, 0.0])
      iex> v = f32.({1, 3, 1}, [2.0, 4.0, 8.0])
      iex> {:f32, {1, 3, 1}, h} = ExPhil.Native.RecurrentScan.mingru(z, v, activated: true, backend: :host)
      iex> for <<v::float-32-little <- h>>, do: v
      [1.0, 2.5, 2.5]
      iex> dh = f32.({1, 3, 1}, [0.0, 0.0, 1.0])
      iex> %{candidates: {:f32, {1, 3, 1}, dv}} =
      ...>   ExPhil.Native.RecurrentScan.mingru_grad(dh, z, v, activated: true, backend: :host)
      iex> for <<v::float-32-little <- dv>>, do: v
      [0.25, 0.5, 0.0]
  """

  alias ExPhil.Native.{Error, Expression, NIF, Options, Queue, Tensor}
  alias ExPhil.Native.RecurrentScan.Operators

  @type tensor :: Tensor.t()

  for %{name: name, inputs: inputs} = row <- Operators.all() do
    variables = Enum.map(inputs, &Macro.var(&1, __MODULE__))
    tensors = Enum.map(inputs, fn _ -> quote(do: tensor()) end)
    gradient = :"#{name}_grad"
    state = if length(row.states) == 2, do: "`{h, {final_h, final_c}}`", else: "`{h, final_h}`"

    @doc """
    h, {batch, seq, hidden}, or #{state} with `return_state: true`, of the type and the form of the first input.

    #{Operators.shapes(row)}, of one type of `:f32 :f16 :bf16`. The formula is in the module's table and the options are below it. Raises
    `ExPhil.Native.Error` with the argument's name.
    """
    @spec unquote(name)(unquote_splicing(tensors), keyword()) ::
            tensor() | {tensor(), tensor() | {tensor(), tensor()}}
    def unquote(name)(unquote_splicing(variables), options \\ []) do
      inputs = unquote(variables)

      if Expression.any?(inputs, options),
        do: Expression.call(unquote(name), inputs ++ [options]),
        else: forward!(unquote(Macro.escape(row)), inputs, options)
    end

    @doc """
    The gradient of `#{name}`: a map with the keys #{Enum.map_join(inputs ++ row.states, ", ", &"`:#{&1}`")} (a state's where it is
    given), each of the type and the shape of its tensor.

    `dh`, {batch, seq, hidden}, is the gradient of a real loss by h. #{Operators.shapes(row)}. The module's part "Gradients" has the options.
    Raises `ExPhil.Native.Error` with the argument's name.
    """
    @spec unquote(gradient)(tensor(), unquote_splicing(tensors), keyword()) :: %{atom() => tensor()}
    def unquote(gradient)(dh, unquote_splicing(variables), options \\ []) do
      gradient!(unquote(Macro.escape(row)), dh, unquote(variables), options)
    end
  end

  defp forward!(row, inputs, options) do
    options = read!(options, row, row.states ++ [:return_state])
    names = [:h | if(options.return_state, do: Operators.final(row), else: [])]
    {[h | final], form} = run!(row, inputs, options, row.states, false, names)
    Operators.with_state([Tensor.unpack(h, form) | Enum.map(final, &unpack_apart(&1, form))])
  end

  defp gradient!(row, dh, inputs, options) do
    known = row.states ++ [:h | Operators.d_final(row)]
    options = options |> read!(row, known) |> put_in([:tensors, :dh], dh)
    names = row.inputs ++ Enum.filter(row.states, &(options.tensors[&1] != nil))
    {gradients, form} = run!(row, inputs, options, [:dh | known], true, names)

    for {name, gradient} <- Enum.zip(names, gradients), into: %{} do
      like_first? = name in row.inputs and name != :r
      {name, if(like_first?, do: Tensor.unpack(gradient, form), else: unpack_apart(gradient, form))}
    end
  end

  # The axes of a state, and of r, are not those of the first input.
  defp unpack_apart(tensor, form), do: Tensor.unpack(tensor, form, fn _ -> [] end)

  defp read!(options, row, tensors) do
    more = if row.activated, do: [:activated], else: []

    Options.read!(options, tensors ++ more ++ [:backend, :device], fn options ->
      %{
        activated: Options.boolean(options, :activated, false),
        return_state: Options.boolean(options, :return_state, false),
        place: Options.place(options),
        tensors: Map.new(tensors -- [:return_state], &{&1, options[&1]})
      }
    end)
  end

  # optional: the names of the operands beside the inputs. results: the names of the results, which come in
  # that order.
  defp run!(row, [first | inputs], options, optional, gradient?, results) do
    {backend, device} = options.place
    [first_name | names] = row.inputs
    {first, form} = Tensor.pack!(first, to_string(first_name), [:f32, :f16, :bf16], options.place)
    pack = fn tensor, name -> tensor |> Tensor.pack!(name, [elem(first, 0)], options.place) |> elem(0) end

    required = Enum.zip_with(names, inputs, &{&1, pack.(&2, to_string(&1))})

    given =
      for name <- optional, name == :dh or options.tensors[name] != nil do
        {name, pack.(options.tensors[name], if(name == :dh, do: "dh", else: inspect(name)))}
      end

    tensors = [{first_name, first} | required] ++ given
    request = %{activated: options.activated, gradient: gradient?, results: results}

    case Queue.run(&NIF.recurrent(backend, device, row.name, tensors, request, &1)) do
      {:ok, results} -> {results, form}
      {:error, reason} -> raise Error.from_nif(reason)
    end
  end
end
