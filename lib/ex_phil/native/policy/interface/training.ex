defmodule ExPhil.Native.Policy.Interface.Training do
  @moduledoc false
  # The functions of ExPhil.Native.Policy that train or save, with their documentation: `use` puts them there.
  # ExPhil.Native.Policy.Training does the work.

  alias ExPhil.Native.Policy.Training
  alias ExPhil.Native.Tensor

  defmacro __using__(_options) do
    quote location: :keep do
      @doc """
      The answers to every frame of whole sequences, each from a new agent's state, as in `window/2`, or from the one given.

        * `frames` - f32 of shape {batch, seq, d_input}: an Nx tensor or `{:f32, shape, binary}`

      Returns `{:ok, outs}`, f32 of shape {batch, seq, d_output}, in the form of `frames`. A policy of another precision than `:f32` is an error
      of kind `:unsupported`. Options:

        * `:initial_state` - a map with an f32 tensor for each part of the state:

          | trunk | parts and their shapes, after {batch, n_layer} |
          |---|---|
          | `:mamba1` | `ssm` {d_inner, d_state}, `conv` {d_inner, d_conv - 1} |
          | `:mamba2` | `ssm` {d_ssm, d_state}, `conv` {d_ssm + 2 ngroups d_state, d_conv - 1} |
          | `:mamba3` | `angle` {num_heads, num_rope_angles}, `ssm` {d_inner, d_state}, `k` {ranks num_heads, d_state}, `v` {num_heads, headdim}; `ranks` is `mimo_rank`, 1 of SISO |
          | `:gru`, `:min_gru`, `:min_lstm` | `h` {1, d_model} |
          | `:lstm` | `h_c` {2, d_model}: h, then c |
          | `:gated_deltanet` | `s` {d_model, d_model / num_heads}, `conv` {d_model, d_conv - 1} |

          The sizes are those of `info/1`
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
          the first frames, given or not, in the form of `:initial_state`

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
      defdelegate save(policy, path), to: Training
    end
  end
end
