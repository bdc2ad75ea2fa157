defmodule ExPhil.Native.NIF do
  @moduledoc false
  # The C++ library's functions, as stubs that c_src/nif replaces when it loads. Public modules call these and
  # nothing else does. Every one returns {:ok, value} or {:error, {kind, argument, message}}.
  #
  # Loading never fails the module: without the library the stubs stay, and each answers with an error that says
  # why and what to do.

  @on_load :load

  # Counts changes of the functions and their terms; c_src/nif/nif.cpp has the same number, and refuses another.
  @interface 7

  @type reason :: {kind :: atom(), argument :: String.t(), message :: String.t()}
  @type result(value) :: {:ok, value} | {:error, reason()}

  def info, do: unloaded()
  def configure(_settings), do: unloaded()
  def default_device(_backend, _device), do: unloaded()
  def set_threads(_threads), do: unloaded()
  def read_safetensors(_path), do: unloaded()

  def scan(_backend, _device, _x, _dt, _a, _b, _c, _d, _z, _dt_bias, _initial_state, _request), do: unloaded()

  def scan_grad(
        _backend,
        _device,
        _dy,
        _x,
        _dt,
        _a,
        _b,
        _c,
        _d,
        _z,
        _dt_bias,
        _initial_state,
        _d_final_state,
        _states,
        _request,
        _all
      ),
      do: unloaded()

  # The same C++ function; it names its last tensor x here and b there.
  def associative_scan(_backend, _device, _op, _a, _x, _options), do: unloaded()
  def linear_recurrence(_backend, _device, _op, _a, _b, _options), do: unloaded()

  def associative_grad(_backend, _device, _op, _dy, _dy_reverse, _a, _x, _options), do: unloaded()
  def linear_recurrence_grad(_backend, _device, _op, _dy, _dy_reverse, _a, _b, _options), do: unloaded()

  def load_layer(_backend, _device, _path_or_tensors, _check_finite), do: unloaded()
  def layer_info(_layer), do: unloaded()
  def layer_forward(_layer, _x, _bidirectional), do: unloaded()

  def load_policy(_backend, _device, _path, _options), do: unloaded()
  def policy_info(_model), do: unloaded()
  def window(_model, _windows), do: unloaded()
  def new_session(_model), do: unloaded()
  def step(_session, _obs), do: unloaded()
  def step_batch(_sessions, _obs), do: unloaded()
  def prefill(_session, _frames), do: unloaded()
  def snapshot(_session), do: unloaded()
  def restore(_session, _snapshot), do: unloaded()
  def export_state(_session), do: unloaded()
  def import_state(_session, _state), do: unloaded()

  def start_clock(_fps), do: unloaded()
  def stop_clock(_clock), do: unloaded()

  # The functions of ExPhil.Native.Tools.Reference, which have a table of their own: c_src/nif/tools.
  def tool(_name, _arguments), do: unloaded()

  @doc "Whether the library is loaded, from where, and if not, why."
  @spec status() :: %{loaded: boolean(), path: String.t(), reason: nil | String.t()}
  def status, do: :persistent_term.get({__MODULE__, :status})

  @doc """
  Applies the application's config where it was not known yet when this module was loaded: a release loads its
  modules before its applications.
  """
  @spec ensure_configured() :: :ok
  def ensure_configured do
    if :persistent_term.get({__MODULE__, :configured}, true), do: :ok, else: configure_late()
  end

  defp configure_late do
    if config_known?() do
      :persistent_term.put({__MODULE__, :configured}, true)
      _ = configure(settings())
    end

    :ok
  end

  @doc false
  def load do
    path = library_path()

    case :erlang.load_nif(String.to_charlist(path), {@interface, settings()}) do
      :ok -> put_status(%{loaded: true, path: path <> ".so", reason: nil})
      {:error, {kind, text}} -> put_status(%{loaded: false, path: path <> ".so", reason: reason(kind, text)})
    end

    :persistent_term.put({__MODULE__, :configured}, config_known?())
    :ok
  end

  defp put_status(%{path: path, reason: reason} = status) do
    error = {:backend_unavailable, "", "the native library #{path} is not loaded: #{reason}"}
    :persistent_term.put({__MODULE__, :unloaded}, {:error, error})
    :persistent_term.put({__MODULE__, :status}, status)
  end

  defp reason(:load_failed, text) do
    case File.exists?(library_path() <> ".so") do
      true -> "it cannot be opened: #{text}"
      false -> "it has not been built; run `make` (or `mix compile`) in the project's folder"
    end
  end

  # 1, 2, 3: LoadFailure in c_src/nif/nif.cpp.
  defp reason(:load, text) do
    cond do
      String.contains?(to_string(text), "(1)") -> old_library()
      String.contains?(to_string(text), "(2)") -> "the VM refused its resource types"
      true -> "it refused the settings: #{inspect(settings())}"
    end
  end

  # A function that this module lacks, or no NIF library at all.
  defp reason(:bad_lib, text), do: "#{old_library()} (#{text})"
  defp reason(kind, text), do: "#{kind}: #{text}"

  defp old_library do
    "it belongs to another version of this project; run `make clean` and `make`"
  end

  # What the stubs answer, as load/0 left it. Read from there, it may be of any type to the compiler, which would
  # otherwise conclude from the stubs that no call ever succeeds.
  defp unloaded, do: :persistent_term.get({__MODULE__, :unloaded})

  # ---- where things are ------------------------------------------------------------------------------------

  # Without the .so, as :erlang.load_nif/2 wants it.
  defp library_path do
    case System.get_env("EXPHIL_NATIVE_NIF") || Application.get_env(:exphil_native, :nif) do
      nil -> Path.join(priv(), "exphil_native")
      path -> String.replace_suffix(path, ".so", "")
    end
  end

  defp priv do
    case :code.priv_dir(:exphil_native) do
      {:error, :bad_name} ->
        __MODULE__ |> :code.which() |> Path.dirname() |> Path.join("../priv") |> Path.expand()

      path ->
        to_string(path)
    end
  end

  # SettingsTuple of c_src/nif/functions.hpp.
  defp settings do
    {
      config(:kernels, Path.join(priv(), "kernels")),
      config(:cache, ""),
      config(:libcuda, ""),
      config(:libnvrtc, ""),
      config(:pinned_limit, 0),
      threads()
    }
  end

  defp config(key, default), do: Application.get_env(:exphil_native, key, default)

  defp config_known?, do: Application.spec(:exphil_native) != nil

  defp threads do
    case System.get_env("EXPHIL_NATIVE_THREADS") do
      nil -> config(:threads, 0)
      text -> with {count, ""} <- Integer.parse(text), do: count
    end
  end
end
