defmodule ExPhil.Native.Policy do
  # One module, because a policy is one noun to its users. Three fifths of the file are their documentation; the work is
  # done in lib/ex_phil/native/policy/.
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

  import ExPhil.Native.Policy.Call

  alias ExPhil.Native.{Device, Error, NIF, Queue, Telemetry, Tensor}

  alias ExPhil.Native.Policy.{
    Action,
    Automatic,
    Loading,
    Session,
    SessionOptions,
    Snapshot,
    States,
    Training,
    Weights
  }

  @enforce_keys [:ref, :info]
  defstruct [:ref, :info]

  @typedoc "A loaded policy. Safe to share between processes. Its fields are not part of the interface."
  @type t :: %__MODULE__{ref: reference(), info: map()}

  @type session :: Session.t()
  @type snapshot :: Snapshot.t()
  @typedoc "f32: a binary as `Nx.to_binary/1` returns it, or a tensor. The answer has the same form."
  @type data :: binary() | Tensor.t()
  @typedoc "A tensor for each weight, by its name in the checkpoint."
  @type weights :: %{String.t() => Tensor.t()}
  @typedoc "A tensor for each named part of a state, {batch, n_layer, rows, columns}; of Mamba and Mamba-2 `:ssm` and `:conv`,
  of Mamba-3 `:angle`, `:ssm`, `:k` and `:v`, of GRU, minGRU and minLSTM `:h`, of LSTM `:h_c`, of a gated DeltaNet `:s` and `:conv`."
  @type state :: %{atom() => Tensor.t()}
  @type result(value) :: {:ok, value} | {:error, Error.t()}

  @typedoc "Microseconds of one agent's frame: once every 16.67 ms, and one after another."
  @type frame_times :: %{paced: float(), back_to_back: float()}

  @typedoc "How the backend was chosen; see `info/1`."
  @type choice ::
          :named
          | :only_host
          | %{cuda: frame_times() | Error.t() | nil, host: frame_times() | Error.t() | nil}

  @typedoc """
  `d_input`, `d_output` and what else is known of every policy, and the facts of its trunk: those of `:mamba1` are
  `:dialect`, `:d_model`, `:d_inner`, `:d_state`, `:d_conv`, `:dt_rank`, `:chunk_size`, `:dt` and `:norm_epsilon`; of `:gru`, `:lstm`,
  `:min_gru` and `:min_lstm` they are `:d_model`, `:layout` and `:norm_epsilon`; of `:gated_deltanet` `:d_model`, `:num_heads`,
  `:d_conv` and `:norm_epsilon`; of `:mamba2` `:d_model`, `:d_inner`, `:d_ssm`, `:d_state`, `:d_conv`, `:num_heads`, `:headdim`,
  `:ngroups`, `:norm_before_gate`, `:dt_limit_min`, `:dt_limit_max` (`nil`: no limit), `:norm_epsilon`, `:mixer_norm_epsilon` and
  `:settings_from`, the last source of what shapes cannot say: `:metadata`, `:config`, `:options` or `:defaults`; of `:mamba3`
  `:d_model`, `:d_inner`, `:d_state`, `:num_heads`, `:headdim`, `:ngroups`, `:num_rope_angles`, `:is_mimo`, `:mimo_rank` (`nil`:
  SISO), `:is_outproj_norm`, `:a_floor`, `:norm_epsilon`, `:mixer_norm_epsilon` and `:settings_from`.
  """
  @type info :: %{
          required(:trunk) => atom(),
          required(:d_input) => pos_integer(),
          required(:d_output) => pos_integer(),
          required(:n_layer) => pos_integer(),
          required(:window) => nil | pos_integer(),
          required(:groups) => [ExPhil.Native.Loss.group()],
          required(:precision) => :f32 | :bf16 | :f16 | :int8,
          required(:backend) => :cuda | :host,
          required(:choice) => choice(),
          required(:device) => Device.t(),
          required(:devices) => [Device.t()],
          required(:resident_bytes) => non_neg_integer(),
          required(:fingerprint) => String.t(),
          required(:gathered) =>
            nil | %{frames: non_neg_integer(), launches: non_neg_integer(), most: non_neg_integer()},
          optional(atom()) => nil | atom() | number()
        }

  @doc """
  Loads a checkpoint onto a backend: a file, or a map of its tensors by name, such as `weights/1` returns.

  Returns `{:ok, policy}`. A file that cannot be read is an error of kind `:file_error`, a damaged one or one of unknown shapes
  `:invalid_checkpoint`, a backend that is named and not there `:backend_unavailable`.

    * `:backend`, `:device` - where to; see `ExPhil.Native.Device`, and below for `:auto`, the default. `:device` may be a list of GPUs,
      or `:all`: see below
    * `:precision` - of the weights: `:f32`, `:bf16`, `:f16` or `:int8` (see below)
    * `:max_sessions` - how many sessions and snapshots fit on each device before more memory is allocated (1024)
    * `:gather` - frames of `step/2` and `act/2` that many processes play at once are launched together (`false`; see below)
    * `:norm_epsilon` - added to the mean square in the norms (the file's metadata `"norm_epsilon"`,
      else 1.0e-5)
    * `:check_finite` - refuse weights that are NaN or infinite (`true`)
    * `:heads` - names of the outputs, of a map of tensors: see `init/2`. A file of `save/2` has its own

  Options that a file of Edifice may not contain; an option that contradicts the file is an error:

    * `:dialect` - `:edifice_mamba` or `:edifice_mamba_ssd`. A safetensors export needs it
    * `:window` - frames of the windows it was trained on. For `:edifice_mamba_ssd` it determines the recurrence of a
      carried state
    * `:chunk_size` - of `:edifice_mamba_ssd` (32): shorter windows have another recurrence
    * `:dt` - `:mean` (what Edifice computes on a CPU) or `:per_channel` (what its fused CUDA kernel computes); only
      `:edifice_mamba` has both, and no file says which one it was trained with
    * `:num_heads` - of a gated DeltaNet (4)

  Options of Mamba-2 that neither the file's metadata nor a `config.json` beside it contains:

    * `:ngroups` - groups of B and C (1)
    * `:norm_before_gate` - whether the norm inside a layer comes before the gate (`false`)
    * `:dt_limit` - `{min, max}`, the bounds of dt (none); max may be `:infinity`

  and of Mamba-3 `:a_floor`, the least -A (1.0e-4).

  `backend: :auto` takes the backend that is faster for one agent at 60 FPS. Where there is a GPU, the policy is loaded onto
  both backends, and its frames are timed on each: up to 11 once every 16.67 ms, whose median decides, then up to 50 one after
  another. This takes 0.2 s besides the two loads; of a policy whose frames take longer than a few milliseconds, a few frames
  more. The other copy is freed. The session that is timed is the one that `new_session/2` makes by default. Where the GPU
  fails, the host is taken. `info/1` says what was measured. Name the backend for many agents in one call, for `window/2` or
  for training, where the GPU is faster more often than for one agent; and where two runs must have the same bits, because
  two loads may choose differently.

  With `gather: true` frames that come while others are computed go into the next launch together, at most 256 at once, whichever
  processes they are of: for hundreds of agents and more on one backend. Each caller has the answer of a lone step, with its bits and
  its errors, and waits for it without a scheduler. A process that plays alone pays nothing: its frames are computed where they are
  called, as without the option. Frames are taken in their order. Sessions of every kind gather, except those with `latency: :armed`.
  `info/1` says how many frames there were in how many launches.

  On several GPUs, `device: [0, 1]` or `device: :all`, the weights are on each. A new session goes to the device with the fewest
  sessions, and to the lowest number of those with as few; `new_session/2` takes a `:device` too. A batch, `step_batch/2` or `act_batch/2`, over
  sessions of several devices is computed by all of them side by side, and so are many windows of `window/2`; the answers are in the callers' order,
  with the same bits (of GPUs of one kind). Where one device fails, the call is an error and no session has changed. `update/2` changes all devices or none, `gather: true` gathers
  on each, and a state of one device may be restored or imported on another. `forward/3`, `grad/4` and `ExPhil.Native.Trainer` compute on the
  first. After a device was lost its sessions' calls are errors of kind `:device_lost`; those of the other devices go on, and new sessions go to them.
  Each session holds one more state of `:max_sessions`. With `backend: :auto` GPUs are taken without measuring; where there is
  none, `:all` is the host, and a list of several an error.

  A frame's step is bound by reading the weights, so fewer bytes are less time. With another precision than `:f32` the
  matrices are rounded at load and stored in two bytes or one for each weight; `:int8` has a scale for each row. Vectors
  (norms, biases, A, D, the convolution), states and sums stay f32. Within a precision the same inputs give the same bits, as
  always. docs/reference.md says what each precision adds to the error. Such a policy has a fingerprint of its own: states of
  the same policy in another precision are refused (`:mismatch`). `forward/3`, `grad/4`, `weights/1` and `update/2` need
  `:f32`, and give an error of kind `:unsupported` otherwise. A weight that is too large for `:f16`, or not finite with
  `:int8`, is an error of kind `:limit_exceeded`.
  """
  fallible load(path_or_weights :: Path.t() | weights(), options :: keyword() \\ []) :: t()

  def load(path_or_weights, options \\ []) do
    with {:ok, {from, options}} <- Weights.source(path_or_weights, options),
         {:ok, {backend, devices, options}} <- Loading.options(options) do
      load = fn backend, devices -> load(from, backend, devices, options) end
      if backend == :auto, do: Automatic.load(load, devices), else: load.(backend, devices)
    end
  end

  defp load(from, backend, devices, options) do
    with {:ok, ref} <- Queue.run(&NIF.load_policy(backend, devices, from, options, &1)),
         {:ok, info} <- NIF.policy_info(ref) do
      {:ok, %__MODULE__{ref: ref, info: Loading.info(info, :named)}}
    else
      {:error, reason} -> failed(reason)
    end
  end

  @doc """
  A new policy, to train: fresh f32 weights, resident on a backend. The trunk is `:mamba1`, `:mamba2`, `:mamba3`, `:gru`, `:lstm`,
  `:min_gru` or `:min_lstm`.

  Returns `{:ok, policy}`, or an error that names the option.

    * `:d_input`, `:d_model`, `:layers` - sizes, which must be given
    * `:d_output` - the number of outputs, or instead `:heads`, their names in order: `[stick: 7, buttons: {4, :binary}]` is one
      choice of seven and four separate events. `groups` of `info/1` has them then, and `ExPhil.Native.Loss` takes those
    * `:seed` - an integer (0). The same sizes and seed give the same bits on every machine and backend
    * `:backend`, `:device`, `:max_sessions`, `:norm_epsilon`, `:window` - as in `load/2`
    * of `:mamba1`: `:d_state` (16), `:d_conv` (4), `:expand` (2), `:dt_rank` (`d_model` / 16, rounded up); of `:mamba2`:
      `:d_state` (128), `:headdim` (64), `:ngroups` (1), `:d_conv` (4), `:expand` (2); of `:mamba3`: `:d_state` (128), `:headdim` (64),
      `:ngroups` (1), `:expand` (2), `:mimo_rank` (none: SISO); the other trunks have no sizes of their own

  Mamba's weights begin as in state-spaces/mamba (`mamba_simple.py`, `mixer_seq_simple.py`): linear maps and the convolution uniform
  by fan-in, as in PyTorch, `out_proj` divided by the square root of the number of layers; `A_log` = log(1..d_state); `D` = 1; the bias of
  `dt_proj` such that softplus of it is log-uniform from 0.001 to 0.1; norms 1, other biases 0. Those of Mamba-2 and Mamba-3 begin as
  in its `mamba2.py` and `mamba3.py`: `A_log` the logarithm of a uniform number from 1 to 16; the biases of B and C 1; `mimo_x` and
  `mimo_o` 1 / `mimo_rank`, `mimo_z` 1.

  Those of the other trunks begin as in Axon and Edifice: kernels, the recurrent ones too, uniform within sqrt(6 / (in + out)) (glorot),
  norms 1, biases 0. GRU and LSTM have Axon's layout. Its state does not begin with zeros but with what Axon draws from a key that is
  stored with the weights; here the key depends on the seed. GRU and LSTM begin with a norm of the frame itself, as in Edifice, which
  loses its scale: constants among the inputs keep it. The outputs are one linear map of the last norm, `head.kernel` and
  `head.bias`, which Edifice's files do not have.

      iex> alias ExPhil.Native.Policy
      iex> {:ok, policy} = Policy.init(:mamba1, d_input: 5, heads: [x: 7, y: 7], d_model: 48, layers: 2, seed: 1, backend: :host)
      iex> Map.take(Policy.info!(policy), [:d_output, :d_inner, :dt_rank, :groups])
      %{d_output: 14, d_inner: 96, dt_rank: 3, groups: [x: 0..6, y: 7..13]}
  """
  fallible init(trunk :: atom(), options :: keyword()) :: t()

  def init(trunk, options) do
    with {:ok, {weights, options}} <- Weights.initial(trunk, options), do: load(weights, options)
  end

  @doc """
  What the policy is and where it is resident: its trunk, the dimensions inferred from the shapes, the window it was trained
  on where that is known, the backend and device that were chosen (`devices`: all of them, `device` the first), the bytes held
  there now, and the fingerprint that ties states to the policy.

  Returns `{:ok, info}`, a map (`t:info/0`); only what is no policy is an error.

  `groups` names the ranges of the outputs where the policy has named heads. `gathered` is, of a policy
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
      were trained on windows. The default is the window that the policy was trained on, where `info/1` knows it, and else
      `:none`: the state is carried from frame to frame
    * `:pad` - what a window has before the first frame: `:repeat` (copies of it, as ExPhil plays; the default), `:zeros`,
      or `:none` (shorter windows)
    * `:warm_start` - frames ({seq, d_input}); the state is the one after them, their answers are dropped
    * `:history` - records what `rollback/2` and `resimulate/3` need to go back up to so many frames (at most 1024). A frame
      takes no longer with it. Each frame of history is one more state: the session counts as `history + 1` of the
      policy's `:max_sessions`. With a window it is one more frame of the window
    * `:fps` - frames per second that the session will have, at most 10,000: the library is awake and warm when the frame
      comes, in the way that the backend allows (below)
    * `:latency` - `:plain` (the default) or `:armed`, on a GPU of compute capability 9.0 or later and without a window: the next
      frame's work is launched before its observation is there, and waits for it on the GPU for at most a millisecond. A frame
      that follows the one before it within half a millisecond is faster then, and one after `ExPhil.Native.Clock.wait/1` of
      its own clock.      The bits are the same. It holds a part of the GPU and has hazards for other code on it: docs/reference.md, Armed steps
    * `:device` - of a policy on several devices: the index of the one that the session goes to (the one with the fewest sessions)

  With `:fps`: a step that comes once a frame finds a sleeping processor and weights that are in no cache, and takes several
  times as long as one that follows another. So a thread of the library wakes a millisecond before the next frame is due, runs a
  step on a scratch state, and polls until the frame comes, or for one more millisecond; on the CPU backend it also computes a part
  of the frame. On a GPU the process that steps has to be warm as well: where it waits with `ExPhil.Native.Clock.start/1` of this
  session, the clock prepares it, and the thread sleeps. This costs a share of one core: about 6% at 60 FPS where frames are on
  time, 14% on the CPU backend, 3% with a clock on a GPU. Frames may come early, late or never: the answers are the same, only the latency is not
  as good. After eight missing frames the thread sleeps until the next one; the frames after a pause are not yet expected.

  With a window every frame runs the layers over its whole window again. Only the input projection and the first layer's
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
    with {:ok, _outs} <- prefill(session, frames), do: {:ok, session}
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
  One frame for each of several sessions of one policy, in one launch on each of their devices, with the bits of separate steps.

    * `sessions` - a list of n sessions, each of them once
    * `obs` - f32 of shape {n, d_input}, a row for each session: a binary of 4 * n * d_input bytes, or a tensor

  Returns `{:ok, outs}`, f32 of shape {n, d_output}, in the form of `obs`. Errors are those of `step/2`, and leave all sessions as
  they were; a session that is twice in the list, and sessions of several policies, are others.
  """
  fallible step_batch(sessions :: [session()], obs :: data()) :: data()
  def step_batch(sessions, obs), do: batch(sessions, obs, &with_data/3, &NIF.step_batch/3)

  @doc """
  One frame and one action for each of several sessions of one policy, in one launch, with the actions of separate calls of `act/2`.

    * `sessions` - a list of n sessions, each of them once
    * `obs` - f32 of shape {n, d_input}, a row for each session: a binary of 4 * n * d_input bytes, or a tensor

  Returns `{:ok, actions}`, n of them in the order of the sessions. Errors are those of `step_batch/2`, and one of kind `:unsupported` of
  a policy without ExPhil's six heads.
  """
  fallible act_batch(sessions :: [session()], obs :: data()) :: [Action.t()]
  def act_batch(sessions, obs), do: batch(sessions, obs, &with_frames/3, &NIF.act_batch/3)

  defp batch(sessions, obs, with_obs, call) do
    with_obs.(obs, "obs", queued(&call.(refs(sessions), &1, &2)))
  catch
    :not_sessions -> {:error, Error.invalid("sessions", "a list of sessions", sessions)}
  end

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

  # ---- going back, and states ------------------------------------------------------------------------------

  @doc """
  Undoes the session's last `frames_back` frames: its state is the one before them, bit for bit. For sessions with
  `history: n`; takes a microsecond, because the states are recorded already.

  Returns `{:ok, session}`, the same one.

  Frames of `step/2`, `act/2`, their batches and `resimulate/3` are recorded. After `prefill/2`, `restore/2` and
  `import_state/2` the history begins anew. Going back further than is recorded is an error of kind `:limit_exceeded`
  that says how far the session can go, and changes nothing.
  """
  fallible rollback(session :: session(), frames_back :: non_neg_integer()) :: session()
  defdelegate rollback(session, frames_back), to: States

  @doc """
  Goes back `frames_back` frames, and plays these frames from there, in one submission, with the bits of `rollback/2` and of one
  `step/2` for each.

    * `frames` - f32 of shape {seq, d_input}: a binary of 4 * seq * d_input bytes, or a tensor. `seq` is at most the session's
      history; no frame at all only goes back

  Returns `{:ok, outs}`, f32 of shape {seq, d_output}, in the form of `frames`. Errors are those of `rollback/2` and `step/2`; after one
  nothing has changed, and the session has not gone back.
  """
  fallible resimulate(session :: session(), frames_back :: non_neg_integer(), frames :: data()) :: data()
  defdelegate resimulate(session, frames_back, frames), to: States

  @doc """
  Goes back `frames_back` frames, and plays these frames from there, with an action for each. The numbers of the frames and the held
  buttons go back too, so the same frames give the same actions.

    * `frames` - f32 of shape {seq, d_input}: a binary of 4 * seq * d_input bytes, or a tensor, as in `resimulate/3`

  Returns `{:ok, actions}`, `seq` of them. Errors are those of `resimulate/3`, and one of kind `:unsupported` of a policy without ExPhil's
  six heads.
  """
  fallible resimulate_acts(session :: session(), frames_back :: non_neg_integer(), frames :: data()) :: [
             Action.t()
           ]

  defdelegate resimulate_acts(session, frames_back, frames), to: States

  @doc """
  A copy of the session's state as it is now, for `restore/2`, on the device where the session is.

  Returns `{:ok, snapshot}`, or an error: of kind `:mismatch` of a session of replaced weights, or `:out_of_memory`.
  """
  fallible snapshot(session :: session()) :: snapshot()
  defdelegate snapshot(session), to: States

  @doc """
  Puts the session back to the state of the snapshot, exactly. The snapshot stays valid. A `:history` begins anew: the session
  cannot roll back past a restore. A snapshot of a session on another device of the policy is copied from there through the host's
  memory, which waits for both devices.

  Returns `{:ok, session}`, the same one. A snapshot of another policy is an error of kind `:mismatch` and changes nothing.
  """
  fallible restore(session :: session(), snapshot :: snapshot()) :: session()
  defdelegate restore(session, snapshot), to: States

  @doc """
  The session's state as a binary with a version and the policy's fingerprint, for `import_state/2` in any VM.

  Returns `{:ok, binary}`, or an error: of kind `:mismatch` of a session of replaced weights.
  """
  fallible export_state(session :: session()) :: binary()
  defdelegate export_state(session), to: States

  @doc """
  Replaces the session's state by an exported one of the same policy.

    * `state` - a binary of `export_state/1`, of this VM or another one

  Returns `{:ok, session}`, the same one. A damaged binary or one of another version is an error of kind `:invalid_state`, one of another
  policy `:mismatch`; so is the state of a session with a window of another length, or with none, in a session with a window. An error
  changes nothing.
  """
  fallible import_state(session :: session(), state :: binary()) :: session()
  defdelegate import_state(session, state), to: States

  # ---- training --------------------------------------------------------------------------------------------

  @doc """
  The answers to every frame of whole sequences, each from a new agent's state, as in `window/2`, or from the one given.

    * `frames` - f32 of shape {batch, seq, d_input}: an Nx tensor or `{:f32, shape, binary}`

  Returns `{:ok, outs}`, f32 of shape {batch, seq, d_output}, in the form of `frames`. A policy of another precision than `:f32` is an error
  of kind `:unsupported`. Options:

    * `:initial_state` - of Mamba `%{ssm: {batch, n_layer, d_inner, d_state}, conv: {batch, n_layer, d_inner, d_conv - 1}}`, of GRU,
      minGRU and minLSTM `%{h: {batch, n_layer, 1, d_model}}`, of LSTM `%{h_c: {batch, n_layer, 2, d_model}}`, f32
    * `:return_state` - `true` returns `{outs, state}`, the state after the last frames in that form. Without a frame, {batch, 0, d_input},
      it is the one that was given, or a new agent's

  It is the forward pass of `grad/4`, and like it runs where the policy is.
  """
  fallible forward(policy :: t(), frames :: Tensor.t(), options :: keyword() \\ []) ::
             Tensor.t() | {Tensor.t(), state()}

  defdelegate forward(policy, frames, options \\ []), to: Training

  @doc """
  The gradient of every weight over whole sequences. Each weight receives the sum over frames and sequences.

    * `frames` - f32 of shape {batch, seq, d_input}, as in `forward/3`
    * `d_outs` - f32 of shape {batch, seq, d_output}: the gradient of a real loss by the outputs that `forward/3` gives, which
      `ExPhil.Native.Loss` computes

  Returns `{:ok, gradients}`, a map from the checkpoint's tensor names to f32 tensors of their shapes. A policy of another precision than
  `:f32` is an error of kind `:unsupported`. Options:

    * `:initial_state` - as in `forward/3`
    * `:d_frames` - `true` returns `{gradients, d_frames}` with the gradient by the frames
    * `:d_initial_state` - `true` returns `{gradients, d_state}`, or `{gradients, d_frames, d_state}`, with the gradient by the states before
      the first frames, given or not, in the form of `:initial_state`; of GRU, LSTM, minGRU and minLSTM alone

  Every dialect has it, in the precision `:f32`. It runs where the policy is. The same call gives the same
  bits in every run and with any number of threads. It takes memory for the activations of 2048 frames (4096 on CUDA, on the device),
  or of one sequence where that is longer. The first call on CUDA also compiles its kernels, or loads them from the cache, and puts
  another copy of the weights on the device.
  """
  fallible grad(policy :: t(), frames :: Tensor.t(), d_outs :: Tensor.t(), options :: keyword() \\ []) ::
             weights() | {weights(), Tensor.t() | state()} | {weights(), Tensor.t(), state()}

  defdelegate grad(policy, frames, d_outs, options \\ []), to: Training

  @doc """
  Every weight by its name in the checkpoint: a copy of those that the policy plays with.

  Returns `{:ok, weights}`, a map of `{:f32, shape, binary}` by name, or an error: of kind `:unsupported` in another precision than `:f32`.
  `load/2` takes such a map; that of a GRU or an LSTM in Axon's layout lacks the random keys, which are no weights and which `load/2`
  needs too.
  """
  fallible weights(policy :: t()) :: weights()
  defdelegate weights(policy), to: Training

  @doc """
  Puts other weights into the policy, on the backend where it is: f32, one tensor for every weight by its name, as in `weights/1`.

  Returns `{:ok, policy}`, the same one: whoever holds it uses the new weights from then on, and its fingerprint is theirs. Its sessions
  and snapshots belong to the old ones: every call on them returns an error of the kind `:mismatch`, and calls under way end with the
  old weights. Weights of another name or shape, or that are not finite, are an error and change nothing.

  The first call that plays the new weights, `new_session/2` or `window/2`, loads them, which takes longer than this call; `forward/3`,
  `grad/4` and `weights/1` do without. Until then `resident_bytes` of `info/1` does not count them. On several devices they are
  loaded here, onto all or none.
  """
  fallible update(policy :: t(), weights :: weights()) :: t()
  defdelegate update(policy, weights), to: Training

  @doc """
  Writes the policy as it is now, with the weights of the last `update/2`, as a safetensors file that `load/2` reads: it has the
  same bits, and gives the same answers. The file's metadata have what the tensors do not say. A file at that path is replaced.

  Returns `:ok`, or an error of kind `:file_error` where it cannot be written.
  """
  fallible save(policy :: t(), path :: Path.t()) :: :ok

  def save(policy, path) do
    with {:ok, weights} <- weights(policy),
         {:ok, info} <- info(policy),
         {:ok, %{constants: constants}} <- answer(NIF.policy_info(policy.ref)),
         do: Weights.save(Map.merge(weights, Map.new(constants)), info, path)
  end

  defimpl Inspect do
    def inspect(%{info: info}, _options) do
      width = if info[:d_model], do: "d_model #{info.d_model}, ", else: ""

      "#ExPhil.Native.Policy<#{info.trunk}, #{info.backend}:#{info.device.index}, #{info.n_layer} layers, " <>
        "#{width}#{info.d_input} in, #{info.d_output} out>"
    end
  end
end
