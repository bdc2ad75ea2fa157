defmodule ExPhil.Native.NIF do
  @moduledoc false
  # The C++ library's functions, as stubs that c_src/nif replaces when it loads. Public modules call these and
  # nothing else does. Every one returns {:ok, value} or {:error, {kind, argument, message}}; those that take
  # a reference may also return :queued, and then send {reference, result}: call them through
  # ExPhil.Native.Queue.
  #
  # Loading never fails the module: without the library the stubs remain, and return an error with the reason
  # and the remedy.

  @on_load :load

  # Counts changes of the functions and their terms; c_src/nif/nif.cpp has the same number, and refuses
  # another.
  @interface 34

  @type reason :: {kind :: atom(), argument :: String.t(), message :: String.t()}
  @type result(value) :: {:ok, value} | {:error, reason()}

  def info, do: unloaded()

  # "" and 0 select the default; the environment takes precedence over the arguments.
  def configure(_config), do: unloaded()

  def default_device(_backend, _device), do: unloaded()
  def set_threads(_threads), do: unloaded()
  def read_safetensors(_path, _ref), do: unloaded()
  def read_checkpoint(_path, _ref), do: unloaded()

  def scan(_backend, _device, _x, _dt, _a, _b, _c, _d, _z, _dt_bias, _initial_state, _request, _ref),
    do: unloaded()

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
        _all,
        _ref
      ),
      do: unloaded()

  # The same C++ function; it names its last tensor x here and b there.
  def associative_scan(_backend, _device, _op, _a, _x, _options, _ref), do: unloaded()
  def linear_recurrence(_backend, _device, _op, _a, _b, _options, _ref), do: unloaded()

  def associative_grad(_backend, _device, _op, _dy, _dy_reverse, _a, _x, _options, _ref), do: unloaded()
  def linear_recurrence_grad(_backend, _device, _op, _dy, _dy_reverse, _a, _b, _options, _ref), do: unloaded()

  # tensors: [{name, tensor}], the first input first; request: activated, gradient, and the names of the
  # results.
  def recurrent(_backend, _device, _op, _tensors, _request, _ref), do: unloaded()

  # tensors: [{name, tensor}], x, dt, a, b and c first; request: dt_softplus, dt_range, gradient, and the
  # names of the results.
  def ssd(_backend, _device, _tensors, _request, _ref), do: unloaded()

  def load_layer(_backend, _device, _path_or_tensors, _check_finite, _ref), do: unloaded()
  def layer_info(_layer), do: unloaded()
  def layer_forward(_layer, _x, _bidirectional, _ref), do: unloaded()
  def layer_grad(_layer, _x, _dy, _d_penalty, _bidirectional, _ref), do: unloaded()

  # from: a path, or {[{name, tensor}], [{key, text}]}.
  def load_policy(_backend, _device, _from, _options, _ref), do: unloaded()
  def initial_weights(_trunk, _sizes, _seed, _ref), do: unloaded()
  def policy_info(_policy), do: unloaded()
  def window(_policy, _windows, _ref), do: unloaded()
  def new_session(_policy, _options), do: unloaded()
  def new_group(_sessions), do: unloaded()
  def act(_session, _obs), do: unloaded()
  # sessions: a list of %Session{} or of their references, or what new_group returned.
  def act_batch(_sessions, _obs, _ref), do: unloaded()
  def sample(_policy, _outs, _options), do: unloaded()
  def step(_session, _obs), do: unloaded()
  def step_batch(_sessions, _obs, _ref), do: unloaded()
  def gather_step(_session, _obs, _ref), do: unloaded()
  def gather_act(_session, _obs, _ref), do: unloaded()
  def deliver_answers(_answers), do: unloaded()
  def prefill(_session, _frames, _ref), do: unloaded()
  def rollback(_session, _frames_back), do: unloaded()
  def recorded_frames(_session), do: unloaded()
  def resimulate(_session, _frames_back, _frames, _ref), do: unloaded()
  def resimulate_acts(_session, _frames_back, _frames, _ref), do: unloaded()
  def snapshot(_session), do: unloaded()
  def restore(_session, _snapshot), do: unloaded()
  def export_state(_session), do: unloaded()
  def import_state(_session, _state), do: unloaded()

  def xla_status(_path), do: unloaded()
  def xla_registered(_path, _target, _platform), do: unloaded()

  def policy_weights(_policy), do: unloaded()
  def update_policy(_policy, _tensors, _queue), do: unloaded()
  def policy_forward(_policy, _frames, _state, _returns_state, _queue), do: unloaded()
  def policy_grad(_policy, _frames, _d_outs, _state, _by_frames, _by_state, _queue), do: unloaded()
  def new_training(_policy, _groups, _tensors, _start, _queue), do: unloaded()
  def train_step(_training, _policy, _pieces, _state, _options, _queue), do: unloaded()
  def training_values(_training, _policy, _queue), do: unloaded()
  def cross_entropy(_outs, _groups, _targets, _mask), do: unloaded()
  def mean_squared_error(_outs, _targets, _mask), do: unloaded()
  def choose(_outs, _groups, _draws), do: unloaded()
  def adamw(_tensors, _options), do: unloaded()

  def start_clock(_fps, _warm), do: unloaded()
  def take_tick(_clock, _tag), do: unloaded()
  def ask_tick(_clock, _ref), do: unloaded()
  def await_tick(_clock, _number, _tag), do: unloaded()
  def stop_clock(_clock), do: unloaded()

  # The functions of ExPhil.Native.Tools.Reference, whose function table is in c_src/nif/tools.
  def tool(_name, _arguments), do: unloaded()

  @doc "Whether the library is loaded and its settings were accepted; its path, or the reason why not."
  @spec status() :: %{loaded: boolean(), path: String.t(), reason: nil | String.t()}
  def status do
    status = :persistent_term.get({__MODULE__, :status})

    case ensure_configured() do
      {:error, {_kind, _argument, message}} when status.loaded -> %{status | loaded: false, reason: message}
      _ -> status
    end
  end

  @doc "As `info/0`, after applying the settings."
  @spec machine() :: result(map())
  def machine, do: with(:ok <- ensure_configured(), do: info())

  @doc """
  Applies the application's config before the first call that depends on it, and again where the application was not
  loaded yet: a release loads its modules before its applications. An error where the config or the environment has an
  invalid value, which it names; every call then returns that error.
  """
  @spec ensure_configured() :: :ok | {:error, reason()}
  def ensure_configured do
    case :persistent_term.get({__MODULE__, :configured}, nil) do
      {true, result} -> result
      {false, result} -> if config_known?(), do: configure_now(true), else: result
      nil -> configure_now(config_known?())
    end
  end

  defp configure_now(known?) do
    result =
      with {:ok, warning} <-
             configure(%{
               kernels: config(:kernels, Path.join(priv(), "kernels")),
               cache: config(:cache, ""),
               libcuda: config(:libcuda, ""),
               libnvrtc: config(:libnvrtc, ""),
               pinned_limit: config(:pinned_limit, 0),
               threads: config(:threads, 0)
             }) do
        if warning, do: :logger.warning(String.to_charlist("exphil_native: " <> warning))
        :ok
      end

    :persistent_term.put({__MODULE__, :configured}, {known?, result})
    result
  end

  @doc false
  def load do
    path = library_path()

    case :erlang.load_nif(String.to_charlist(path), @interface) do
      :ok -> put_status(%{loaded: true, path: path <> ".so", reason: nil})
      {:error, {kind, text}} -> put_status(%{loaded: false, path: path <> ".so", reason: reason(kind, text)})
    end

    :persistent_term.erase({__MODULE__, :configured})
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
      true -> "it failed while it was loaded (#{text})"
    end
  end

  # A function that this module lacks, or no NIF library at all.
  defp reason(:bad_lib, text), do: "#{old_library()} (#{text})"
  defp reason(kind, text), do: "#{kind}: #{text}"

  defp old_library do
    "it was built from another version of this project; run `make clean` and `make`"
  end

  # The result of the stubs, set by load/0. Reading it at run time keeps the compiler from concluding that no
  # call ever succeeds.
  defp unloaded, do: :persistent_term.get({__MODULE__, :unloaded})

  # ---- where things are ------------------------------------------------------------------------------------

  # Without the .so, as :erlang.load_nif/2 wants it.
  defp library_path do
    case System.get_env("EXPHIL_NATIVE_NIF") || Application.get_env(:exphil_native, :nif) do
      unset when unset in [nil, ""] -> Path.join(priv(), "exphil_native")
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

  defp config(key, default), do: Application.get_env(:exphil_native, key, default)

  defp config_known?, do: Application.spec(:exphil_native) != nil
end
