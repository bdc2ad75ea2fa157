defmodule ExPhil.Native.Policy.Session do
  @moduledoc """
  One agent's recurrent state, in the memory of its policy's backend. Opaque; safe to share between processes: calls on
  one session run one after another. It is freed when nothing refers to it any more.
  """

  @enforce_keys [:ref, :policy]
  defstruct [:ref, :policy, :fps, gathers: false]

  @typedoc "Its fields are not part of the interface."
  @type t :: %__MODULE__{
          ref: reference(),
          policy: ExPhil.Native.Policy.t(),
          fps: nil | float(),
          gathers: boolean()
        }

  defimpl Inspect do
    def inspect(%{ref: ref, policy: %{info: info}}, _options) do
      "#ExPhil.Native.Policy.Session<#{info.backend}:#{info.device.index}, #{inspect(ref)}>"
    end
  end
end
