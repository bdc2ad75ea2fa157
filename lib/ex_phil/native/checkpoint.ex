defmodule ExPhil.Native.Checkpoint do
  @moduledoc """
  Reads every kind of policy file that `ExPhil.Native.Policy.load/2` reads, and converts Edifice's and ExPhil's to
  safetensors.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{Error, NIF, Options, Policy, Queue, Safetensors}
  alias ExPhil.Native.Policy.Weights

  @dialect_options [:dialect, :window, :chunk_size, :dt, :num_heads] ++
                     [:ngroups, :norm_before_gate, :dt_limit, :a_floor]

  @doc """
  Every tensor of the file, by name: in the formats of Edifice and ExPhil `"layer.tensor"`, and `"layer.tensor.part"` where a
  layer has maps of tensors, as Axon's GRU and LSTM have.

  Returns `{:ok, tensors}`, a map of `{type, shape, binary}` by name, row-major and little-endian. The entire file is checked first: a
  damaged one is an error of kind `:invalid_checkpoint`, one that cannot be read of kind `:file_error`. Its terms are never passed to the
  VM: no atom is created and no function accepted.
  """
  fallible read(path :: Path.t()) :: %{String.t() => Safetensors.tensor()}

  def read(path) do
    with :ok <- Safetensors.check_path(path),
         {:ok, {tensors, _metadata}} <- Queue.run(&NIF.read_checkpoint(path, &1)) do
      {:ok, tensors}
    else
      {:error, %Error{}} = error -> error
      {:error, reason} -> {:error, Error.from_nif(reason)}
    end
  end

  @doc """
  Writes Edifice's or ExPhil's policy `from` as the safetensors file `to`, with its window, and of Mamba its dialect, chunk
  size and kind of dt, and of a gated DeltaNet its number of heads, in the metadata, so that it loads without options. The tensors keep their names, types and bytes, the
  random keys of GRU and LSTM too. Of Mamba-2 and Mamba-3 it writes what their shapes do not say, where a `config.json` or an option
  said it. `from` is loaded first, with the options `:dialect`, `:window`, `:chunk_size`, `:dt`, `:num_heads`, `:ngroups`,
  `:norm_before_gate`, `:dt_limit` and `:a_floor` of `ExPhil.Native.Policy.load/2`, and `to` is loaded at the end; both must have the same
  fingerprint.

  Returns `{:ok, info}`, the policy's `ExPhil.Native.Policy.info/1`. Errors are those of `read/1` and of `ExPhil.Native.Policy.load/2`; a
  file with state-spaces' names is one of kind `:invalid_argument`, because there is nothing to convert.
  """
  fallible convert(from :: Path.t(), to :: Path.t(), options :: keyword() \\ []) :: Policy.info()

  def convert(from, to, options \\ []) do
    with :ok <- Safetensors.check_path(from, "from"),
         :ok <- Safetensors.check_path(to, "to"),
         {:ok, given} <- Options.read(options, @dialect_options, & &1),
         {:ok, policy} <- Policy.load(from, [{:backend, :host} | given]),
         {:ok, info} <- Policy.info(policy),
         :ok <- check_dialect(info, from),
         {:ok, tensors} <- read(from),
         :ok <- Safetensors.write(to, tensors, metadata(info)),
         {:ok, written} <- Policy.load(to, backend: :host),
         {:ok, same} <- Policy.info(written),
         :ok <- check_same(info, same, to),
         do: {:ok, same}
  end

  # What a config.json or an option said goes into the metadata.
  defp check_dialect(%{settings_from: :metadata}, from), do: check_dialect(%{dialect: :state_spaces}, from)

  defp check_dialect(%{dialect: :state_spaces}, from) do
    {:error,
     Error.new(
       :invalid_argument,
       "from",
       "#{Error.quoted(from)} has state-spaces' names: there is nothing to convert"
     )}
  end

  defp check_dialect(_info, _from), do: :ok

  defp check_same(%{fingerprint: same}, %{fingerprint: same}, _to), do: :ok

  defp check_same(_info, _written, to),
    do: {:error, Error.new(:internal, "to", "#{Error.quoted(to)} is not the policy it was written from")}

  @doc """
  What a safetensors file of this policy's weights must say beside them: a map of strings for `ExPhil.Native.Safetensors.write/3`.
  `info` is that of `ExPhil.Native.Policy.info/1`. `ExPhil.Native.Policy.save/2` writes both.
  """
  @spec metadata(Policy.info()) :: %{String.t() => String.t()}
  # Read by core/trunk: loading.cpp, edifice.cpp, output_groups.cpp and stated.cpp.
  def metadata(info) do
    # The names of tensors show state-spaces' dialect. A trunk has some of these facts.
    own = [
      :num_heads,
      :ngroups,
      :norm_before_gate,
      :dt_limit_min,
      :dt_limit_max,
      :mixer_norm_epsilon,
      :a_floor
    ]

    facts = [window_size: :window, chunk_size: :chunk_size, dt: :dt] ++ Enum.map(own, &{&1, &1})

    facts =
      if info[:dialect] == :state_spaces,
        do: Keyword.take(facts, [:window_size]),
        else: [{:dialect, :dialect} | facts]

    for {key, fact} <- facts,
        # Not a filter: what is false is written too.
        value <- List.wrap(info[fact]),
        into: Map.merge(epsilon(info), Weights.heads_metadata(info.groups)),
        do: {"exphil_native.#{key}", to_string(value)}
  end

  # 1.0e-5, as an f32, is what load/2 takes of Mamba where the file says nothing.
  defp epsilon(%{trunk: trunk, norm_epsilon: epsilon}) do
    <<default::float-32>> = <<1.0e-5::float-32>>

    if trunk == :mamba1 and epsilon == default,
      do: %{},
      else: %{"norm_epsilon" => Float.to_string(epsilon)}
  end
end
