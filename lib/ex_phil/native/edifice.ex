# Edifice's fused blocks as custom calls of this library, where EXLA and Edifice are there.
if Code.ensure_loaded?(EXLA.CustomCall) and Code.ensure_loaded?(Edifice.Block.FusedOp) do
  defimpl EXLA.CustomCall, for: Edifice.Block.FusedOp do
    @moduledoc false
    # Edifice's CUDA kernels clamp dt to [0.001, 0.1] and use it for each channel; lib/edifice/cuda/fused_scan.ex. Its
    # programs for the CPU compute another rule, so only :cuda is served. The state may be of any size up to 256.
    alias EXLA.CustomCall.Spec
    alias ExPhil.Native.{Block, XLA}

    @scan [{"dt_min", 0.001}, {"dt_max", 0.1}]

    # [x, dt, a, b, c] -> y
    def call(%{op: :fused_selective_scan}, %{type: type}, [_, _, _, _, _], %{platform: :cuda}),
      do: spec("exphil_selective_scan", @scan, [type, type, {:f, 32}, type, type])

    # [x, dt, a, b, c, dy] -> {dx, ddt, db, dc}; db and dc are f32, whatever x is.
    def call(%{op: :fused_selective_scan_backward}, {%{type: {:f, 32}}, _, _, _}, [_, _, _, _, _, _], %{
          platform: :cuda
        }) do
      attributes = [{"results", "x dt b c"}, {"dy", 5} | @scan]
      spec("exphil_selective_scan_grad", attributes, List.duplicate({:f, 32}, 6))
    end

    def call(_block, _out, _args, _client), do: :skip

    defp spec(target, attributes, types) do
      if XLA.registered?(target, :cuda) do
        attributes = Block.mlir_attributes(%Block{target: target, attributes: attributes})
        {:ok, %Spec{call_target_name: target, attributes: attributes, operand_element_types: types}}
      else
        :skip
      end
    end
  end
end
