defmodule ExPhil.Native.Policy.SessionOptions do
  @moduledoc false
  # The options of Policy.new_session/2 and Policy.sample/3 as the maps that the library takes: SessionRequest
  # and SampleRequest in c_src/nif/policy_options.hpp.

  import Bitwise

  alias ExPhil.Native.{Error, Options, Tensor}

  @rules [:temperature, :deterministic, :deterministic_buttons, :hysteresis, :seed]
  @session [:window, :pad, :warm_start, :history, :fps, :latency, :device | @rules]

  @pad_needs_window ":pad needs :window, the number of frames that each answer is from: this session would carry its state"

  @doc "The frames of `:warm_start`, or nil, and the map of NIF.new_session. `known` is the policy's window, or nil."
  @spec read(term(), nil | pos_integer()) :: {:ok, {term(), map()}} | {:error, Error.t()}
  def read(options, known), do: Options.read(options, @session, &session(&1, known))

  defp session(options, known) do
    window = window(options[:window], known)
    pad = Options.one_of(options, :pad, [:repeat, :zeros, :none])

    if window == 0 and options[:pad] != nil,
      do: raise(Error.new(:invalid_argument, ":pad", @pad_needs_window))

    {options[:warm_start],
     Map.merge(rules(options), %{
       window: window,
       pad: pad,
       history: Options.optional_positive_integer(options, :history) || 0,
       fps: Options.positive_float(options, :fps, nil),
       latency: Options.one_of(options, :latency, [:plain, :armed]),
       device: device(options[:device])
     })}
  end

  defp device(nil), do: nil
  defp device(index) when is_integer(index) and index >= 0 and index < 1024, do: index
  defp device(other), do: Options.invalid(":device", "the index of one of the policy's devices", other)

  defp window(nil, known), do: known || 0
  defp window(:none, _known), do: 0
  defp window(frames, _known) when is_integer(frames) and frames > 0 and frames < 1 <<< 63, do: frames
  defp window(other, _known), do: Options.invalid(":window", "a number of frames, or :none", other)

  @doc "The map of NIF.sample."
  @spec sampling(term()) :: {:ok, map()} | {:error, Error.t()}
  def sampling(options), do: Options.read(options, [:frame, :held, :uniforms | @rules], &sample/1)

  defp sample(options) do
    frame = Keyword.get(options, :frame, 0)

    if not (is_integer(frame) and frame >= 0 and frame < 1 <<< 63),
      do: Options.invalid(":frame", "the number of a frame", frame)

    held = held(Keyword.get(options, :held, %{}))
    Map.merge(rules(options), %{frame: frame, held: held, uniforms: uniforms(options[:uniforms])})
  end

  # The rules that are given: those of a policy without heads are refused, and the library has the defaults.
  defp rules(options) do
    temperature = Options.positive_float(options, :temperature, 1.0)
    deterministic = Options.boolean(options, :deterministic, false)
    buttons = Options.boolean(options, :deterministic_buttons, false)
    hysteresis = hysteresis(options[:hysteresis], deterministic or buttons)
    seed = Options.seed(options)

    %{
      temperature: temperature,
      deterministic: deterministic,
      deterministic_buttons: buttons,
      hysteresis: hysteresis,
      seed: seed
    }
    |> Map.take(Keyword.keys(options))
  end

  defguardp is_probability(value) when is_number(value) and value >= 0 and value <= 1

  defp hysteresis(nil, _deterministic), do: nil

  defp hysteresis({press, release}, true) when is_probability(press) and is_probability(release),
    do: {press * 1.0, release * 1.0}

  defp hysteresis({press, release} = given, false) when is_probability(press) and is_probability(release),
    do: Options.invalid(":hysteresis", "given with deterministic_buttons: true or deterministic: true", given)

  defp hysteresis(other, _deterministic),
    do: Options.invalid(":hysteresis", "{press, release}, two probabilities from 0 to 1", other)

  defp held(%{} = held) do
    names = for {name, true} <- held, do: name

    case Enum.reject(held, fn {name, value} -> is_atom(name) and is_boolean(value) end) do
      [] -> names
      _ -> Options.invalid(":held", "a map of buttons to true or false", held)
    end
  end

  defp held(other), do: Options.invalid(":held", "a map of buttons", other)

  defp uniforms(nil), do: nil
  defp uniforms(binary) when is_binary(binary), do: binary
  defp uniforms(tensor), do: tensor |> Tensor.pack!(":uniforms") |> elem(0)
end
