defmodule ExPhil.Native.Policy.Snapshot do
  @moduledoc """
  A copy of a session's state, in the memory of its policy's backend. Opaque and immutable; valid as long as something
  refers to it. Any session of the same policy with the same `:window` and `:pad` can be restored from it.
  """

  @enforce_keys [:ref, :policy]
  defstruct [:ref, :policy, :device]

  @typedoc "Its fields are not part of the interface."
  @type t :: %__MODULE__{
          ref: reference(),
          policy: ExPhil.Native.Policy.t(),
          device: nil | non_neg_integer()
        }

  defimpl Inspect do
    def inspect(%{ref: ref, device: device, policy: %{info: info}}, _options) do
      "#ExPhil.Native.Policy.Snapshot<#{info.backend}:#{device}, #{inspect(ref)}>"
    end
  end
end
