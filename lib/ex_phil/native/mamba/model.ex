defmodule ExPhil.Native.Mamba.Model do
  @moduledoc """
  A policy that `ExPhil.Native.Mamba.load/2` loaded onto a backend. Opaque; safe to share between processes. Its
  memory is freed when no model, session or snapshot refers to it any more.
  """

  @enforce_keys [:ref, :info]
  defstruct [:ref, :info]

  @typedoc "Its fields are not part of the interface."
  @type t :: %__MODULE__{ref: reference(), info: map()}

  defimpl Inspect do
    def inspect(%{info: info}, _options) do
      "#ExPhil.Native.Mamba.Model<#{info.backend}:#{info.device.index}, #{info.n_layer} layers, " <>
        "d_model #{info.d_model}, #{info.d_input} in, #{info.d_output} out>"
    end
  end
end
