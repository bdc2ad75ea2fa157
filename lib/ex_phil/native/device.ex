defmodule ExPhil.Native.Device do
  @moduledoc """
  Where a call runs: a backend (`:cuda` or `:host`) and the index of one of its devices.

  The backend is chosen, in this order, by

    1. the call's own `:backend` option, unless it is `:auto`;
    2. the environment variable `EXPHIL_NATIVE_BACKEND` (`auto`, `cuda` or `host`);
    3. the application's config, `config :exphil_native, backend: :host`;
    4. availability: CUDA where a GPU can be used, the host elsewhere. A policy is loaded onto the backend that is
       measured to be faster for one agent: see `ExPhil.Native.Policy.load/2`.

  A backend that is chosen by name and unavailable is an error, never a fallback. The device's index is the call's
  `:device` option, else `config :exphil_native, device: 1`, else 0. A policy may be on several devices:
  `ExPhil.Native.Policy.load/2`.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{Error, NIF}

  defstruct [:backend, :index, :name, details: %{}]

  @type backend :: :auto | :cuda | :host
  @type t :: %__MODULE__{
          backend: :cuda | :host,
          index: non_neg_integer(),
          name: String.t(),
          details: %{atom() => String.t()}
        }

  @backends [:auto, :cuda, :host]
  @config_device "config :exphil_native, :device"

  @doc """
  Every device that calls can run on: the host, and each GPU.

  Returns `{:ok, devices}`, structs of this module, or an error of kind `:backend_unavailable` where the native library is not loaded.
  """
  fallible list() :: [t()]

  def list do
    case NIF.machine() do
      {:ok, %{cuda_reason: nil} = info} ->
        {:ok, Enum.map([info.host | info.cuda_devices], &struct!(__MODULE__, &1))}

      {:ok, info} ->
        {:ok, [struct!(__MODULE__, info.host)]}

      {:error, reason} ->
        {:error, Error.from_nif(reason)}
    end
  end

  @doc """
  The device that a call with these options (`:backend`, `:device`) runs on.

  Returns `{:ok, device}`, a struct of this module. A backend or a device that is named and not there is an error of kind
  `:backend_unavailable`.

      iex> {:ok, device} = ExPhil.Native.Device.fetch(backend: :host)
      iex> {device.backend, device.index}
      {:host, 0}
  """
  fallible fetch(options :: keyword() \\ []) :: t()

  def fetch(options \\ []) do
    with {:ok, {backend, index}} <- choose(options[:backend], options[:device]) do
      case NIF.default_device(backend, index) do
        {:ok, device} -> {:ok, struct!(__MODULE__, device)}
        {:error, reason} -> {:error, Error.from_nif(reason)}
      end
    end
  end

  @doc false
  # The backend and device index for the NIF, which resolves :auto.
  @spec choose(term(), term()) :: {:ok, {backend(), non_neg_integer()}} | {:error, Error.t()}
  def choose(backend, device) do
    with {:ok, backend} <- backend(backend),
         {:ok, index} <- device(device),
         :ok <- configured(),
         :ok <- configured_device(backend, device) do
      {:ok, {backend, index}}
    end
  end

  @doc false
  # The backend and the devices for NIF.load_policy, which counts them.
  @spec choose_several(term(), term()) ::
          {:ok, {backend(), :all | [non_neg_integer()]}} | {:error, Error.t()}
  def choose_several(backend, devices) do
    with {:ok, indices} <- devices(devices),
         {:ok, backend} <- backend(backend),
         :ok <- configured(),
         :ok <- configured_device(backend, devices),
         do: {:ok, {backend, indices}}
  end

  # A device that the call does not name is the config's, and an error names where it is from. Asked once: devices neither come nor go,
  # and the question takes a dirty scheduler.
  defp configured_device(backend, nil) do
    with index when index not in [nil, 0] <- Application.get_env(:exphil_native, :device),
         false <- :persistent_term.get({__MODULE__, backend, index}, false) do
      case NIF.default_device(backend, index) do
        {:ok, _device} -> :persistent_term.put({__MODULE__, backend, index}, true)
        {:error, {kind, ":device", message}} -> {:error, from_config(kind, message)}
        {:error, _} -> :ok
      end
    else
      _none_or_known -> :ok
    end
  end

  defp configured_device(_backend, _named), do: :ok

  defp from_config(kind, message), do: Error.new(kind, @config_device, "#{@config_device}: #{message}")

  defp devices(:all), do: {:ok, :all}

  defp devices([_ | _] = indices) do
    if Enum.all?(indices, &is_integer/1) and Enum.uniq(indices) == indices,
      do: Enum.find_value(indices, {:ok, indices}, &with({:ok, _} <- device(&1), do: nil)),
      else: {:error, Error.invalid(":device", "a list of different indices of devices", indices)}
  end

  defp devices([]), do: {:error, Error.invalid(":device", "the indices of one device or more", [])}
  defp devices(device), do: with({:ok, index} <- device(device), do: {:ok, [index]})

  @doc false
  # Whether the values of the environment and of the config are valid.
  @spec configured() :: :ok | {:error, Error.t()}
  def configured do
    with {:error, reason} <- NIF.ensure_configured(), do: {:error, Error.from_nif(reason)}
  end

  defp backend(nil), do: backend(:auto)

  defp backend(:auto) do
    case System.get_env("EXPHIL_NATIVE_BACKEND") do
      unset when unset in [nil, ""] -> configured_backend()
      "auto" -> {:ok, :auto}
      "cuda" -> {:ok, :cuda}
      "host" -> {:ok, :host}
      other -> {:error, Error.invalid("EXPHIL_NATIVE_BACKEND", "auto, cuda or host", other)}
    end
  end

  defp backend(backend) when backend in @backends, do: {:ok, backend}
  defp backend(other), do: {:error, Error.invalid(":backend", ":auto, :cuda or :host", other)}

  defp configured_backend do
    case Application.get_env(:exphil_native, :backend, :auto) do
      backend when backend in @backends ->
        {:ok, backend}

      other ->
        {:error, Error.invalid("config :exphil_native, :backend", ":auto, :cuda or :host", other)}
    end
  end

  defp device(nil), do: device(Application.get_env(:exphil_native, :device) || 0, @config_device)
  defp device(index), do: device(index, ":device")

  defp device(index, _argument) when is_integer(index) and index >= 0 and index < 1024, do: {:ok, index}
  defp device(other, argument), do: {:error, Error.invalid(argument, "the index of a device", other)}
end
