defmodule ExPhil.Native.SharedMemory do
  @moduledoc false
  # `config :exphil_native, share_memory: true`: tensors of EXLA's CUDA backend are passed as device addresses
  # to the calls that can read them there, instead of as copies in host memory. ExPhil.Native.Tensor asks it
  # for the elements of an Nx tensor; c_src/nif/codec.hpp (ScanTensor) describes the term.
  #
  # The tensor is part of the term, so its buffer exists until the call has ended. The native library checks
  # that the memory is allocated, large enough, and of the call's device. Results are copied to host memory:
  # EXLA 0.13's from_pointer/5 does not take ownership of memory, and nothing would free it.

  alias ExPhil.Native.{Device, Error}

  @compile {:no_warn_undefined, Nx}

  @type place :: {Device.backend(), non_neg_integer()}
  @type elements :: {:device, address :: non_neg_integer(), bytes :: non_neg_integer(), owner :: struct()}

  # Of an address in 64 bits.
  @last 0xFFFFFFFFFFFFFFFF

  @doc """
  The elements of an Nx tensor for a call at this place, or `:unshared` where they must be copied: the call runs on the host, the
  tensor is not on a GPU, or sharing is not configured. An error where the tensor's backend gives no address.
  """
  @spec elements(struct(), String.t(), nil | place()) :: {:ok, elements()} | :unshared | {:error, Error.t()}
  def elements(_tensor, _argument, nil), do: :unshared

  def elements(tensor, argument, {backend, _index}) do
    with true <- on_device?(tensor) and function_exported?(Nx, :to_pointer, 2),
         {:ok, true} <- configured(),
         true <- on_cuda?(backend) do
      read(tensor, argument)
    else
      {:error, error} -> {:error, error}
      _ -> :unshared
    end
  end

  # EXLA gives the addresses of a GPU's buffers only for the client of this name.
  defp on_device?(%{data: %{__struct__: EXLA.Backend, buffer: %{client_name: :cuda}}}), do: true
  defp on_device?(_tensor), do: false

  defp configured do
    case Application.get_env(:exphil_native, :share_memory, false) do
      share when is_boolean(share) -> {:ok, share}
      other -> {:error, Error.invalid("config :exphil_native, :share_memory", "true or false", other)}
    end
  end

  defp on_cuda?(:cuda), do: true
  defp on_cuda?(:host), do: false

  # The answer takes the driver some time, and is the same as long as the VM runs.
  defp on_cuda?(:auto) do
    with :unknown <- :persistent_term.get(__MODULE__, :unknown) do
      available = ExPhil.Native.cuda_available?()
      :persistent_term.put(__MODULE__, available)
      available
    end
  end

  defp read(tensor, argument) do
    wait(tensor)

    case Nx.to_pointer(tensor, mode: :local) do
      %{kind: :local, address: address, data_size: bytes} when address in 1..@last and bytes in 0..@last ->
        {:ok, {:device, address, bytes, tensor}}

      other ->
        {:error, Error.invalid(argument, "a tensor whose backend gives a local address", other)}
    end
  rescue
    error ->
      message = "#{argument} cannot be read in device memory: #{Exception.message(error)}"
      {:error, Error.new(:invalid_argument, argument, message)}
  end

  # An address says nothing about whether the elements are written yet; reading one of them waits until they
  # are.
  defp wait(%{shape: {}} = tensor), do: Nx.to_binary(tensor)

  defp wait(%{shape: shape} = tensor) do
    rank = tuple_size(shape)
    tensor |> Nx.slice(List.duplicate(0, rank), List.duplicate(1, rank)) |> Nx.to_binary()
  end
end
