defmodule ExPhil.Native.Policy.Interface.States do
  @moduledoc false
  # The functions of ExPhil.Native.Policy that go back in a session, or copy, export and import its state,
  # with their documentation: `use` puts them there. ExPhil.Native.Policy.States does the work.

  alias ExPhil.Native.Policy.{Action, States}

  defmacro __using__(_options) do
    quote location: :keep do
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

      Returns `{:ok, session}`, the same one. A snapshot of another policy, or of a session with another `:window` or `:pad`, is an error
      of kind `:mismatch` and changes nothing.
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
      policy `:mismatch`. So is a state whose session had another window: one of another length, a window where this session carries its
      state, or a carried state where this session has a window. An error changes nothing.
      """
      fallible import_state(session :: session(), state :: binary()) :: session()
      defdelegate import_state(session, state), to: States
    end
  end
end
