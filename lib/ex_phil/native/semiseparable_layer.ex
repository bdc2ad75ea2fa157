defmodule ExPhil.Native.SemiseparableLayer do
  @moduledoc """
  An adaptive-rank semiseparable layer (AR-SSM), H = T + U V^T, on the GPU or the CPU.

      {:ok, layer} = SemiseparableLayer.load("layer.safetensors")
      {:ok, {y, diagnostics}} = SemiseparableLayer.forward(layer, x)

  For `x` of shape {batch, seq, hidden}, at each position:

      t = depthwise_conv(x, kernel 3, padding 1)
      g = sigmoid(W2 relu(W1 x + b1) + b2)             # one gate for each rank
      u = (U x) g;  v = (V x) g;  k = cumsum over time of u
      y = t + O (k v) + o

  The weights are resident where the layer was loaded. They come from a safetensors file, or from a map of tensors,
  under these names; every dimension is inferred from the shapes:

  | tensor | shape | |
  |---|---|---|
  | `complexity_gate.0.weight`, `.bias` | {gate_hidden, hidden}, {gate_hidden} | W1, b1 |
  | `complexity_gate.2.weight`, `.bias` | {rank, gate_hidden}, {rank} | W2, b2 |
  | `U_proj.weight`, `V_proj.weight` | {rank, hidden} | U, V |
  | `T_conv.weight` | {hidden, 1, 3} | taps for the position before, itself, after |
  | `output_proj.weight`, `.bias` | {hidden, rank}, {hidden} | O, o |

  A layer is immutable and safe to share between processes; its memory is freed when nothing refers to it any more.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{Device, Error, NIF, Options, Queue, Safetensors, Tensor}

  @enforce_keys [:ref, :info]
  defstruct [:ref, :info]

  @typedoc "Its fields are not part of the interface."
  @type t :: %__MODULE__{ref: reference(), info: info()}

  @type info :: %{
          hidden: pos_integer(),
          rank: pos_integer(),
          gate_hidden: pos_integer(),
          resident_bytes: non_neg_integer(),
          backend: :cuda | :host,
          device: Device.t()
        }

  @typedoc """
    * `:gates` - g, {batch, seq, rank}
    * `:effective_rank` - the sum of each position's gates, {batch, seq}
    * `:gate_penalty` - the mean of the gates' absolute values
  """
  @type diagnostics :: %{gates: Tensor.t(), effective_rank: Tensor.t(), gate_penalty: float()}

  @load_options [:backend, :device, :check_finite]

  @doc """
  Loads a layer onto a backend, from a safetensors file or from a map of f32 tensors by name.

  Returns `{:ok, layer}`. A file that cannot be read is an error of kind `:file_error`, tensors of other names or shapes
  `:invalid_checkpoint`, a backend that is named and not there `:backend_unavailable`.

    * `:backend`, `:device` - where to; see `ExPhil.Native.Device`
    * `:check_finite` - refuse weights that are NaN or infinite (`true`)
  """
  fallible load(path_or_tensors :: Path.t() | %{String.t() => Tensor.t()}, options :: keyword() \\ []) :: t()

  def load(path_or_tensors, options \\ []) do
    with {:ok, from} <- source(path_or_tensors),
         {:ok, {backend, device, check_finite}} <- Options.read(options, @load_options, &load_options/1),
         {:ok, ref} <- Queue.run(&NIF.load_layer(backend, device, from, check_finite, &1)),
         {:ok, info} <- NIF.layer_info(ref) do
      {:ok, %__MODULE__{ref: ref, info: to_info(info)}}
    else
      {:error, reason} -> failed(reason)
    end
  end

  @doc """
  The dimensions inferred from the shapes, the backend and device, and the bytes resident there.

  Returns `{:ok, info}`, a map (`t:info/0`); only what is no layer is an error.
  """
  fallible info(layer :: t()) :: info()
  def info(%__MODULE__{info: info}), do: {:ok, info}
  def info(layer), do: not_a_layer(layer)

  @doc """
  The layer's answer to `x`, f32 of shape {batch, seq, hidden}: an Nx tensor or `{:f32, shape, binary}`.

  Returns `{:ok, {y, diagnostics}}`: `y` has the type, the shape and the form of `x`, `diagnostics` is a map (`t:diagnostics/0`). Another
  type or shape is an error of kind `:invalid_argument`.

      iex> alias ExPhil.Native.SemiseparableLayer
      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> layer = SemiseparableLayer.load!(%{
      ...>   "complexity_gate.0.weight" => f32.({1, 1}, [0.0]), "complexity_gate.0.bias" => f32.({1}, [0.0]),
      ...>   "complexity_gate.2.weight" => f32.({1, 1}, [0.0]), "complexity_gate.2.bias" => f32.({1}, [0.0]),
      ...>   "U_proj.weight" => f32.({1, 1}, [2.0]), "V_proj.weight" => f32.({1, 1}, [2.0]),
      ...>   "T_conv.weight" => f32.({1, 1, 3}, [0.0, 1.0, 0.0]),
      ...>   "output_proj.weight" => f32.({1, 1}, [1.0]), "output_proj.bias" => f32.({1}, [0.0])
      ...> }, backend: :host)
      iex> {{:f32, {1, 3, 1}, y}, diagnostics} = SemiseparableLayer.forward!(layer, f32.({1, 3, 1}, [1.0, 2.0, 3.0]))
      iex> {for(<<v::float-32-little <- y>>, do: v), diagnostics.gate_penalty}
      {[2.0, 8.0, 21.0], 0.5}
  """
  fallible forward(layer :: t(), x :: Tensor.t()) :: {Tensor.t(), diagnostics()}
  def forward(layer, x), do: run(layer, x, false)

  @doc """
  The layer's answer to `x`, f32 of shape {batch, seq, hidden}, with k = the causal plus the anti-causal cumulative sum of u: each
  position depends on the entire sequence, and its own u counts twice.

  Returns `{:ok, {y, diagnostics}}`, and errors, as `forward/2` does.
  """
  fallible forward_bidirectional(layer :: t(), x :: Tensor.t()) :: {Tensor.t(), diagnostics()}
  def forward_bidirectional(layer, x), do: run(layer, x, true)

  @doc """
  The gradients of `x` and of every weight, from `dy`, the gradient of a real loss by y; `x` and `dy` are f32 of shape {batch, seq, hidden}.

  Returns `{:ok, {dx, weights}}`: f32, `dx` of the shape of `x`, and a map of the weights' gradients by their tensors' names, of their
  shapes. Errors are those of `forward/2`.

    * `:bidirectional` - `true` is the gradient of `forward_bidirectional/2` (`false`)
    * `:d_gate_penalty` - the gradient of the loss by `gate_penalty` (0.0)

  Computed on the
  CPU, in double and by one thread, whatever the backend of the layer: for small layers and for checks of faster code.
  At 0 the slope of relu is 0.

      iex> alias ExPhil.Native.SemiseparableLayer
      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> layer = SemiseparableLayer.load!(%{
      ...>   "complexity_gate.0.weight" => f32.({1, 1}, [0.0]), "complexity_gate.0.bias" => f32.({1}, [0.0]),
      ...>   "complexity_gate.2.weight" => f32.({1, 1}, [0.0]), "complexity_gate.2.bias" => f32.({1}, [0.0]),
      ...>   "U_proj.weight" => f32.({1, 1}, [2.0]), "V_proj.weight" => f32.({1, 1}, [2.0]),
      ...>   "T_conv.weight" => f32.({1, 1, 3}, [0.0, 1.0, 0.0]),
      ...>   "output_proj.weight" => f32.({1, 1}, [1.0]), "output_proj.bias" => f32.({1}, [0.0])
      ...> }, backend: :host)
      iex> x = f32.({1, 3, 1}, [1.0, 2.0, 3.0])
      iex> {{:f32, {1, 3, 1}, dx}, weights} = SemiseparableLayer.grad!(layer, x, f32.({1, 3, 1}, [1.0, 1.0, 1.0]))
      iex> {for(<<v::float-32-little <- dx>>, do: v), weights["output_proj.bias"]}
      {[8.0, 9.0, 10.0], {:f32, {1}, <<3.0::float-32-little>>}}
  """
  fallible grad(layer :: t(), x :: Tensor.t(), dy :: Tensor.t(), options :: keyword() \\ []) ::
             {Tensor.t(), %{String.t() => Tensor.t()}}

  def grad(layer, x, dy, options \\ [])

  def grad(%__MODULE__{ref: ref}, x, dy, options) do
    with {:ok, {bidirectional, d_penalty}} <-
           Options.read(options, [:bidirectional, :d_gate_penalty], &grad_options/1),
         {:ok, x, form} <- Tensor.pack(x, "x"),
         {:ok, dy, _form} <- Tensor.pack(dy, "dy"),
         {:ok, %{dx: dx, weights: weights}} <-
           Queue.run(&NIF.layer_grad(ref, x, dy, d_penalty, bidirectional, &1)) do
      weights = Map.new(weights, fn {name, weight} -> {name, Tensor.unpack(weight, form, fn _ -> [] end)} end)

      {:ok, {Tensor.unpack(dx, form), weights}}
    else
      {:error, reason} -> failed(reason)
    end
  end

  def grad(layer, _x, _dy, _options), do: not_a_layer(layer)

  defp grad_options(options) do
    case Keyword.get(options, :d_gate_penalty, 0.0) do
      # A larger integer cannot be converted to a float.
      number when is_number(number) and abs(number) < 1.0e300 ->
        {Options.boolean(options, :bidirectional, false), number * 1.0}

      other ->
        raise Error.invalid(":d_gate_penalty", "a number", other)
    end
  end

  defp run(%__MODULE__{ref: ref}, x, bidirectional) do
    with {:ok, x, form} <- Tensor.pack(x, "x"),
         {:ok, found} <- Queue.run(&NIF.layer_forward(ref, x, bidirectional, &1)) do
      none = fn _ -> [] end

      {:ok,
       {Tensor.unpack(found.y, form),
        %{
          gates: Tensor.unpack(found.gates, form, none),
          effective_rank: Tensor.unpack(found.effective_rank, form, none),
          gate_penalty: found.gate_penalty
        }}}
    else
      {:error, reason} -> failed(reason)
    end
  end

  defp run(layer, _x, _bidirectional), do: not_a_layer(layer)

  defp not_a_layer(other),
    do: {:error, Error.invalid("layer", "a layer that SemiseparableLayer.load returned", other)}

  defp failed(%Error{} = error), do: {:error, error}
  defp failed(reason), do: {:error, Error.from_nif(reason)}

  defp load_options(options) do
    {backend, device} = Options.place(options)
    {backend, device, Options.boolean(options, :check_finite, true)}
  end

  # A list of {name, tensor} for the NIF, or the path.
  defp source(tensors) when is_map(tensors) and not is_struct(tensors) do
    Enum.reduce_while(tensors, {:ok, []}, fn
      {name, tensor}, {:ok, packed} when is_binary(name) ->
        case Tensor.pack(tensor, name) do
          {:ok, plain, _form} -> {:cont, {:ok, [{name, plain} | packed]}}
          {:error, error} -> {:halt, {:error, error}}
        end

      {name, _tensor}, _packed ->
        {:halt, {:error, Error.invalid("tensors", "a map from names (strings) to tensors", name)}}
    end)
  end

  defp source(path) do
    with :ok <- Safetensors.check_path(path), do: {:ok, path}
  end

  defp to_info(info) do
    device = struct!(Device, info.device)
    Map.merge(info, %{device: device, backend: device.backend})
  end

  defimpl Inspect do
    def inspect(%{info: info}, _options) do
      "#ExPhil.Native.SemiseparableLayer<#{info.backend}:#{info.device.index}, hidden #{info.hidden}, " <>
        "rank #{info.rank}>"
    end
  end
end
