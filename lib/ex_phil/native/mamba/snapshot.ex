defmodule ExPhil.Native.Mamba.Snapshot do
  @moduledoc """
  A copy of a session's state, in the memory of its model's backend. Opaque and immutable; valid as long as something
  refers to it. Any session of the same model can be restored from it.
  """

  @enforce_keys [:ref, :model]
  defstruct [:ref, :model]

  @typedoc "Its fields are not part of the interface."
  @type t :: %__MODULE__{ref: reference(), model: ExPhil.Native.Mamba.Model.t()}

  defimpl Inspect do
    def inspect(%{ref: ref, model: %{info: info}}, _options) do
      "#ExPhil.Native.Mamba.Snapshot<#{info.backend}:#{info.device.index}, #{inspect(ref)}>"
    end
  end
end
