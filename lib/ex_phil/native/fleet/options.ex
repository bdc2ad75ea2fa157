defmodule ExPhil.Native.Fleet.Options do
  @moduledoc false
  # The options of a fleet, checked: what ExPhil.Native.Fleet documents, as one map.

  alias ExPhil.Native.{Error, Options}

  @known [:name, :policy, :devices, :load, :session, :copies, :lease, :export, :burn_in, :idle, :late]

  @type t :: %{
          name: atom(),
          policy: Path.t() | map(),
          devices: :all | [non_neg_integer()],
          load: keyword(),
          session: keyword() | (term() -> keyword()),
          copies: 0 | 1,
          lease: non_neg_integer(),
          export: pos_integer(),
          burn_in: non_neg_integer() | nil,
          idle: pos_integer() | :infinity,
          late: float()
        }

  @doc "The options as a map, or the error of the first bad one."
  @spec read(term()) :: {:ok, t()} | {:error, Error.t()}
  def read(options), do: Options.read(options, @known, &checked/1)

  defp checked(options) do
    session = Keyword.get(options, :session, [])

    %{
      name: name(options[:name]),
      policy: policy(options[:policy]),
      devices: devices(Keyword.get(options, :devices, :all)),
      load: load(Keyword.get(options, :load, [])),
      session: session(session),
      copies: copies(Keyword.get(options, :copies, 1)),
      lease: lease(Keyword.get(options, :lease, 150)),
      export: Options.positive_integer(options, :export, 1000),
      burn_in: burn_in(options[:burn_in]),
      idle: idle(Keyword.get(options, :idle, 600_000)),
      late: Options.positive_float(options, :late, late(session))
    }
  end

  # One frame, in milliseconds.
  defp late(session) when is_list(session) do
    case session[:fps] do
      fps when is_number(fps) and fps > 0 -> 1000 / fps
      _ -> 1000 / 60
    end
  end

  defp late(_function), do: 1000 / 60

  defp name(name) when is_atom(name) and name not in [nil, true, false], do: name
  defp name(other), do: Options.invalid(":name", "an atom, such as a module's name", other)

  defp policy(path) when is_binary(path), do: path
  defp policy(weights) when is_map(weights) and not is_struct(weights), do: weights
  defp policy(other), do: Options.invalid(":policy", "a path, or a map of tensors by name", other)

  defp devices(:all), do: :all

  defp devices(indices) do
    if is_list(indices) and Enum.all?(indices, &(is_integer(&1) and &1 >= 0)),
      do: indices,
      else: Options.invalid(":devices", ":all or a list of devices' indices", indices)
  end

  defp load(options) do
    if Keyword.keyword?(options) and not Keyword.has_key?(options, :device) and options[:backend] != :auto,
      do: options,
      else: Options.invalid(":load", "options of Policy.load/2 without :device and backend: :auto", options)
  end

  @of_session "options of Policy.new_session/2 without :device"

  defp session(session) do
    if is_function(session, 1) or without_device?(session),
      do: session,
      else: Options.invalid(":session", "#{@of_session}, or a function of the key to them", session)
  end

  defp without_device?(session), do: Keyword.keyword?(session) and not Keyword.has_key?(session, :device)

  @doc "The session's options of that key, or the error of a function that raises or answers something else."
  @spec session_of(keyword() | (term() -> keyword()), term()) :: {:ok, keyword()} | {:error, Error.t()}
  def session_of(session, _key) when is_list(session), do: {:ok, session}

  def session_of(function, key) do
    options = function.(key)

    if without_device?(options),
      do: {:ok, options},
      else: {:error, Error.invalid(":session", "a function to #{@of_session}", options)}
  catch
    kind, reason ->
      why = Exception.format_banner(kind, reason, __STACKTRACE__)
      text = "the fleet's :session function failed for the key #{inspect(key, limit: 8)}: #{why}"
      {:error, Error.new(:invalid_argument, ":session", text)}
  end

  defp copies(copies) when copies in [0, 1], do: copies
  defp copies(other), do: Options.invalid(":copies", "0 or 1", other)

  defp lease(time) when is_integer(time) and time >= 0 and time <= 60_000, do: time
  defp lease(other), do: Options.invalid(":lease", "milliseconds, at most 60000", other)

  defp burn_in(nil), do: nil
  defp burn_in(frames) when is_integer(frames) and frames >= 0 and frames <= 4096, do: frames
  defp burn_in(other), do: Options.invalid(":burn_in", "a number of frames, at most 4096", other)

  defp idle(:infinity), do: :infinity
  defp idle(time) when is_integer(time) and time > 0 and time < 0x100000000, do: time
  defp idle(other), do: Options.invalid(":idle", "milliseconds below 2^32, or :infinity", other)
end
