defmodule ExPhil.Native.Checkpoint do
  @moduledoc """
  Reads every kind of policy file that `ExPhil.Native.Mamba.load/2` reads, and converts Edifice's and ExPhil's to
  safetensors.
  """

  alias ExPhil.Native.{Error, Mamba, NIF, Options, Queue, Safetensors}
  alias ExPhil.Native.Policy.Weights

  @dialect_options [:dialect, :window, :chunk_size, :dt]

  @doc """
  Every tensor of the file, by name: in the formats of Edifice and ExPhil `"layer.tensor"`, and `"layer.tensor.part"` where a
  layer has maps of tensors, as Axon's GRU and LSTM have. The entire file is checked
  first. Its terms are never passed to the VM: no atom is created and no function accepted.
  """
  @spec read(Path.t()) :: {:ok, %{String.t() => Safetensors.tensor()}} | {:error, Error.t()}
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
  Writes Edifice's or ExPhil's policy `from` as the safetensors file `to`, with its dialect, window, chunk size and
  kind of dt in the metadata, so that it loads without options. The tensors keep their names, types and bytes. `from`
  is loaded first, with the options `:dialect`, `:window`, `:chunk_size` and `:dt` of `ExPhil.Native.Mamba.load/2`,
  and `to` is loaded at the end; both must have the same fingerprint. Returns the model's
  `ExPhil.Native.Mamba.info/1`.
  """
  @spec convert(Path.t(), Path.t(), keyword()) :: {:ok, Mamba.info()} | {:error, Error.t()}
  def convert(from, to, options \\ []) do
    with :ok <- Safetensors.check_path(from, "from"),
         :ok <- Safetensors.check_path(to, "to"),
         {:ok, given} <- Options.read(options, @dialect_options, & &1),
         {:ok, model} <- Mamba.load(from, [{:backend, :host} | given]),
         info = Mamba.info(model),
         :ok <- check_dialect(info, from),
         {:ok, tensors} <- read(from),
         :ok <- Safetensors.write(to, tensors, metadata(info)),
         {:ok, written} <- Mamba.load(to, backend: :host),
         :ok <- check_same(info, Mamba.info(written), to),
         do: {:ok, Mamba.info(written)}
  end

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
    do: {:error, Error.new(:internal, "to", "#{Error.quoted(to)} is not the model it was written from")}

  @doc """
  What a safetensors file of this model's weights must say beside them. `ExPhil.Native.Mamba.save/2` writes both.
  """
  @spec metadata(Mamba.info()) :: %{String.t() => String.t()}
  # Read by core/policy/config.cpp and edifice.cpp.
  def metadata(%{dialect: :state_spaces} = info) do
    window = if info.window, do: %{"exphil_native.window_size" => to_string(info.window)}, else: %{}
    info |> epsilon() |> Map.merge(window) |> Map.merge(Weights.heads_metadata(info.groups))
  end

  def metadata(info) do
    for {key, value} <- [
          dialect: info.dialect,
          window_size: info.window,
          chunk_size: info.chunk_size,
          dt: info.dt
        ],
        value != nil,
        into: epsilon(info),
        do: {"exphil_native.#{key}", to_string(value)}
  end

  # 1.0e-5, as an f32, is what load/2 takes where the file says nothing.
  defp epsilon(%{norm_epsilon: epsilon}) do
    <<default::float-32>> = <<1.0e-5::float-32>>
    if epsilon == default, do: %{}, else: %{"norm_epsilon" => Float.to_string(epsilon)}
  end
end
