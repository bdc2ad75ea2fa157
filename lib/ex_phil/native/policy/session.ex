defmodule ExPhil.Native.Policy.Session do
  @moduledoc """
  One agent's recurrent state, in the memory of its policy's backend. Opaque; safe to share between processes: calls on
  one session run one after another. It is freed when nothing refers to it any more.
  """

  @enforce_keys [:ref, :policy]
  defstruct [:ref, :policy, :device, :fps, gathers: false]

  @typedoc "`device` is the index of the one of its policy's devices that it is on. The other fields are not part of the interface."
  @type t :: %__MODULE__{
          ref: reference(),
          policy: ExPhil.Native.Policy.t(),
          device: nil | non_neg_integer(),
          fps: nil | float(),
          gathers: boolean()
        }

  defimpl Inspect do
    def inspect(%{ref: ref, device: device, policy: %{info: info}}, _options) do
      "#ExPhil.Native.Policy.Session<#{info.backend}:#{device}, #{inspect(ref)}>"
    end
  end
end
