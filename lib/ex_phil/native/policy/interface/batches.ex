defmodule ExPhil.Native.Policy.Interface.Batches do
  @moduledoc false
  # The functions of ExPhil.Native.Policy for many agents in one call, with their documentation: `use` puts them
  # there. ExPhil.Native.Policy.Batches does the work.

  alias ExPhil.Native.Policy.{Action, Batches}

  defmacro __using__(_options) do
    quote location: :keep do
      @doc """
      One frame for each of several sessions of one policy, in one launch on each of their devices, with the bits of separate steps.

        * `sessions` - a list of n sessions, each of them once, or a group of `group/1`
        * `obs` - f32 of shape {n, d_input}, a row for each session: a binary of 4 * n * d_input bytes, or a tensor

      Returns `{:ok, outs}`, f32 of shape {n, d_output}, in the form of `obs`. Errors are those of `step/2`, and leave all sessions as
      they were; a session that is twice in the list, and sessions of several policies, are others.
      """
      fallible step_batch(sessions :: sessions(), obs :: data()) :: data()
      defdelegate step_batch(sessions, obs), to: Batches

      @doc """
      One frame and one action for each of several sessions of one policy, in one launch, with the actions of separate calls of `act/2`.

        * `sessions` - a list of n sessions, each of them once, or a group of `group/1`
        * `obs` - f32 of shape {n, d_input}, a row for each session: a binary of 4 * n * d_input bytes, or a tensor

      Returns `{:ok, actions}`, n of them in the order of the sessions. Errors are those of `step_batch/2`, and one of kind `:unsupported` of
      a policy without ExPhil's six heads.
      """
      fallible act_batch(sessions :: sessions(), obs :: data()) :: [Action.t()]
      defdelegate act_batch(sessions, obs), to: Batches

      @doc """
      Sessions that `step_batch/2` and `act_batch/2` take together many times, as a simulator does: a call with a group does not look
      them up, check them and lock each of them every time ([results](bench/results/gated.md)). A list that is the same in call after
      call becomes such a group by itself, from the fifth one on; each session is still looked up then, on a GPU while it computes.

          group = Policy.group!(sessions)
          outs = Policy.step_batch!(group, obs)

        * `sessions` - a list of n sessions of one policy, each of them once. Row i of `obs` and `outs` is that of the i-th one

      Returns `{:ok, group}`. No session, one that is twice in the list, and what is no list of sessions are errors of kind
      `:invalid_argument`; sessions of several policies, and one of weights that `update/2` has replaced, are of kind `:mismatch`. After
      an update of the weights the calls with the group are errors as well.

      The sessions remain ordinary ones: they may be stepped alone, go back, and be in several groups, and the group keeps them. Calls of
      several processes on one group, or on groups that share sessions, run one after another.
      """
      fallible group(sessions :: [session()]) :: group()
      defdelegate group(sessions), to: Batches
    end
  end
end
