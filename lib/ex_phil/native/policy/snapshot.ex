defmodule ExPhil.Native.Policy.Snapshot do
  @moduledoc """
  A copy of a session's state, in the memory of its policy's backend. Opaque and immutable; valid as long as something
  refers to it. Any session of the same policy can be restored from it.
  """

  @enforce_keys [:ref, :policy]
  defstruct [:ref, :policy]

  @typedoc "Its fields are not part of the interface."
  @type t :: %__MODULE__{ref: reference(), policy: ExPhil.Native.Policy.t()}

  defimpl Inspect do
    def inspect(%{ref: ref, policy: %{info: info}}, _options) do
      "#ExPhil.Native.Policy.Snapshot<#{info.backend}:#{info.device.index}, #{inspect(ref)}>"
    end
  end
end
