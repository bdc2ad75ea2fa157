defmodule ExPhil.Native.Policy.Loading do
  @moduledoc false
  # What Policy.load/2 and Policy.init/2 do: the options as the map that the library takes (LoadRequest in
  # c_src/nif/policy_options.hpp), and what Policy.info/1 says. Their documentation is in
  # policy/interface/loading.ex.

  import ExPhil.Native.Policy.Call, only: [failed: 1]

  alias ExPhil.Native.{Device, Error, NIF, Options, Policy, Queue}
  alias ExPhil.Native.Policy.{Automatic, Weights}

  @load_options [:backend, :device, :precision, :states, :max_sessions, :norm_epsilon, :check_finite, :gather] ++
                  [
                    :dialect,
                    :window,
                    :chunk_size,
                    :dt,
                    :num_heads,
                    :ngroups,
                    :norm_before_gate,
                    :dt_limit,
                    :a_floor
                  ]
  @precisions [:f32, :bf16, :f16, :int8, :tf32x3]
  @states [:f32, :f16, :bf16]
  @dialects [:state_spaces, :edifice_mamba, :edifice_mamba_ssd]

  def load(path_or_weights, options) do
    with {:ok, {from, options}} <- Weights.source(path_or_weights, options),
         {:ok, {backend, devices, options}} <- options(options) do
      load = fn backend, devices -> load(from, backend, devices, options) end
      if backend == :auto, do: Automatic.load(load, devices), else: load.(backend, devices)
    end
  end

  defp load(from, backend, devices, options) do
    with {:ok, ref} <- Queue.run(&NIF.load_policy(backend, devices, from, options, &1)),
         {:ok, info} <- NIF.policy_info(ref) do
      {:ok, %Policy{ref: ref, info: info(info, :named)}}
    else
      {:error, reason} -> failed(reason)
    end
  end

  def init(trunk, options) do
    with {:ok, {weights, options}} <- Weights.initial(trunk, options), do: load(weights, options)
  end

  @doc "The backend, the devices and the options that NIF.load_policy takes."
  @spec options(term()) :: {:ok, {atom(), :all | [non_neg_integer()], map()}} | {:error, Error.t()}
  def options(options), do: Options.read(options, @load_options, &read/1)

  defp read(options) do
    native = %{
      precision: Options.one_of(options, :precision, @precisions),
      states: Options.one_of(options, :states, @states),
      max_sessions: Options.optional_positive_integer(options, :max_sessions),
      norm_epsilon: Options.positive_float(options, :norm_epsilon, nil),
      check_finite: Options.boolean(options, :check_finite, true),
      gather: Options.boolean(options, :gather, false),
      window: Options.optional_positive_integer(options, :window),
      trunk: trunk(options)
    }

    {backend, devices} = Options.places(options)
    {backend, devices, native}
  end

  # The options that some trunks have.
  defp trunk(options) do
    {least_dt, most_dt} = dt_limit(options)

    for {name, value} <- [
          dialect: if(options[:dialect] != nil, do: Options.one_of(options, :dialect, @dialects)),
          dt: if(options[:dt] != nil, do: Options.one_of(options, :dt, [:mean, :per_channel])),
          chunk_size: Options.optional_positive_integer(options, :chunk_size),
          num_heads: Options.optional_positive_integer(options, :num_heads),
          ngroups: Options.optional_positive_integer(options, :ngroups),
          dt_limit_min: least_dt,
          dt_limit_max: most_dt,
          a_floor: Options.positive_float(options, :a_floor, nil),
          norm_before_gate:
            if(options[:norm_before_gate] != nil,
              do: Options.boolean(options, :norm_before_gate, false)
            )
        ],
        value != nil,
        into: %{},
        do: {name, value}
  end

  # An upper bound may be :infinity, which a file states as "inf" and the library takes where nothing is
  # stated.
  defp dt_limit(options) do
    case options[:dt_limit] do
      {least, :infinity} when is_number(least) and least >= 0 ->
        {least * 1.0, nil}

      {least, most} when is_number(least) and least >= 0 ->
        Options.range([dt_limit: {least, most}], :dt_limit)

      nil ->
        {nil, nil}

      other ->
        Options.invalid(":dt_limit", "{min, max} with 0 <= min <= max, where max may be :infinity", other)
    end
  end

  defp group(%{name: name, first: first, count: count, binary: binary}) do
    range = first..(first + count - 1)
    if binary, do: {name, range, :binary}, else: {name, range}
  end

  @doc "The fields of Policy.info/1 from those of NIF.policy_info, and how the backend was chosen."
  @spec info(map(), ExPhil.Native.Policy.choice()) :: ExPhil.Native.Policy.info()
  def info(info, choice) do
    device = struct!(Device, info.device)
    {facts, info} = info |> Map.delete(:constants) |> Map.pop!(:facts)

    groups = Enum.map(info.groups, &group/1)

    info
    |> Map.merge(facts)
    |> Map.merge(%{
      window: if(info.window > 0, do: info.window),
      groups: groups,
      fingerprint: fingerprint(info.fingerprint),
      device: device,
      devices: Enum.map(info.devices, &struct!(Device, &1)),
      backend: device.backend,
      choice: choice
    })
  end

  @doc "A fingerprint of the library, as Policy.info/1 has it."
  @spec fingerprint(non_neg_integer()) :: String.t()
  def fingerprint(number),
    do: number |> Integer.to_string(16) |> String.downcase() |> String.pad_leading(16, "0")
end
