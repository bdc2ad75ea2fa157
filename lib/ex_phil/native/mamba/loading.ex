defmodule ExPhil.Native.Mamba.Loading do
  @moduledoc false
  # The options of Mamba.load/2 and new_session/2 as the library takes them, and what Mamba.info/1 says.

  alias ExPhil.Native.{Device, Error, Options}

  @load_options [:backend, :device, :precision, :max_sessions, :norm_epsilon, :check_finite] ++
                  [:dialect, :window, :chunk_size, :dt]
  @precisions [:f32, :bf16, :f16, :int8]
  @dialects [:state_spaces, :edifice_mamba, :edifice_mamba_ssd]

  @doc "The backend, the device and the options that NIF.load_policy takes."
  @spec options(term()) :: {:ok, {atom(), non_neg_integer(), tuple()}} | {:error, Error.t()}
  def options(options), do: Options.read(options, @load_options, &read/1)

  defp read(options) do
    precision = Options.one_of(options, :precision, @precisions)
    max_sessions = Options.positive_integer(options, :max_sessions, 1024)
    norm_epsilon = Options.positive_float(options, :norm_epsilon, nil)
    check_finite = Options.boolean(options, :check_finite, true)
    {backend, device} = Options.place(options)
    window = Options.optional_positive_integer(options, :window)
    {names, numbers} = trunk_options(options)
    {backend, device, {max_sessions, norm_epsilon, check_finite, window, precision, names, numbers}}
  end

  # The options that some trunks have: [{name, atom}] and [{name, integer}].
  defp trunk_options(options) do
    dialect = if options[:dialect] != nil, do: Options.one_of(options, :dialect, @dialects)
    dt = if options[:dt] != nil, do: Options.one_of(options, :dt, [:mean, :per_channel])
    chunk_size = Options.optional_positive_integer(options, :chunk_size)
    given = &Enum.reject(&1, fn {_, value} -> value == nil end)
    {given.(dialect: dialect, dt: dt), given.(chunk_size: chunk_size)}
  end

  @session_options [:warm_start, :window, :pad, :history, :pace, :latency]

  @doc "The frames of `:warm_start`, or nil, and the options that NIF.new_session takes. ExPhil.Native.Policy has its own."
  @spec session_options(term()) :: {:ok, {term(), tuple()}} | {:error, Error.t()}
  def session_options(options), do: Options.read(options, @session_options, &read_session/1)

  defp read_session(options) do
    window = Options.optional_positive_integer(options, :window) || 0
    pad = Options.one_of(options, :pad, [:repeat, :zeros, :none])
    if window == 0 and options[:pad] != nil, do: Options.invalid(":pad", "given with :window", options[:pad])
    history = Options.optional_positive_integer(options, :history) || 0
    rules = {1.0, false, false, nil, {0, 0}}
    pace = Options.positive_float(options, :pace, nil)
    {options[:warm_start], {window, pad, rules, history, pace, latency(options)}}
  end

  @doc "How the frames of a session are launched."
  @spec latency(keyword()) :: :plain | :armed
  def latency(options), do: Options.one_of(options, :latency, [:plain, :armed])

  defp group({name, first, count, false}), do: {name, first..(first + count - 1)}
  defp group({name, first, count, true}), do: {name, first..(first + count - 1), :binary}

  @doc "The fields of Mamba.info/1 from those of NIF.policy_info, and how the backend was chosen."
  @spec info(map(), ExPhil.Native.Mamba.choice()) :: ExPhil.Native.Mamba.info()
  def info(info, choice) do
    fingerprint =
      info.fingerprint |> Integer.to_string(16) |> String.downcase() |> String.pad_leading(16, "0")

    device = struct!(Device, info.device)
    {facts, info} = Map.pop!(info, :facts)
    groups = Enum.map(info.groups, &group/1)

    info
    |> Map.merge(Map.new(facts))
    |> Map.merge(%{
      window: if(info.window > 0, do: info.window),
      groups: groups,
      fingerprint: fingerprint,
      device: device,
      backend: device.backend,
      choice: choice
    })
  end
end
