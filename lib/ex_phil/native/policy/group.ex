defmodule ExPhil.Native.Policy.Group do
  @moduledoc """
  Sessions that are stepped together many times, of `ExPhil.Native.Policy.group/1`. Opaque; safe to share between processes.
  It keeps its sessions, which remain ordinary ones.
  """

  @enforce_keys [:ref, :size]
  defstruct [:ref, :size]

  @typedoc "`size` is the number of sessions. The other field is not part of the interface."
  @type t :: %__MODULE__{ref: reference(), size: pos_integer()}

  defimpl Inspect do
    def inspect(%{ref: ref, size: size}, _options),
      do: "#ExPhil.Native.Policy.Group<#{size} sessions, #{inspect(ref)}>"
  end
end
