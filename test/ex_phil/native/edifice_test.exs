defmodule ExPhil.Native.EdificeTest do
  # Edifice's blocks by their field names: neither Edifice nor EXLA is needed. test/xla calls the handlers with these
  # attributes and this order of arguments.
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Block, Edifice}

  @f32 {:f, 32}

  defp tensors(count, type), do: List.duplicate(%{type: type}, count)
  defp outs(count, type), do: List.to_tuple(tensors(count, type))

  test "the linear scan and its gradient, on each platform and in each type" do
    for platform <- [:host, :cuda], type <- [@f32, {:f, 16}, {:bf, 16}] do
      assert {forward, types} =
               Edifice.block(%{op: :fused_linear_scan}, %{type: type}, tensors(3, type), platform)

      assert forward.target == "exphil_linear_recurrence"
      assert Block.mlir_attributes(forward) == [{"axis", "1 : i64"}, {"operands", ~s("initial_state")}]
      assert types == [type, type, type]

      fused = %{op: :fused_linear_scan_backward}
      assert {backward, types} = Edifice.block(fused, outs(3, type), tensors(4, type), platform)
      assert backward.target == "exphil_linear_recurrence_grad"
      assert backward.attributes == forward.attributes
      assert types == [type, type, type, type]
    end
  end

  test "the selective scan and its gradient, on CUDA" do
    for type <- [@f32, {:f, 16}, {:bf, 16}] do
      fused = %{op: :fused_selective_scan}
      assert {forward, types} = Edifice.block(fused, %{type: type}, tensors(5, type), :cuda)
      assert forward.target == "exphil_selective_scan"
      assert Map.new(forward.attributes) == %{"dt_min" => 0.001, "dt_max" => 0.1}
      assert types == [type, type, @f32, type, type]
      assert Edifice.block(fused, %{type: type}, tensors(5, type), :host) == :skip
    end

    fused = %{op: :fused_selective_scan_backward}
    assert {backward, types} = Edifice.block(fused, outs(4, @f32), tensors(6, @f32), :cuda)
    assert backward.target == "exphil_selective_scan_grad"
    assert %{"results" => "x dt b c", "dy" => 5, "dt_min" => 0.001} = Map.new(backward.attributes)
    assert types == List.duplicate(@f32, 6)
  end

  # op, arguments of the forward and their attributes, results and attributes of the gradient. Edifice activates the gates of
  # mingru and minlstm itself, and takes the gradients of elu_gru and real_gru by what it has activated.
  @recurrent [
    {:gru, "dense", "gru_scan", 3, {false, "h0"}, {3, false, "h0 h dh", "wx rh h0"}},
    {:lstm, "dense", "lstm_scan", 4, {false, "h0 c0"}, {3, false, "h0 c0 h dh", "wx h0 c0"}},
    {:mingru, "diagonal", "mingru", 3, {true, "h0"}, {3, true, "h0 h dh", "gates candidates h0"}},
    {:minlstm, "diagonal", "minlstm", 4, {true, "h0"},
     {4, true, "h0 h dh", "forget_gates input_gates candidates h0"}},
    {:elu_gru, "diagonal", "elu_gru", 3, {false, "h0"}, {3, true, "h0 h dh", "gates candidates h0"}},
    {:real_gru, "diagonal", "real_gru", 3, {false, "h0"}, {3, true, "h0 h dh", "gates candidates h0"}},
    {:liquid, "diagonal", "liquid", 3, {false, "h0"}, {3, false, "h0 h dh", "tau activation h0"}}
  ]

  test "the recurrences and their gradients, in each type" do
    for {fused, kind, op, count, forward, {results, activated, operands, names}} <- @recurrent,
        type <- [@f32, {:f, 16}, {:bf, 16}] do
      target = "exphil_#{kind}_recurrence"
      {of_inputs, given} = forward
      name = :"fused_#{fused}_scan"
      assert {block, types} = Edifice.block(%{op: name}, %{type: type}, tensors(count, type), :host)
      assert types == List.duplicate(type, count)
      assert block.target == target

      assert Map.new(block.attributes) ==
               %{"op" => op, "activated" => of_inputs, "operands" => given, "results" => ""}

      fused = %{op: :"#{name}_backward"}
      args = tensors(count + 2, type)
      assert {block, types} = Edifice.block(fused, outs(results, type), args, :host)
      assert types == List.duplicate(type, count + 2)
      assert block.target == target <> "_grad"

      assert Map.new(block.attributes) ==
               %{"op" => op, "activated" => activated, "operands" => operands, "results" => names}
    end
  end

  test "the diagonal recurrence, whose gradient is that of the linear scan" do
    fused = %{op: :fused_diag_linear_scan}
    assert {block, _} = Edifice.block(fused, %{type: @f32}, tensors(3, @f32), :cuda)
    assert {"op", "diag_linear"} in block.attributes
    fused = %{op: :fused_diag_linear_scan_backward}
    assert {block, _} = Edifice.block(fused, outs(3, @f32), tensors(4, @f32), :cuda)
    assert block.target == "exphil_linear_recurrence_grad"
  end

  test "everything else keeps Edifice's own program" do
    assert Edifice.block(%{op: :fused_slstm_scan}, %{type: @f32}, tensors(4, @f32), :cuda) == :skip
    assert Edifice.block(%{op: :fused_mingru_scan}, %{type: {:f, 64}}, tensors(3, {:f, 64}), :cuda) == :skip
    assert Edifice.block(%{op: :fused_mingru_scan}, %{type: @f32}, tensors(2, @f32), :cuda) == :skip
    # Its gru_block keeps the candidate where its gru_scan keeps the state.
    assert Edifice.block(%{op: :fused_gru_block_scan}, %{type: @f32}, tensors(3, @f32), :host) == :skip
    assert Edifice.block(%{op: :fused_linear_scan}, %{type: {:f, 64}}, tensors(3, {:f, 64}), :cuda) == :skip
    assert Edifice.block(%{op: :fused_linear_scan}, %{type: @f32}, tensors(2, @f32), :cuda) == :skip
    halves = outs(4, {:bf, 16})
    fused = %{op: :fused_selective_scan_backward}
    assert Edifice.block(fused, halves, tensors(6, {:bf, 16}), :cuda) == :skip
  end
end
