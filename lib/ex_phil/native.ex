defmodule ExPhil.Native do
  @moduledoc """
  Recurrent policies in real time: what this machine supports.

  `ExPhil.Native.Policy` answers a frame in O(1), `ExPhil.Native.SelectiveScan` is the operator. Both run
  on an NVIDIA GPU or on the CPU. `ExPhil.Native.Device` describes how one is chosen, and `info/0` what is available.

  Configuration, all optional; an environment variable takes precedence over the config:

  | config `:exphil_native` | environment | |
  |---|---|---|
  | `:backend` | `EXPHIL_NATIVE_BACKEND` | `:auto`, `:cuda` or `:host` |
  | `:device` | | index of the GPU, 0 by default |
  | `:threads` | `EXPHIL_NATIVE_THREADS` | threads of the host backend; 0 is the machine's cores |
  | `:nif` | `EXPHIL_NATIVE_NIF` | the native library, where it is not in priv |
  | `:kernels` | `EXPHIL_NATIVE_KERNELS` | the folder of the CUDA kernels |
  | `:cache` | `EXPHIL_NATIVE_CACHE` | the folder of compiled kernels |
  | `:libcuda` | `EXPHIL_NATIVE_LIBCUDA` | the CUDA driver library |
  | `:libnvrtc` | `EXPHIL_NATIVE_LIBNVRTC` | the NVRTC library |
  | `:pinned_limit` | `EXPHIL_NATIVE_PINNED_LIMIT` | bytes of page-locked memory to keep at most; 0 (default) is a sixteenth of the machine's, from 512 MB to 8 GB |
  | `:share_memory` | | `true`: scans on CUDA read tensors of EXLA's CUDA backend in device memory; `false` by default, see `ExPhil.Native.Tensor` |
  | `:edifice_blocks` | | `true`, when this library is compiled: EXLA runs Edifice's fused blocks as custom calls; `false` by default. It changes the models that Edifice builds, see [docs/xla.md](docs/xla.md) |
  | `:precompiled` | `EXPHIL_NATIVE_PRECOMPILED` | when this library is compiled: the package that `mix compile` installs instead of building, see [docs/reference.md](docs/reference.md#packages) |
  | | `EXPHIL_NATIVE_POLICY` | how a policy uses a GPU, for benchmarks: `c_src/cuda/policy/tuning.hpp` |
  | | `EXPHIL_NATIVE_NVRTC_OPTIONS` | more options for NVRTC, such as `-lineinfo` for a profiler |

  Set the environment before the VM starts. The backend and the device are looked up at each call, the library when
  its module loads, the rest at the first call. An invalid value is refused: `info/0` names it, and every call returns
  that error.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{Device, Error, NIF, XLA}

  @version Mix.Project.config()[:version]

  @type info :: %{
          version: String.t(),
          nif: %{loaded: boolean(), path: String.t(), reason: nil | String.t()},
          backends: %{
            host: %{available: boolean(), name: nil | String.t(), details: %{atom() => String.t()}},
            cuda: %{
              available: boolean(),
              reason: nil | String.t(),
              devices: [%{index: non_neg_integer(), name: String.t(), details: %{atom() => String.t()}}]
            }
          },
          default_backend: :host | :cuda,
          threads: non_neg_integer(),
          nx: nil | String.t(),
          xla: %{registered: boolean(), reason: nil | String.t()}
        }

  @doc """
  Describes the native library, the backends and their devices, and why one is unavailable: a map (`t:info/0`). Never fails.

      iex> info = ExPhil.Native.info()
      iex> info.backends.host.available
      true
  """
  @spec info() :: info()
  def info do
    found = found()

    %{
      version: version(),
      nif: NIF.status(),
      backends: Map.take(found, [:host, :cuda]),
      default_backend: default_backend(found.automatic),
      threads: found.threads,
      nx: nx_version(),
      xla: xla()
    }
  end

  defp found do
    case NIF.machine() do
      {:ok, info} ->
        %{
          automatic: info.automatic,
          host: %{available: true, name: info.host.name, details: info.host.details},
          cuda: %{
            available: info.cuda_reason == nil,
            reason: info.cuda_reason,
            devices: Enum.map(info.cuda_devices, &Map.take(&1, [:index, :name, :details]))
          },
          threads: info.threads
        }

      {:error, {_kind, _argument, message}} ->
        %{
          automatic: :host,
          host: %{available: false, name: nil, details: %{}},
          cuda: %{available: false, reason: message, devices: []},
          threads: 0
        }
    end
  end

  # The backend that the environment or the config names; a call then fails if it is unavailable.
  defp default_backend(automatic) do
    case Device.choose(nil, nil) do
      {:ok, {backend, _}} when backend != :auto -> backend
      _ -> automatic
    end
  end

  # Whether the custom calls of ExPhil.Native.Defn are registered with EXLA's XLA.
  defp xla do
    case XLA.status() do
      :ok -> %{registered: true, reason: nil}
      {:error, reason} -> %{registered: false, reason: reason}
    end
  end

  defp nx_version do
    if ExPhil.Native.Tensor.nx?() do
      case Application.spec(:nx, :vsn) do
        nil -> "unknown"
        version -> to_string(version)
      end
    end
  end

  @doc "Whether the native library is loaded, which every call needs."
  @spec available?() :: boolean()
  def available?, do: NIF.status().loaded

  @doc "Whether CUDA can be used here. `info/0` says why not."
  @spec cuda_available?() :: boolean()
  def cuda_available?, do: match?({:ok, %{cuda_reason: nil}}, NIF.machine())

  @doc """
  The backend that calls without a `:backend` option run on, `:host` or `:cuda`. A policy may be on another one, if that is faster: see
  `ExPhil.Native.Policy.load/2`.
  """
  @spec default_backend() :: :host | :cuda
  def default_backend, do: default_backend(found().automatic)

  @doc "This library's version."
  @spec version() :: String.t()
  def version, do: @version

  @doc """
  Sets how many threads the host backend uses, for later calls of the entire VM. 0 is the number of cores, which is
  also the maximum. Idle threads sleep. Results do not depend on the number of threads.

  Returns `:ok`, or an error of kind `:invalid_argument` for what is no such number.

      iex> ExPhil.Native.set_threads(0)
      :ok
  """
  fallible set_threads(count :: non_neg_integer()) :: :ok

  def set_threads(count) do
    with :ok <- NIF.ensure_configured(), {:ok, :ok} <- NIF.set_threads(count) do
      :ok
    else
      {:error, reason} -> {:error, Error.from_nif(reason)}
    end
  end
end
