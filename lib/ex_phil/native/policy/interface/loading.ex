defmodule ExPhil.Native.Policy.Interface.Loading do
  @moduledoc false
  # The functions of ExPhil.Native.Policy that load or make one, with their documentation: `use` puts them
  # there. ExPhil.Native.Policy.Loading does the work.

  alias ExPhil.Native.Policy.Loading

  defmacro __using__(_options) do
    quote location: :keep do
      @doc """
      Loads a checkpoint onto a backend: a file, or a map of its tensors by name, such as `weights/1` returns.

      Returns `{:ok, policy}`. A file that cannot be read is an error of kind `:file_error`, a damaged one or one of unknown shapes
      `:invalid_checkpoint`, a backend that is named and not there `:backend_unavailable`.

        * `:backend`, `:device` - where to; see `ExPhil.Native.Device`, and below for `:auto`, the default. `:device` may be a list of GPUs,
          or `:all`: see below
        * `:precision` - of the weights: `:f32`, `:bf16`, `:f16` or `:int8`; `:tf32x3`, for many agents on a GPU (see below)
        * `:states` - how a GPU keeps the matrix states of many agents: `:f32`, `:f16` or `:bf16` (see below)
        * `:max_sessions` - how many sessions and snapshots fit on each device before more memory is allocated (1024 on a GPU; on
          the CPU memory comes with the sessions, or where this is given for so many with the first one)
        * `:gather` - frames of `step/2` and `act/2` that many processes play at once are launched together (`false`; see below)
        * `:norm_epsilon` - added to the mean square or the variance in the norms between the layers (what the file says, as its
          metadata `"norm_epsilon"`, else 1.0e-5; of GRU and LSTM 1.0e-6, as in Edifice)
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

      With `gather: true` frames that come while others are computed go into the next launch together, at most 1,024 at once (256 on
      the CPU backend), whichever processes they are of: for hundreds of agents and more on one backend. Where launches have eight
      frames and more, the next one waits up to a quarter of a millisecond for others. On a GPU and eight cores and more, frames that
      have waited so long do not wait for a launch that takes longer: two may be under way at the same time. Each caller has the answer of a lone step, with
      its bits and its errors, and waits for it without a scheduler. A process that plays alone pays nothing: its frames are computed
      where they are called, as without the option. Frames are taken in their order. Of many frames in one launch some callers are woken
      first and send the answers of others: give them all one priority, and do not suspend one that waits for a frame. Sessions of every kind gather, except those with
      `latency: :armed`. `info/1` says how many frames there were in how many launches.

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

      `:tf32x3` rounds no weight: on a GPU the products run on tensor cores, each f32 as the sum of two tf32 (3xTF32; Ootomo and Yokota, 2022).
      It is for batches of hundreds of agents and more, and for `gather: true`: a lone step is several launches and takes more than twice as long as in
      `:f32`, `latency: :armed` is an error, and a window of a GRU or an LSTM is a launch for each frame. Its error is that of f32 (within 1.0e-5 of
      float64). On the CPU it computes as `:f32` does.

      With `states: :f16` or `:bf16` a GPU keeps the states of Mamba's scans, of Mamba-2, Mamba-3 and gated DeltaNet in 16 bits
      between frames: half the memory of a session, and half the traffic that bounds a batch of thousands of agents. Each state is
      rounded to the nearest after each frame, also within a prefill or a window, so that all calls still have the same bits; in
      `:f16` it is limited to -65504 and 65504. docs/reference.md says what it changes. As with `:tf32x3` a lone step is several
      launches and takes more than twice as long, and there is no `latency: :armed`. Such a policy has a fingerprint of its own. On the CPU states stay f32. Any
      `:precision` may be combined with it; a trunk without matrix states (a GRU) is an error.
      """
      fallible load(path_or_weights :: Path.t() | weights(), options :: keyword() \\ []) :: t()

      defdelegate load(path_or_weights, options \\ []), to: Loading

      @doc """
      A new policy, to train: fresh f32 weights, resident on a backend. The trunk is `:mamba1`, `:mamba2`, `:mamba3`, `:gru`, `:lstm`,
      `:min_gru`, `:min_lstm` or `:gated_deltanet`.

      Returns `{:ok, policy}`, or an error that names the option.

        * `:d_input`, `:d_model`, `:layers` - sizes, which must be given
        * `:d_output` - the number of outputs, or instead `:heads`, their names in order: `[stick: 7, buttons: {4, :binary}]` is one
          choice of seven and four separate events. `groups` of `info/1` has them then, and `ExPhil.Native.Loss` takes those
        * `:seed` - an integer (0). The same sizes and seed give the same bits on every machine and backend
        * `:backend`, `:device`, `:max_sessions`, `:norm_epsilon`, `:window` - as in `load/2`
        * of `:mamba1`: `:d_state` (16), `:d_conv` (4), `:expand` (2), `:dt_rank` (`d_model` / 16, rounded up); of `:mamba2`:
          `:d_state` (128), `:headdim` (64), `:ngroups` (1), `:d_conv` (4), `:expand` (2); of `:mamba3`: `:d_state` (128), `:headdim` (64),
          `:ngroups` (1), `:expand` (2), `:mimo_rank` (none: SISO); of `:gated_deltanet`: `:num_heads` (4), `:d_conv` (4); the other trunks
          have no sizes of their own

      Mamba's weights begin as in state-spaces/mamba (`mamba_simple.py`, `mixer_seq_simple.py`): linear maps and the convolution uniform
      by fan-in, as in PyTorch, `out_proj` divided by the square root of the number of layers; `A_log` = log(1..d_state); `D` = 1; the bias of
      `dt_proj` such that softplus of it is log-uniform from 0.001 to 0.1; norms 1, other biases 0. Those of Mamba-2 and Mamba-3 begin as
      in its `mamba2.py` and `mamba3.py`: `A_log` the logarithm of a uniform number from 1 to 16; the biases of B and C 1; `mimo_x` and
      `mimo_o` 1 / `mimo_rank`, `mimo_z` 1.

      Those of the other trunks begin as in Axon and Edifice: kernels, the recurrent ones too, uniform within sqrt(6 / (in + out)) (glorot;
      a convolution of a gated DeltaNet within sqrt(6 / ((d_conv + 1) d_model))), norms 1, biases 0. GRU and LSTM have Axon's layout. Its state does not begin with zeros but with what Axon draws from a key that is
      stored with the weights; here the key depends on the seed. GRU and LSTM begin with a norm of the frame itself, as in Edifice, which
      loses its scale: constants among the inputs keep it. The outputs are one linear map of the last norm, `head.kernel` and
      `head.bias`, which Edifice's files do not have.

          iex> alias ExPhil.Native.Policy
          iex> {:ok, policy} = Policy.init(:mamba1, d_input: 5, heads: [x: 7, y: 7], d_model: 48, layers: 2, seed: 1, backend: :host)
          iex> Map.take(Policy.info!(policy), [:d_output, :d_inner, :dt_rank, :groups])
          %{d_output: 14, d_inner: 96, dt_rank: 3, groups: [x: 0..6, y: 7..13]}
      """
      fallible init(trunk :: atom(), options :: keyword()) :: t()

      defdelegate init(trunk, options), to: Loading
    end
  end
end
