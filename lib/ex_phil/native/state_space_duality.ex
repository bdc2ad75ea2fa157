defmodule ExPhil.Native.StateSpaceDuality do
  @moduledoc """
  The operator of Mamba-2 (state space duality, SSD), on the GPU or the CPU, with its gradient.

      dt' = clip(softplus(dt + dt_bias));  S_t = exp(a dt') S_(t-1) + (dt' x_t) B_t^T;  y_t = (S_t C_t + D x_t) silu(z_t)

  for each head: its state S is a matrix {headdim, state}, and its decay exp(a dt') is one number for each step. Source: Dao and
  Gu, "Transformers are SSMs" (2024), sections 5 and 6; the operands are those of `mamba_chunk_scan_combined` of the package
  mamba_ssm. `ExPhil.Native.SelectiveScan` is the operator of Mamba-1, which has a decay for each element of the state.

  | argument | shape | |
  |---|---|---|
  | `x`, `:z`, `y` | {batch, seq, heads, headdim} | |
  | `dt` | {batch, seq, heads} | the length of a step, in the unit in which `a` is a rate |
  | `a` | {heads} | the rate of a head's decay, negative: -exp(A_log) of a checkpoint |
  | `b`, `c` | {batch, seq, groups, state} | head h uses group h div (heads / groups) |
  | `:d` | {heads} or {heads, headdim} | skip weight |
  | `:dt_bias` | {heads} | added to dt before softplus |
  | `:initial_state`, states | {batch, heads, headdim, state} | zeros where left out |

  A tensor is an Nx tensor or `{type, shape, binary}` (`ExPhil.Native.Tensor`); results have the form of `x`. `x`, `dt`, `b`, `c`
  and `:z` share one type of `:f32 :f16 :bf16`, and `y` has it too; `a`, `:d`, `:dt_bias` and states are `:f32`. An Nx tensor of
  another type is cast. Halves are computed in f32 and rounded once.

  ## Options

    * `:d`, `:z`, `:dt_bias`, `:initial_state` - tensors as above
    * `:dt_softplus` - whether dt goes through softplus (`false`)
    * `:dt_range` - `{min, max}` to clip dt to, applied last; `dt_limit` of mamba_ssm
    * `:return_state` - `true` returns `{y, final_state}` (`false`)
    * `:backend`, `:device` - where to run; see `ExPhil.Native.Device`

  ## Bits and limits

  The same call gives the same bits in every run and with any number of threads, and a sequence in any batch; the gradients of `a`,
  `:d` and `:dt_bias` are sums over the batch, in its order. The two backends differ in their last bits. state is at most 256, and
  heads * headdim at most 2^24.

  Every invalid argument raises `ExPhil.Native.Error` with its name, what was expected and what was given, as the calls of
  `ExPhil.Native.SelectiveScan` do:

      iex> x = {:f32, {1, 1, 1, 1}, <<1.0::float-32-little>>}
      iex> dt = {:f32, {1, 1, 2}, <<1.0::float-32-little, 1.0::float-32-little>>}
      iex> a = {:f32, {1}, <<-1.0::float-32-little>>}
      iex> ExPhil.Native.StateSpaceDuality.scan(x, dt, a, x, x, backend: :host)
      ** (ExPhil.Native.Error) dt must be {batch, seq, heads} = {1, 1, 1}; got shape {1, 1, 2}
  """

  alias ExPhil.Native.{Error, Expression, NIF, Options, Queue, SharedMemory, Tensor}

  @type tensor :: Tensor.t()

  @inputs [:x, :dt, :a, :b, :c]
  @optional [:d, :z, :dt_bias, :initial_state]
  @common @optional ++ [:dt_softplus, :dt_range, :backend, :device]

  # Tensors for each step have the type of x, the others are f32.
  @like_x [:dt, :b, :c, :z, :dy]
  # Results with the axes of x and of dt.
  @named [:y, :x, :z]

  @doc """
  The scan: `y`, or `{y, final_state}` with `return_state: true`. A sequence may come in parts: the final state of one is the
  `:initial_state` of the next, and the bits are those of the whole.

  Inside `defn` or an Axon layer it is `ExPhil.Native.Defn.state_space_duality/6`, an operation of that computation with a
  gradient. That needs Nx 0.12 or later, and takes neither `:backend` nor `:device`.

      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> x = f32.({1, 3, 1, 1}, [1.0, 1.0, 1.0])
      iex> dt = f32.({1, 3, 1}, [1.0, 2.0, 1.0])
      iex> a = f32.({1}, [0.0])
      iex> {:f32, {1, 3, 1, 1}, y} = ExPhil.Native.StateSpaceDuality.scan(x, dt, a, x, x, backend: :host)
      iex> for <<v::float-32-little <- y>>, do: v
      [1.0, 3.0, 4.0]
  """
  @spec scan(tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) :: tensor() | {tensor(), tensor()}
  def scan(x, dt, a, b, c, options \\ []) do
    if Expression.any?([x, dt, a, b, c], options),
      do: Expression.call(:state_space_duality, [x, dt, a, b, c, options]),
      else: scan_now([x, dt, a, b, c], options)
  end

  defp scan_now(inputs, options) do
    options = read!(options, @common ++ [:return_state], [])
    results = [:y | if(options.return_state, do: [:final_state], else: [])]

    case run!(inputs, options, false, results) do
      %{y: y, final_state: state} -> {y, state}
      %{y: y} -> y
    end
  end

  @doc """
  The gradient of `scan/6`: a map with the gradient of every given tensor, under `:x :dt :a :b :c` and, where given,
  `:d :z :dt_bias :initial_state`.

  `dy` is the gradient of a real loss by y, of the shape and the type of `x`. Takes the options of `scan/6` but `:return_state`, and

    * `:d_final_state` - the gradient of the loss by the final state (zeros). With `:initial_state` and its gradient that is
      back-propagation through time part by part

  Each gradient has the shape and the type of its operand; sums are accumulated in f32 or wider. dt receives zero where dt' was
  clipped by `:dt_range`. States are computed again from those before every few steps instead of being stored.

      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> one = f32.({1, 3, 1, 1}, [1.0, 1.0, 1.0])
      iex> dt = f32.({1, 3, 1}, [1.0, 1.0, 1.0])
      iex> a = f32.({1}, [0.0])
      iex> gradients = ExPhil.Native.StateSpaceDuality.grad(one, one, dt, a, one, one, backend: :host)
      iex> {{:f32, {1, 3, 1, 1}, dx}, {:f32, {1}, da}} = {gradients.x, gradients.a}
      iex> {for(<<v::float-32-little <- dx>>, do: v), for(<<v::float-32-little <- da>>, do: v)}
      {[3.0, 2.0, 1.0], [4.0]}
  """
  @spec grad(tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), keyword()) :: %{atom() => tensor()}
  def grad(dy, x, dt, a, b, c, options \\ []) do
    options = read!(options, @common ++ [:d_final_state], dy: dy)
    given = Enum.filter(@optional, &(options.tensors[&1] != nil))
    run!([x, dt, a, b, c], options, true, @inputs ++ given)
  end

  # more: tensors that are arguments, not options.
  defp read!(options, known, more) do
    Options.read!(options, known, fn options ->
      %{
        dt_softplus: Options.boolean(options, :dt_softplus, false),
        dt_range: Options.range(options, :dt_range),
        return_state: Options.boolean(options, :return_state, false),
        place: Options.place(options),
        tensors: more ++ Keyword.take(options, [:d_final_state | @optional])
      }
    end)
  end

  # A map of the results.
  defp run!([x | rest], options, gradient?, results) do
    {backend, device} = options.place
    {x, form} = Tensor.pack!(x, "x", [:f32, :f16, :bf16], options.place)
    required = for {name, tensor} <- Enum.zip(tl(@inputs), rest), do: {name, tensor, to_string(name)}

    more =
      for {name, tensor} <- options.tensors, name == :dy or tensor != nil do
        {name, tensor, if(name == :dy, do: "dy", else: inspect(name))}
      end

    packed = for {name, tensor, shown} <- required ++ more, do: {name, pack!(name, tensor, shown, x, options)}

    request =
      options |> Map.take([:dt_softplus, :dt_range]) |> Map.merge(%{gradient: gradient?, results: results})

    case Queue.run(&NIF.ssd(backend, device, [{:x, x} | packed], request, &1)) do
      {:ok, tensors} ->
        results |> Enum.zip(tensors) |> Map.new(fn {name, t} -> {name, unpack(name, t, form)} end)

      {:error, reason} ->
        raise Error.from_nif(reason)
    end
  end

  @spec pack!(atom(), Tensor.t(), String.t(), Tensor.packed(), %{place: SharedMemory.place()}) ::
          Tensor.packed()
  defp pack!(name, tensor, shown, x, %{place: place}) do
    type = if name in @like_x, do: elem(x, 0), else: :f32
    tensor |> Tensor.pack!(shown, [type], place) |> elem(0)
  end

  defp unpack(name, tensor, form) when name in @named, do: Tensor.unpack(tensor, form)
  defp unpack(_name, tensor, form), do: Tensor.unpack(tensor, form, fn _ -> [] end)
end
