defmodule ExPhil.Native.Edifice do
  @moduledoc false
  # Edifice's fused blocks (Edifice.Block.FusedOp) as blocks of this library, for EXLA's custom calls. The
  # conventions are those of lib/edifice/cuda/fused_scan.ex. Callers: the implementation of EXLA.CustomCall
  # below, tests.
  #
  # The implementation is opt-in: its mere existence makes Edifice build other layers (docs/xla.md).

  alias ExPhil.Native.Block
  alias ExPhil.Native.RecurrentScan.Operators

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

  # {Edifice's name, ours, whether the inputs have gone through their activations, {the same of the gradient,
  # its results}}. Edifice multiplies the gradient of what it has activated itself by the slope, and that of
  # h_(t-1) r by h_(t-1).
  @recurrent [
    {:gru, :gru_scan, false, {false, "wx rh h0"}},
    {:lstm, :lstm_scan, false, {false, "wx h0 c0"}},
    {:mingru, :mingru, true, {true, "gates candidates h0"}},
    {:minlstm, :minlstm, true, {true, "forget_gates input_gates candidates h0"}},
    {:elu_gru, :elu_gru, false, {true, "gates candidates h0"}},
    {:real_gru, :real_gru, false, {true, "gates candidates h0"}},
    {:diag_linear, :diag_linear, false, nil},
    {:liquid, :liquid, false, {false, "tau activation h0"}}
  ]

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

  # [its inputs, h0 and c0] -> h, and [its inputs, h0 and c0, h, dh] -> the gradients of its inputs and of the
  # states. Where the platform has no such custom call, EXLA.CustomCall skips the block.
  for {fused, name, activated, gradient} <- @recurrent do
    row = Operators.fetch!(name)
    target = Operators.target(row)
    count = length(row.inputs) + length(row.states)
    states = Enum.join(row.states, " ")

    def block(%{op: unquote(:"fused_#{fused}_scan")}, %{type: type}, args, _platform)
        when type in @types and length(args) == unquote(count) do
      {%Block{target: unquote(target), attributes: unquote(Operators.attributes(row, activated, states, ""))},
       List.duplicate(type, unquote(count))}
    end

    if gradient do
      {activated, results} = gradient

      def block(%{op: unquote(:"fused_#{fused}_scan_backward")}, outs, args, _platform)
          when tuple_size(outs) == unquote(length(String.split(results))) and
                 length(args) == unquote(count + 2) do
        %{type: type} = elem(outs, 0)

        block = %Block{
          target: unquote(target <> "_grad"),
          attributes: unquote(Operators.attributes(row, activated, states <> " h dh", results))
        }

        if type in @types, do: {block, List.duplicate(type, unquote(count + 2))}, else: :skip
      end
    end
  end

  # [a after its sigmoid, h0, h, dh] -> {da, db, dh0}: that of the linear scan.
  def block(%{op: :fused_diag_linear_scan_backward} = fused, out, args, platform),
    do: block(%{fused | op: :fused_linear_scan_backward}, out, args, platform)

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
