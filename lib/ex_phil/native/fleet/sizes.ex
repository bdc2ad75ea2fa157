defmodule ExPhil.Native.Fleet.Sizes do
  @moduledoc false
  # Whether other weights fit the agents of a fleet: the frames that an agent keeps are played by the new policy, and its callers read the
  # outputs as before. Called by ExPhil.Native.Fleet.Devices, on every node; pure functions.

  alias ExPhil.Native.{Error, Policy}

  # Of Policy.info/1, in the order in which an error names them. The other facts are no sizes: a file may say its window, its dialect or
  # an epsilon where another one does not.
  @sizes [
           :trunk,
           :d_input,
           :d_output,
           :groups,
           :n_layer,
           :d_model,
           :d_inner,
           :d_ssm,
           :d_state,
           :d_conv,
           :dt_rank
         ] ++
           [:num_heads, :headdim, :ngroups, :num_rope_angles, :is_mimo, :mimo_rank]

  @doc "`:ok` where a policy has the sizes, the trunk and the named outputs of the present one, or where there is none."
  @spec same(Policy.info(), Policy.info() | nil) :: :ok | {:error, Error.t()}
  def same(_new, nil), do: :ok

  def same(new, present) do
    case for name <- @sizes, value(new, name) != value(present, name), do: name do
      [] ->
        :ok

      different ->
        message =
          "the weights must be of the fleet's policy: " <>
            Enum.map_join(different, "; ", &"#{&1} is #{text(new, &1)}, the fleet's is #{text(present, &1)}")

        {:error, Error.new(:invalid_checkpoint, "weights", message)}
    end
  end

  # A name may be a string in one answer of the library and an atom in a later one.
  defp value(%{groups: groups}, :groups),
    do: Enum.map(groups, &put_elem(&1, 0, to_string(elem(&1, 0))))

  defp value(info, name), do: info[name]

  defp text(info, name), do: inspect(info[name], limit: :infinity)
end
