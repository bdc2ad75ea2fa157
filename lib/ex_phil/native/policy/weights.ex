defmodule ExPhil.Native.Policy.Weights do
  @moduledoc false
  # Where a policy's weights come from besides a file, and how they become one: what Policy.init/2, load/2 of
  # a map and save/2 do. Their documentation is there.

  alias ExPhil.Native.{Checkpoint, Error, NIF, Options, Queue, Safetensors, Tensor}

  @type source :: Path.t() | {[{String.t(), Tensor.packed()}], [{String.t(), String.t()}]}

  # Of init. The sizes are those of all trunks; which of them a trunk has is checked by the library.
  @load_options [:backend, :device, :max_sessions, :norm_epsilon, :window]
  @sizes [:d_input, :d_output, :d_model, :layers, :d_state, :d_conv, :expand, :dt_rank, :headdim, :ngroups] ++
           [:mimo_rank, :num_heads]
  # Of load/2 alone.
  @of_a_load [:precision, :states, :gather, :check_finite, :dialect, :chunk_size, :dt, :norm_before_gate] ++
               [:dt_limit, :a_floor]
  @heads_of_a_file ":heads names the outputs of a map of tensors; a file has its own names, which Policy.save/2 writes"
  @name ~r/\A[A-Za-z0-9_]{1,64}\z/

  @doc "What NIF.load_policy reads, from load/2's first argument, and the options that are left."
  @spec source(term(), term()) :: {:ok, {source(), term()}} | {:error, Error.t()}
  def source(weights, options) when is_map(weights) and not is_struct(weights) do
    with {:ok, tensors} <- pack(weights),
         {heads, options} = pop(options, :heads),
         {:ok, heads} <- Options.read([], [], fn [] -> heads && heads!(heads) end) do
      {:ok, {{tensors, Map.to_list(metadata(heads))}, options}}
    end
  end

  def source(path, options) do
    with :ok <- Safetensors.check_path(path),
         {nil, options} <- pop(options, :heads) do
      {:ok, {path, options}}
    else
      {:error, _} = error -> error
      {_heads, _options} -> {:error, Error.new(:invalid_argument, ":heads", @heads_of_a_file)}
    end
  end

  # Whether it is a list of options is checked where they are read.
  defp pop(options, name),
    do: if(Keyword.keyword?(options), do: Keyword.pop(options, name), else: {nil, options})

  @doc "The tensors of a map as the library takes them."
  @spec pack(map()) :: {:ok, [{String.t(), Tensor.packed()}]} | {:error, Error.t()}
  def pack(weights) do
    Enum.reduce_while(weights, {:ok, []}, fn {name, tensor}, {:ok, done} ->
      with :ok <- check_name(name),
           {:ok, plain, _} <- Tensor.pack(tensor, name, "an Nx tensor or {:f32, shape, binary}") do
        {:cont, {:ok, [{name, plain} | done]}}
      else
        {:error, _} = error -> {:halt, error}
      end
    end)
  end

  defp check_name(name) when is_binary(name), do: :ok
  defp check_name(name), do: {:error, Error.invalid("weights", "a map whose keys are strings", name)}

  @doc "The fresh weights by name, and the options of load/2 for them."
  @spec initial(term(), term()) :: {:ok, {map(), keyword()}} | {:error, Error.t()}
  def initial(trunk, options) when is_atom(trunk) do
    with {:ok, {sizes, seed, load}} <- Options.read([], [], fn [] -> read_initial(options) end),
         {:ok, tensors} <- Queue.run(&NIF.initial_weights(trunk, Map.new(sizes), seed, &1)) do
      {:ok, {Map.new(tensors), load}}
    else
      {:error, %Error{}} = error -> error
      {:error, reason} -> {:error, Error.from_nif(reason)}
    end
  end

  def initial(other, _options), do: {:error, Error.invalid("trunk", "an atom such as :mamba1", other)}

  defp read_initial(options) do
    if not Keyword.keyword?(options), do: Options.invalid("options", "a keyword list", options)
    {load, options} = Keyword.split(options, @load_options)
    seed = Options.seed(options)
    {heads, sizes} = options |> Keyword.delete(:seed) |> Keyword.pop(:heads)
    for {name, _} <- sizes, do: size!(sizes, name)
    heads = heads && heads!(heads)
    # Of Mamba-2 and a gated DeltaNet, whose shapes do not say them.
    load = load ++ Keyword.take(sizes, [:ngroups, :num_heads])
    {outputs(sizes, heads), seed, if(heads, do: load ++ [heads: heads], else: load)}
  end

  defp size!(sizes, name) when name in @sizes, do: Options.positive_integer(sizes, name, nil)

  defp size!(_sizes, name) when name in @of_a_load do
    text =
      "unknown option #{inspect(name)} of Policy.init/2; Policy.load/2 takes it, of a file or of Policy.weights/1"

    raise Error.new(:invalid_argument, inspect(name), text)
  end

  defp size!(sizes, name),
    do: Options.read!(Keyword.take(sizes, [name]), [:heads, :seed] ++ @load_options ++ @sizes, & &1)

  defp outputs(sizes, nil), do: sizes

  defp outputs(sizes, heads) do
    count = heads |> Enum.map(fn {_name, outputs} -> count(outputs) end) |> Enum.sum()

    case Keyword.fetch(sizes, :d_output) do
      {:ok, given} when given != count ->
        Options.invalid(":d_output", "#{count}, as :heads have together", given)

      _ ->
        Keyword.put(sizes, :d_output, count)
    end
  end

  defp heads!([_ | _] = heads) do
    for head <- heads, not head?(head), do: invalid_heads(head)
    names = Enum.map(heads, &elem(&1, 0))
    if Enum.uniq(names) != names, do: Options.invalid(":heads", "heads of different names", heads)
    heads
  end

  defp heads!(other), do: invalid_heads(other)

  @spec invalid_heads(term()) :: no_return()
  defp invalid_heads(got) do
    expected = "a list of {name, count} or {name, {count, :binary}}, where names have letters, digits and _"
    Options.invalid(":heads", expected, got)
  end

  defp head?({name, {count, :binary}}), do: head?({name, count})

  defp head?({name, count}) when is_atom(name) and is_integer(count) and count > 0,
    do: to_string(name) =~ @name

  defp head?(_other), do: false

  defp count({count, :binary}), do: count
  defp count(count), do: count

  # As core/trunk/output_groups.hpp reads it.
  defp metadata(nil), do: %{}

  defp metadata(heads) do
    texts =
      for {name, outputs} <- heads, do: "#{name}:#{count(outputs)}#{if is_tuple(outputs), do: ":binary"}"

    %{"exphil_native.heads" => Enum.join(texts, ",")}
  end

  @doc "The metadata of a policy whose outputs have these groups, in the form of info/1."
  @spec heads_metadata([tuple()]) :: %{String.t() => String.t()}
  def heads_metadata([]), do: %{}

  def heads_metadata(groups) do
    metadata(
      for group <- groups do
        case group do
          {name, first..last//1, :binary} -> {name, {last - first + 1, :binary}}
          {name, first..last//1} -> {name, last - first + 1}
        end
      end
    )
  end

  @doc "Writes the weights with what the tensors do not say."
  @spec save(map(), map(), term()) :: :ok | {:error, Error.t()}
  def save(weights, info, path), do: Safetensors.write(path, weights, Checkpoint.metadata(info))
end
