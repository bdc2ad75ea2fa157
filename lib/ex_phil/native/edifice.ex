# Edifice's fused blocks as custom calls of this library, where EXLA and Edifice are there.
if Code.ensure_loaded?(EXLA.CustomCall) and Code.ensure_loaded?(Edifice.Block.FusedOp) do
  defimpl EXLA.CustomCall, for: Edifice.Block.FusedOp do
    @moduledoc false
    # Edifice's CUDA kernels clamp dt to [0.001, 0.1] and use it for each channel; lib/edifice/cuda/fused_scan.ex. Its
    # programs for the CPU compute another rule, so only :cuda is served. The state may be of any size up to 256.
    alias ExPhil.Native.Block

    @scan [{"dt_min", 0.001}, {"dt_max", 0.1}]

    @types [{:f, 32}, {:f, 16}, {:bf, 16}]

    # [x, dt, a, b, c] -> y
    def call(
          %{op: :fused_selective_scan},
          %{type: type} = out,
          [_, _, _, _, _] = args,
          %{platform: :cuda} = client
        )
        when type in @types do
      block = %Block{target: "exphil_selective_scan", attributes: @scan}
      typed(block, out, args, client, [type, type, {:f, 32}, type, type])
    end

    # [x, dt, a, b, c, dy] -> {dx, ddt, db, dc}; db and dc are f32, whatever x is.
    def call(
          %{op: :fused_selective_scan_backward},
          {%{type: {:f, 32}}, _, _, _} = out,
          [_, _, _, _, _, _] = args,
          %{platform: :cuda} = client
        ) do
      attributes = [{"results", "x dt b c"}, {"dy", 5} | @scan]
      block = %Block{target: "exphil_selective_scan_grad", attributes: attributes}
      typed(block, out, args, client, List.duplicate({:f, 32}, 6))
    end

    def call(_block, _out, _args, _client), do: :skip

    # This library's own block, with its operands converted to the types.
    defp typed(block, out, args, client, types) do
      with {:ok, spec} <- EXLA.CustomCall.call(block, out, args, client),
           do: {:ok, %{spec | operand_element_types: types}}
    end
  end
end
