defmodule ExPhil.Native.Block do
  @moduledoc """
  One operation of this library inside a computation: the struct that `ExPhil.Native.Defn` passes to `Nx.block/4`.

  A compiler with its own implementation replaces the block: with EXLA, the custom call `target` with
  `attributes` (`EXLA.CustomCall`). Every other compiler and backend runs the block's default, which calls the library
  through `Nx.runtime_call/4`.
  """

  @enforce_keys [:target]
  # options: those of the eager call, for the default. operands, results: the tensors beyond the required
  # ones.
  defstruct [:target, :function, operands: [], results: [], options: [], attributes: []]

  @type attribute :: String.t() | boolean() | integer() | float()
  @type t :: %__MODULE__{
          target: String.t(),
          function: atom(),
          operands: [atom()],
          results: [atom()],
          options: keyword(),
          attributes: [{String.t(), attribute()}]
        }

  @doc """
  The attributes in MLIR syntax, `[{name, text}]`, for `EXLA.CustomCall.Spec`.

      iex> block = %ExPhil.Native.Block{target: "t", attributes: [{"op", "cumsum"}, {"axis", 1}, {"compensated", false}]}
      iex> ExPhil.Native.Block.mlir_attributes(block)
      [{"op", ~S("cumsum")}, {"axis", "1 : i64"}, {"compensated", "false"}]

  """
  @spec mlir_attributes(t()) :: [{String.t(), String.t()}]
  def mlir_attributes(%__MODULE__{attributes: attributes}) do
    for {name, value} <- attributes, do: {name, mlir(value)}
  end

  defp mlir(value) when is_boolean(value), do: to_string(value)
  defp mlir(value) when is_integer(value), do: "#{value} : i64"
  defp mlir(value) when is_float(value), do: "#{:erlang.float_to_binary(value, scientific: 17)} : f64"
  # The names of operations and options: no quotes or backslashes to escape.
  defp mlir(value) when is_binary(value), do: ~s("#{value}")
end

if Code.ensure_loaded?(EXLA.CustomCall) do
  defimpl EXLA.CustomCall, for: ExPhil.Native.Block do
    @moduledoc false
    alias ExPhil.Native.{Block, XLA}

    # The casts that the NIF does with Nx tensors are made before the block, so the types are those of the
    # handlers.
    def call(block, _out, _args, %{platform: platform}) do
      if XLA.registered?(block.target, platform) do
        attributes = Block.mlir_attributes(block)
        {:ok, %EXLA.CustomCall.Spec{call_target_name: block.target, attributes: attributes}}
      else
        :skip
      end
    end
  end
end
