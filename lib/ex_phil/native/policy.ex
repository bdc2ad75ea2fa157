defmodule ExPhil.Native.Policy do
  # One module, because a policy is one noun to its users. Most of the file is their documentation; the work
  # is done in lib/ex_phil/native/policy/, and policy/interface/ has the types, and the functions that load,
  # play many agents in one call, go back or train.
  @moduledoc """
  A recurrent policy that answers every frame in constant time, whatever its trunk.

      {:ok, policy} = Policy.load("policy.safetensors")
      {:ok, session} = Policy.new_session(policy, history: 8)
      {:ok, out} = Policy.step(session, obs)                       # one frame in, its outputs out
      {:ok, outs} = Policy.resimulate(session, 3, frames)          # the opponent's real inputs arrived: play the
                                                                   # last 3 frames again

  A policy holds the weights, a `Policy.Session` one agent's recurrent state, a `Policy.Snapshot` a copy of such a state;
  all are resident where the policy was loaded, and are freed when nothing refers to them any more. The same inputs give
  the same bits, whatever else is computed beside them.

  Observations are f32, and finite: a NaN or an infinite value is an error. A bare binary gives a binary; a tensor
  (`ExPhil.Native.Tensor`) gives a tensor of the same form. A function that fails returns
  `{:error, %ExPhil.Native.Error{}}` and changes nothing; its version with a `!` raises the error.

  ## Actions

  Where the policy has ExPhil's six heads (`buttons`, `main_x`, `main_y`, `c_x`, `c_y`, `shoulder`), `act/2` chooses a
  controller's state from the outputs, in the same native call:

      {:ok, session} = Policy.new_session(policy, temperature: 0.5, seed: 1)
      {:ok, %Policy.Action{buttons: %{a: true}, main: {x, y}}} = Policy.act(session, obs)

  Actions follow ExPhil's rules: buttons are pressed where sigmoid(logit) > 0.5 or sampled from it, whatever the
  temperature; sticks and shoulder are the largest logit (the lowest bin where several are equal) or sampled at the
  temperature. Random numbers depend on the session's seed and the number of actions it has taken (Philox 4x32-10), so
  that a frame played again after `restore/2` draws the same numbers, and the same seed gives the same play on the same
  outputs. A session may be stepped on some frames and act on others. Snapshots, exported states and rollback include the
  state of play, which is that number and the held buttons. Of a policy without those heads the calls of actions are an
  error of kind `:unsupported`.

  ## Checkpoints

  They are of three kinds, detected by content: safetensors, Edifice's `.nx` and ExPhil's `.bin` (both its forms).
  Edifice's `:mamba`, `:mamba_ssd`, `:gru`, `:lstm`, `:min_gru`, `:min_lstm` and `:gated_deltanet`, alone or under ExPhil's six
  heads, run on both backends. See [docs/exphil.md](docs/exphil.md).

  Other safetensors files have the names and shapes of state-spaces/mamba and of transformers' Mamba:
  `backbone.layers.{i}.norm.weight`, `.mixer.{in_proj,conv1d,x_proj,dt_proj,out_proj}.{weight,bias}`,
  `.mixer.{A_log,D}`, `backbone.norm_f.weight`, and around them `input_proj.{weight,bias}` and `head.{weight,bias}`.
  Every dimension is inferred from the shapes. Mamba-2 has the same naming; what its shapes do not say comes from the
  file's metadata, a `config.json` beside it or options: see [docs/reference.md](docs/reference.md#checkpoints).
  """

  use ExPhil.Native.Raising
  use ExPhil.Native.Policy.Interface.Types

  import ExPhil.Native.Policy.Call

  alias ExPhil.Native.{Error, NIF, Telemetry, Tensor}
  alias ExPhil.Native.Policy.{Action, Loading, Session, SessionOptions}

  @enforce_keys [:ref, :info]
  defstruct [:ref, :info]

  use ExPhil.Native.Policy.Interface.Loading
  use ExPhil.Native.Policy.Interface.Batches
  use ExPhil.Native.Policy.Interface.States
  use ExPhil.Native.Policy.Interface.Training

  @doc """
  What the policy is and where it is resident: its trunk, the dimensions inferred from the shapes, the window it was trained
  on where that is known, the backend and device that were chosen (`devices`: all of them, `device` the first), the bytes held
  there now, and the fingerprint that ties states to the policy.

  Returns `{:ok, info}`, a map (`t:info/0`); only what is no policy is an error.

  `groups` names the ranges of the outputs where the policy has named heads, as `t:ExPhil.Native.Loss.group/0`s. The names of ExPhil's six
  heads are atoms, and its `:buttons` are eight separate events: `{:buttons, 0..7, :binary}`. Another name is an atom where the VM has that
  atom already, and else a string, because a file must not make atoms. `gathered` is, of a policy
  loaded with `gather: true`, how many frames were played by `step/2` and `act/2` in how many launches, and the most frames of one.

  `choice` is how the backend was chosen:

    * `:named` - by the call, the environment or the config
    * `:only_host` - there is no GPU that can be used; `ExPhil.Native.info/0` says why
    * `%{cuda: %{paced: microseconds, back_to_back: microseconds}, host: %{...}}` - by these medians, which `backend: :auto`
      measured at load. Where a backend failed, it has the error instead, and the other one `nil`
  """
  fallible info(policy :: t()) :: info()

  def info(%__MODULE__{ref: ref, info: %{choice: choice}}) do
    with {:ok, info} <- answer(NIF.policy_info(ref)), do: {:ok, Loading.info(info, choice)}
  end

  def info(policy), do: not_a("policy", policy)

  @doc """
  A new agent. Its state is zero; that of GRU and LSTM may begin with other values, see [docs/exphil.md](docs/exphil.md).

  Returns `{:ok, session}`, or an error that names the option, or of kind `:out_of_memory`.

    * `:window` - answers as `window/2` would for the last so many frames, each time from a new agent's state: for policies that
      were trained on windows. `:none` carries the state from frame to frame. Left out, or `nil`, it is the window that the policy
      was trained on, where `info/1` knows it, and else `:none`
    * `:pad` - what a window has before the first frame: `:repeat` (copies of it, as ExPhil plays; the default), `:zeros`,
      or `:none` (shorter windows)
    * `:warm_start` - frames ({seq, d_input}); the state is the one after them, their answers are dropped
    * `:history` - records what `rollback/2` and `resimulate/3` need to go back up to so many frames (at most 1024). A frame
      takes no longer with it. Each frame of history is one more state: the session counts as `history + 1` of the
      policy's `:max_sessions`. With a window it is one more frame of the window
    * `:fps` - frames per second that the session will have, at most 10,000: the library is awake and warm when the frame
      comes, in the way that the backend allows (below)
    * `:latency` - `:plain` (the default) or `:armed`, on a GPU of compute capability 9.0 or later: the next
      frame's work is launched before its observation is there, and waits for it on the GPU for at most a millisecond. A frame
      after `ExPhil.Native.Clock.wait/1` of its own clock is faster then and, without a window, one that follows the one before
      it within half a millisecond. The bits are the same. It holds a part of the GPU and has hazards for other code on it: docs/reference.md, Armed steps
    * `:device` - of a policy on several devices: the index of the one that the session goes to (the one with the fewest sessions)

  With `:fps`: a step that comes once a frame finds a sleeping processor and weights that are in no cache, and takes several
  times as long as one that follows another. So a thread of the library wakes a millisecond before the next frame is due, runs a
  step on a scratch state, and polls until the frame comes, or for one more millisecond; on the CPU backend it also computes a part
  of the frame. On a GPU the process that steps has to be warm as well: where it waits with `ExPhil.Native.Clock.start/1` of this
  session, the clock prepares it, and the thread sleeps. This costs a share of one core: about 6% at 60 FPS where frames are on
  time, 14% on the CPU backend, 5% with a clock on a GPU. Frames may come early, late or never: the answers are the same, only the latency is not
  as good. After eight missing frames the thread sleeps until the next one; the frames after a pause are not yet expected.

  With a window every frame runs the layers over its whole window again; where there is time between two frames, over all but the last one
  before that comes ("On time" in [docs/reference.md](docs/reference.md)). Only the input projection and the first layer's
  `in_proj` of each frame are kept, where the policy is: 2 x (d_model + 2 x d_inner) floats for each frame of window and history.

  How `act/2` chooses, for a policy with ExPhil's heads; of another policy these options are an error of kind `:unsupported`:

    * `:temperature` - of sticks and shoulder (1.0)
    * `:deterministic` - the likeliest action, nothing is drawn (`false`)
    * `:deterministic_buttons` - buttons likewise, the rest sampled (`false`)
    * `:hysteresis` - `{press, release}`: probabilities, from 0 to 1, for a button that was not held, and for a held one.
      Only with `:deterministic_buttons` or `:deterministic`, else an error
    * `:seed` - of the random numbers, an integer (0)
  """
  fallible new_session(policy :: t(), options :: keyword() \\ []) :: session()

  def new_session(policy, options \\ [])

  def new_session(%__MODULE__{ref: ref, info: info} = policy, options) do
    with {:ok, {frames, native}} <- SessionOptions.read(options, info.window),
         {:ok, {session, device}} <- NIF.new_session(ref, native) do
      gathers = info.gathered != nil and native.latency != :armed
      session = %Session{ref: session, policy: policy, device: device, fps: native.fps, gathers: gathers}
      warm_start(session, frames)
    else
      {:error, reason} -> failed(reason)
    end
  end

  def new_session(policy, _options), do: not_a("policy", policy)

  defp warm_start(session, nil), do: {:ok, session}

  defp warm_start(session, frames) do
    case with_data(frames, ":warm_start", queued(&NIF.prefill(session.ref, &1, &2))) do
      {:ok, _outs} ->
        {:ok, session}

      {:error, %Error{argument: "frames"} = error} ->
        message = String.replace_prefix(error.message, "frames", ":warm_start")
        {:error, %{error | argument: ":warm_start", message: message}}

      error ->
        error
    end
  end

  @doc """
  Plays one frame: the session goes on by it, in a time that does not depend on the frames before, and the policy answers.

    * `session` - of `new_session/2`. Calls of several processes on one session run one after another
    * `obs` - the frame's observation, f32 of shape {d_input}, in the units that the policy was trained on: a binary of 4 * d_input bytes,
      or a tensor

  Returns `{:ok, outs}`, the outputs of the policy's last layer (of a choice its logits, before any softmax) in the order of `groups` of
  `info/1`: f32 of shape {d_output}, a binary for a binary and a tensor for a tensor. `act/2` returns an action instead.

  An observation of another size, or with a number that is not finite, is an error of kind `:invalid_argument`; a session of weights
  that `update/2` has replaced is one of kind `:mismatch`. An error leaves the session as it was.
  """
  fallible step(session :: session(), obs :: data()) :: data()

  def step(%Session{ref: ref, gathers: false}, obs),
    do: Telemetry.sampled(:step, fn -> run_step(ref, obs) end)

  def step(%Session{ref: ref}, obs),
    do: Telemetry.sampled(:step, fn -> with_data(obs, "obs", queued(&NIF.gather_step(ref, &1, &2))) end)

  def step(session, _obs), do: not_a("session", session)

  # The library takes a binary and {type, shape, binary} as they are.
  defp run_step(ref, obs) when is_binary(obs) or is_tuple(obs), do: answer(NIF.step(ref, obs))
  defp run_step(ref, obs), do: with_data(obs, "obs", &NIF.step(ref, &1))

  @doc """
  Plays one frame and chooses a controller's action from the outputs, by the session's rules: `step/2` and `sample/3` in one call.

    * `session` - of `new_session/2`, of a policy with ExPhil's six heads
    * `obs` - the frame's observation, f32 of shape {d_input}: a binary of 4 * d_input bytes, or a tensor

  Returns `{:ok, action}`, an `ExPhil.Native.Policy.Action`. Errors are those of `step/2`, and one of kind `:unsupported` of a policy
  without those heads.
  """
  fallible act(session :: session(), obs :: data()) :: Action.t()
  def act(%Session{ref: ref, gathers: false}, obs), do: Telemetry.sampled(:act, fn -> run_act(ref, obs) end)

  def act(%Session{ref: ref}, obs),
    do: Telemetry.sampled(:act, fn -> with_frames(obs, "obs", queued(&NIF.gather_act(ref, &1, &2))) end)

  def act(session, _obs), do: not_a("session", session)

  defp run_act(ref, obs) when is_binary(obs) or is_tuple(obs), do: answer(NIF.act(ref, obs))
  defp run_act(ref, obs), do: with_frames(obs, "obs", &NIF.act(ref, &1))

  @doc """
  Plays many frames of one session in one parallel pass, with the bits of stepping each.

    * `frames` - f32 of shape {seq, d_input}: a binary of 4 * seq * d_input bytes, or a tensor. No frame at all changes nothing

  Returns `{:ok, outs}`, f32 of shape {seq, d_output}, in the form of `frames`. Errors are those of `step/2`.
  """
  fallible prefill(session :: session(), frames :: data()) :: data()
  def prefill(%Session{ref: ref}, frames), do: with_data(frames, "frames", queued(&NIF.prefill(ref, &1, &2)))
  def prefill(session, _frames), do: not_a("session", session)

  @doc """
  Runs each window from a new agent's state and answers its last frame. No session is involved. For policies that were trained on windows.

    * `windows` - f32 of shape {n, seq, d_input}: an Nx tensor or `{:f32, {n, seq, d_input}, binary}`

  Returns `{:ok, outs}`, f32 of shape {n, d_output}, in the form of `windows`. Another shape, and numbers that are not finite, are errors of
  kind `:invalid_argument`.
  """
  fallible window(policy :: t(), windows :: Tensor.t()) :: Tensor.t()

  def window(%__MODULE__{ref: ref}, windows) do
    expected = "an Nx tensor or {:f32, {n, seq, d_input}, binary}"
    with_tensor(windows, "windows", expected, queued(&NIF.window(ref, &1, &2)))
  end

  def window(policy, _windows), do: not_a("policy", policy)

  @doc """
  Chooses the action for given outputs, by the rules of `new_session/2`. No session is involved.

    * `outs` - f32 of shape {d_output}: a binary of 4 * d_output bytes, or a tensor

  Returns `{:ok, action}`, an `ExPhil.Native.Policy.Action`, or an error: of kind `:unsupported` of a policy without ExPhil's six heads. Beside
  the options of `new_session/2` for actions:

    * `:frame` - the frame's number, which the random numbers depend on (0)
    * `:held` - the buttons held, a map as in an action (none)
    * `:uniforms` - numbers in [0, 1) to use instead of drawn ones, as many as there are outputs: an f32 binary or tensor
  """
  fallible sample(policy :: t(), outs :: data(), options :: keyword() \\ []) :: Action.t()
  def sample(policy, outs, options \\ [])

  def sample(%__MODULE__{ref: ref}, outs, options) do
    with {:ok, native} <- SessionOptions.sampling(options),
         do: with_frames(outs, "outs", &NIF.sample(ref, &1, native))
  end

  def sample(policy, _outs, _options), do: not_a("policy", policy)

  defimpl Inspect do
    def inspect(%{info: info}, _options) do
      width = if info[:d_model], do: "d_model #{info.d_model}, ", else: ""

      "#ExPhil.Native.Policy<#{info.trunk}, #{info.backend}:#{info.device.index}, #{info.n_layer} layers, " <>
        "#{width}#{info.d_input} in, #{info.d_output} out>"
    end
  end
end
