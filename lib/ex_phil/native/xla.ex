defmodule ExPhil.Native.XLA do
  @moduledoc false
  # The custom calls of priv/exphil_native_xla.so and the XLA of this VM. ExPhil.Native.Defn documents it.

  alias ExPhil.Native.{Error, NIF}

  @compile {:no_warn_undefined, [EXLA, EXLA.NIF]}

  @platforms %{host: "Host", cuda: "CUDA"}

  @doc """
  Loads the custom calls into EXLA's process-wide XLA, which registers them by name. On success `registered?/2`
  returns true. A second call changes nothing.
  """
  @spec register() :: :ok | {:error, Error.t()}
  def register do
    with :ok <- present(library()), :ok <- load(library()), do: report(status())
  end

  @doc "`:ok` where the handlers are registered in an XLA of this VM, else why not."
  @spec status() :: :ok | {:error, String.t()}
  def status do
    case NIF.xla_status(library()) do
      {:ok, nil} ->
        {:error, "priv/exphil_native_xla.so is not loaded; ExPhil.Native.Defn.register/0 loads it"}

      {:ok, "registered"} ->
        :ok

      {:ok, reason} ->
        {:error, reason}

      {:error, {_kind, _argument, message}} ->
        {:error, message}
    end
  end

  @doc "Whether XLA has this custom call for the platform of an EXLA client."
  @spec registered?(String.t(), atom()) :: boolean()
  def registered?(target, platform) do
    case Map.fetch(@platforms, platform) do
      {:ok, name} -> match?({:ok, true}, NIF.xla_registered(library(), target, name))
      :error -> false
    end
  end

  defp library, do: Application.app_dir(:exphil_native, "priv/exphil_native_xla.so")

  defp present(path) do
    if File.exists?(path) do
      :ok
    else
      {:error,
       Error.new(
         :unsupported,
         "priv/exphil_native_xla.so",
         "the library was built without XLA's custom calls, because xla/ffi/api/c_api.h was not found; " <>
           "set XLA_INCLUDE to the folder that has it and build again"
       )}
    end
  end

  # EXLA opens its own NIF in local scope: the library finds XLA itself once EXLA has opened it.
  defp load(path) do
    cond do
      Code.ensure_loaded?(EXLA) and function_exported?(EXLA, :load_dylib, 1) ->
        load(EXLA, path)

      Code.ensure_loaded?(EXLA.NIF) and function_exported?(EXLA.NIF, :load_dylib, 1) ->
        load(EXLA.NIF, path)

      true ->
        {:error,
         Error.new(
           :unsupported,
           "EXLA",
           "EXLA 0.12 or later is not available, so there is no XLA to register with"
         )}
    end
  end

  defp load(loader, path) do
    loader.load_dylib(path)
    :ok
  rescue
    error in [ArgumentError, RuntimeError, ErlangError] ->
      {:error, Error.new(:unsupported, "EXLA", "EXLA could not load #{path}: #{Exception.message(error)}")}
  end

  defp report(:ok), do: :ok
  defp report({:error, reason}), do: {:error, Error.new(:unsupported, "XLA", reason)}
end
