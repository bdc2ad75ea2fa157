defmodule ExPhil.Native.Mamba.Session do
  @moduledoc """
  One agent's recurrent state, in the memory of its model's backend. Opaque; safe to share between processes: calls on
  one session run one after another. It is freed when nothing refers to it any more.
  """

  @enforce_keys [:ref, :model]
  defstruct [:ref, :model]

  @typedoc "Its fields are not part of the interface."
  @type t :: %__MODULE__{ref: reference(), model: ExPhil.Native.Mamba.Model.t()}

  defimpl Inspect do
    def inspect(%{ref: ref, model: %{info: info}}, _options) do
      "#ExPhil.Native.Mamba.Session<#{info.backend}:#{info.device.index}, #{inspect(ref)}>"
    end
  end
end
