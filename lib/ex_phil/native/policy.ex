defmodule ExPhil.Native.Policy do
  @moduledoc """
  An ExPhil policy: trunk, six heads and sampling in one native call for each frame.

      {:ok, policy} = Policy.load("policy.bin")
      {:ok, session} = Policy.new_session(policy, temperature: 0.5, seed: 1)
      {:ok, %Policy.Action{buttons: %{a: true}, main: {x, y}}} = Policy.act(session, obs)

  Actions follow ExPhil's rules: buttons are pressed where sigmoid(logit) > 0.5 or sampled from it, whatever the
  temperature; sticks and shoulder are the largest logit (the lowest bin where several are equal) or sampled at the
  temperature. Random numbers depend on the session's seed and the frame's number (Philox 4x32-10), so that a frame
  played again after `restore/2` draws the same numbers, and the same seed gives the same play on the same outputs.

  Sessions are those of `ExPhil.Native.Mamba`: snapshot, restore, export, import and rollback include the state of play,
  which is the frame's number and the held buttons.
  """

  import Bitwise

  import ExPhil.Native.Mamba.Call, only: [answer: 1, queued: 1, refs: 1]
  import ExPhil.Native.Raising, only: [raising: 2]

  alias ExPhil.Native.{Error, Mamba, NIF, Options, Telemetry, Tensor}
  alias ExPhil.Native.Policy.Action

  @type policy :: Mamba.model()
  @type session :: Mamba.session()
  @type result(value) :: Mamba.result(value)

  @buttons [:a, :b, :x, :y, :z, :l, :r, :d_up]
  @rules [:temperature, :deterministic, :deterministic_buttons, :hysteresis, :seed]

  @doc """
  Loads a policy with ExPhil's six heads, with the options of `ExPhil.Native.Mamba.load/2`; `backend: :auto`, the default, takes
  the backend that is faster for one agent. A file without those heads is an error of kind `:unsupported`.
  """
  @spec load(Path.t(), keyword()) :: result(policy())
  def load(path, options \\ []) do
    with {:ok, model} <- Mamba.load(path, options),
         {:ok, :ok} <- answer(NIF.require_controller(model.ref)),
         do: {:ok, model}
  end

  @doc "As `ExPhil.Native.Mamba.info/1`: the dialect, the window, the groups of outputs."
  @spec info(policy()) :: Mamba.info() | {:error, Error.t()}
  defdelegate info(policy), to: Mamba

  @doc """
  A new agent.

    * `:mode` - `:window` (answers from the last frames only, as ExPhil plays) or `:carried` (a state carried from
      frame to frame). `:window` is the default where the policy's window is known
    * `:pad` - of a window: `:repeat`, `:zeros` or `:none`; see `ExPhil.Native.Mamba.new_session/2`
    * `:temperature` - of sticks and shoulder (1.0)
    * `:deterministic` - the likeliest action, nothing is drawn (`false`)
    * `:deterministic_buttons` - buttons likewise, the rest sampled (`false`)
    * `:hysteresis` - `{press, release}`: probabilities, from 0 to 1, for a button that was not held, and for a held one.
      Only with `:deterministic_buttons` or `:deterministic`, else an error
    * `:seed` - of the random numbers, an integer (0)
    * `:pace` - frames per second that the session will have; see `ExPhil.Native.Mamba.pace/2`
    * `:latency` - `:plain` or `:armed`, with a carried state; see `ExPhil.Native.Mamba.new_session/2`
    * `:history` - how many frames `rollback/2` and `resimulate/3` can go back; see `ExPhil.Native.Mamba.new_session/2`
  """
  @spec new_session(policy(), keyword()) :: result(session())
  def new_session(policy, options \\ [])

  def new_session(%Mamba.Model{} = policy, options) do
    with {:ok, native} <-
           Options.read(
             options,
             [:mode, :pad, :history, :pace, :latency | @rules],
             &session_options(&1, policy.info.window)
           ),
         {:ok, :ok} <- answer(NIF.require_controller(policy.ref)),
         {:ok, ref} <- answer(NIF.new_session(policy.ref, native)) do
      {:ok, %Mamba.Session{ref: ref, model: policy}}
    end
  end

  def new_session(other, _options), do: {:error, Error.invalid("policy", "a policy of Policy.load/2", other)}

  defp session_options(options, window) do
    mode = Options.one_of(options, :mode, if(window, do: [:window, :carried], else: [:carried, :window]))
    pad = Options.one_of(options, :pad, [:repeat, :zeros, :none])

    if mode == :window and window == nil,
      do: Options.invalid(":mode", ":carried: the window is not known", mode)

    if mode == :carried and options[:pad] != nil,
      do: Options.invalid(":pad", "given with a window", options[:pad])

    history = Options.optional_positive_integer(options, :history) || 0
    pace = Options.positive_float(options, :pace, nil)

    {if(mode == :window, do: window, else: 0), pad, rules(options), history, pace,
     Mamba.Loading.latency(options)}
  end

  defp rules(options) do
    temperature = Options.positive_float(options, :temperature, 1.0)
    deterministic = Options.boolean(options, :deterministic, false)
    buttons = Options.boolean(options, :deterministic_buttons, false)

    hysteresis = hysteresis(options[:hysteresis], deterministic or buttons)
    {temperature, deterministic, buttons, hysteresis, Options.seed(options)}
  end

  defguardp is_probability(value) when is_number(value) and value >= 0 and value <= 1

  defp hysteresis(nil, _deterministic), do: nil

  defp hysteresis({press, release}, true) when is_probability(press) and is_probability(release),
    do: {press * 1.0, release * 1.0}

  defp hysteresis({press, release} = given, false) when is_probability(press) and is_probability(release),
    do: Options.invalid(":hysteresis", "given with deterministic_buttons: true or deterministic: true", given)

  defp hysteresis(other, _deterministic),
    do: Options.invalid(":hysteresis", "{press, release}, two probabilities from 0 to 1", other)

  @doc "One frame in, one action out. `obs` is {d_input}."
  @spec act(session(), Mamba.data()) :: result(Action.t())
  def act(%Mamba.Session{ref: ref}, obs),
    do: Telemetry.sampled(:act, fn -> with_data(obs, "obs", &NIF.act(ref, &1)) end)

  def act(other, _obs), do: not_a_session(other)

  @doc "One frame for each of several sessions of one policy: {n, d_input} to n actions, in their order."
  @spec act_batch([session()], Mamba.data()) :: result([Action.t()])
  def act_batch(sessions, obs) do
    with_data(obs, "obs", queued(&NIF.act_batch(refs(sessions), &1, &2)))
  catch
    :not_sessions -> {:error, Error.invalid("sessions", "a list of sessions", sessions)}
  end

  @doc """
  `ExPhil.Native.Mamba.resimulate/3` with an action for each frame: {seq, d_input} to seq actions. The frame numbers and
  the held buttons go back too, so the same frames give the same actions.
  """
  @spec resimulate(session(), non_neg_integer(), Mamba.data()) :: result([Action.t()])
  def resimulate(%Mamba.Session{ref: ref}, frames_back, frames) do
    frames
    |> with_data("frames", queued(&NIF.resimulate_acts(ref, frames_back, &1, &2)))
    |> Telemetry.went_back(:resimulate, frames_back)
  end

  def resimulate(other, _frames_back, _frames), do: not_a_session(other)

  @doc "One frame in, its outputs before sampling: `ExPhil.Native.Mamba.step/2`. Advances the session, draws nothing."
  @spec logits(session(), Mamba.data()) :: result(Mamba.data())
  defdelegate logits(session, obs), to: Mamba, as: :step

  @doc """
  The action for given outputs, by the rules of `new_session/2` (without `:mode` and `:pad`); no session is involved.

    * `:frame` - the frame's number, which the random numbers depend on (0)
    * `:held` - the buttons held, a map as in an action (none)
    * `:uniforms` - numbers in [0, 1) to use instead of drawn ones, as many as there are outputs: an f32 binary or tensor
  """
  @spec sample(policy(), Mamba.data(), keyword()) :: result(Action.t())
  def sample(policy, logits, options \\ [])

  def sample(%Mamba.Model{ref: ref}, logits, options) do
    with {:ok, {rules, state, uniforms}} <-
           Options.read(options, [:frame, :held, :uniforms | @rules], &sample_options/1) do
      with_data(logits, "logits", &NIF.sample(ref, &1, rules, state, uniforms))
    end
  end

  def sample(other, _logits, _options),
    do: {:error, Error.invalid("policy", "a policy of Policy.load/2", other)}

  defp sample_options(options) do
    frame = Keyword.get(options, :frame, 0)

    if not (is_integer(frame) and frame >= 0 and frame < 1 <<< 63),
      do: Options.invalid(":frame", "the number of a frame", frame)

    {rules(options), {frame, held(Keyword.get(options, :held, %{}))}, uniforms(options[:uniforms])}
  end

  defp held(%{} = held) do
    @buttons
    |> Enum.with_index()
    |> Enum.reduce(0, fn {name, bit}, bits -> if held[name], do: bits ||| 1 <<< bit, else: bits end)
  end

  defp held(other), do: Options.invalid(":held", "a map of buttons", other)

  defp uniforms(nil), do: nil
  defp uniforms(binary) when is_binary(binary), do: binary
  defp uniforms(tensor), do: tensor |> Tensor.pack!(":uniforms") |> elem(0)

  @doc "As `ExPhil.Native.Mamba.rollback/2`: the frame number and the held buttons go back too."
  defdelegate rollback(session, frames_back), to: Mamba
  @doc "As `ExPhil.Native.Mamba.snapshot/1`."
  defdelegate snapshot(session), to: Mamba
  @doc "As `ExPhil.Native.Mamba.restore/2`."
  defdelegate restore(session, snapshot), to: Mamba
  @doc "As `ExPhil.Native.Mamba.export_state/1`."
  defdelegate export_state(session), to: Mamba
  @doc "As `ExPhil.Native.Mamba.import_state/2`."
  defdelegate import_state(session, state), to: Mamba

  # ---- versions that raise ---------------------------------------------------------------------------------

  raising load(path :: Path.t(), options :: keyword()) :: policy(), "the policy"
  raising new_session(policy :: policy(), options :: keyword()) :: session(), "the session"
  raising act(session :: session(), obs :: Mamba.data()) :: Action.t(), "the action"
  raising act_batch(sessions :: [session()], obs :: Mamba.data()) :: [Action.t()], "the actions"
  @doc "As `rollback/2`, but returns the session and raises the error."
  defdelegate rollback!(session, frames_back), to: Mamba

  raising resimulate(session :: session(), frames_back :: non_neg_integer(), frames :: Mamba.data()) :: [
            Action.t()
          ],
          "the actions"

  raising logits(session :: session(), obs :: Mamba.data()) :: Mamba.data(), "the outputs"
  raising sample(policy :: policy(), logits :: Mamba.data(), options :: keyword()) :: Action.t(), "the action"
  # An action is no tensor: nothing to give back in the form of the data.
  defp with_data(data, _argument, call) when is_binary(data), do: answer(call.(data))

  defp with_data(data, argument, call) do
    with {:ok, plain, _form} <-
           Tensor.pack(data, argument, "an f32 binary, an Nx tensor or {:f32, shape, binary}"),
         do: answer(call.(plain))
  end

  defp not_a_session(other),
    do: {:error, Error.invalid("session", "a session of Policy.new_session/2", other)}
end
