defmodule ExPhil.Native.Edifice do
  @moduledoc false
  # Edifice's fused blocks (Edifice.Block.FusedOp) as blocks of this library, for EXLA's custom calls. The conventions are
  # those of lib/edifice/cuda/fused_scan.ex. Callers: the implementation of EXLA.CustomCall below, tests.
  #
  # The implementation is opt-in: its mere existence makes Edifice build other layers (docs/xla.md).

  alias ExPhil.Native.Block

  @serve Application.compile_env(:exphil_native, :edifice_blocks, false)
  if @serve not in [true, false],
    do: raise("config :exphil_native, :edifice_blocks: #{inspect(@serve)} is not true or false")

  @doc "Whether `config :exphil_native, edifice_blocks: true` was set when the library was compiled."
  @spec serve?() :: boolean()
  def serve?, do: @serve

  # Its CUDA kernels clamp dt and use it for each channel.
  @scan [{"dt_min", 0.001}, {"dt_max", 0.1}]
  @recurrence [{"axis", 1}, {"operands", "initial_state"}]

  @types [{:f, 32}, {:f, 16}, {:bf, 16}]

  @doc """
  The block of this library for a fused block, with the types that its operands need, or `:skip`.

  The selective scan is served on `:cuda` only: Edifice's own program for the CPU computes another rule. States may be of
  any size up to this library's limit.
  """
  @spec block(map(), tuple() | map(), [map()], atom()) :: {Block.t(), [tuple()]} | :skip
  # [x, dt, a, b, c] -> y
  def block(%{op: :fused_selective_scan}, %{type: type}, [_, _, _, _, _], :cuda) when type in @types do
    {%Block{target: "exphil_selective_scan", attributes: @scan}, [type, type, {:f, 32}, type, type]}
  end

  # [x, dt, a, b, c, dy] -> {dx, ddt, db, dc}; db and dc are f32, whatever x is.
  def block(%{op: :fused_selective_scan_backward}, {%{type: {:f, 32}}, _, _, _}, [_, _, _, _, _, _], :cuda) do
    attributes = [{"results", "x dt b c"}, {"dy", 5} | @scan]
    {%Block{target: "exphil_selective_scan_grad", attributes: attributes}, List.duplicate({:f, 32}, 6)}
  end

  # [a, b, h0] -> h
  def block(%{op: :fused_linear_scan}, %{type: type}, [_, _, _], _platform) when type in @types do
    {%Block{target: "exphil_linear_recurrence", attributes: @recurrence}, List.duplicate(type, 3)}
  end

  # [a, h0, h, dh] -> {da, db, dh0}
  def block(%{op: :fused_linear_scan_backward}, {%{type: type}, _, _}, [_, _, _, _], _platform)
      when type in @types do
    {%Block{target: "exphil_linear_recurrence_grad", attributes: @recurrence}, List.duplicate(type, 4)}
  end

  def block(_fused, _out, _args, _platform), do: :skip
end

if ExPhil.Native.Edifice.serve?() and Code.ensure_loaded?(EXLA.CustomCall) and
     Code.ensure_loaded?(Edifice.Block.FusedOp) do
  defimpl EXLA.CustomCall, for: Edifice.Block.FusedOp do
    @moduledoc false

    def call(fused, out, args, client) do
      with {block, types} <- ExPhil.Native.Edifice.block(fused, out, args, client.platform),
           {:ok, spec} <- EXLA.CustomCall.call(block, out, args, client),
           do: {:ok, %{spec | operand_element_types: types}}
    end
  end
end
