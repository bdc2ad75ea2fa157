defmodule ExPhil.Native.Policy.RecordedTest do
  # The real policy and real matches: every frame's answer, the final state, the rollback trace, and windows from a
  # zero state, against a float64 reference.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  @moduletag :shared
  @limit 1.0e-5

  setup %{backend: backend} do
    {:ok, model: Policy.load!(Shared.policy(), backend: backend)}
  end

  defp worst(outs, logits) do
    outs
    |> Enum.with_index()
    |> Enum.map(fn {out, i} -> relative_error(out, row(logits, i)) end)
    |> Enum.max()
  end

  backend_test "every frame of a minute, and the state after it", %{model: model} do
    match = Shared.read("melee/match.safetensors")
    {:f32, {count, 287}, _} = match["obs"]
    session = Policy.new_session!(model)
    outs = for i <- 0..(count - 1), do: Policy.step!(session, row(match["obs"], i))
    assert worst(outs, match["logits"]) <= @limit
    assert_state(session, match)
  end

  backend_test "the same minute in one prefill", %{model: model} do
    match = Shared.read("melee/match.safetensors")
    session = Policy.new_session!(model)
    {:f32, {count, 64}, _} = outs = Policy.prefill!(session, match["obs"])
    assert worst(for(i <- 0..(count - 1), do: row(outs, i)), match["logits"]) <= @limit
    assert_state(session, match)
  end

  # An exported state: 56 bytes of header, ssm {2, 512, 16}, conv {2, 512, 3}, 8 bytes of checksum.
  defp assert_state(session, match) do
    exported = Policy.export_state!(session)
    ssm = 4 * 2 * 512 * 16
    assert relative_error(binary_part(exported, 56, ssm), match["ssm_state"]) <= @limit
    assert relative_error(binary_part(exported, 56 + ssm, 4 * 2 * 512 * 3), match["conv_state"]) <= @limit
  end

  backend_test "a netplay trace with its rollbacks", %{model: model} do
    trace = Shared.read("melee/rollback.safetensors")
    {:s32, {count}, numbers} = trace["frame"]
    numbers = for <<number::32-signed-little <- numbers>>, do: number
    session = Policy.new_session!(model)

    # The recorded answers used, before each frame number, the state from when the number was first seen.
    {outs, {_, restored}} =
      Enum.map_reduce(Enum.with_index(numbers), {%{}, 0}, fn {number, i}, {before, restored} ->
        {before, restored} =
          case before do
            %{^number => snapshot} ->
              Policy.restore!(session, snapshot)
              {before, restored + 1}

            _ ->
              {Map.put(before, number, Policy.snapshot!(session)), restored}
          end

        before = Map.filter(before, fn {n, _} -> n > number - 16 end)
        {Policy.step!(session, row(trace["obs"], i)), {before, restored}}
      end)

    assert length(outs) == count
    assert restored == count - length(Enum.uniq(numbers))
    assert worst(outs, trace["logits"]) <= @limit
  end

  backend_test "windows of 60 frames from a zero state", %{model: model} do
    match = Shared.read("melee/match.safetensors")
    windows = Shared.read("melee/windows60.safetensors")
    {:s32, {count}, ends} = windows["end_frame_index"]

    binary =
      for <<last::32-signed-little <- ends>>, into: <<>>, do: elem(rows(match["obs"], last - 59, 60), 2)

    assert {:f32, {^count, 64}, _} = outs = Policy.window!(model, {:f32, {count, 60, 287}, binary})
    assert worst(for(i <- 0..(count - 1), do: row(outs, i)), windows["logits"]) <= @limit
    # One window per call: the bits do not depend on the other windows.
    one = Policy.window!(model, {:f32, {1, 60, 287}, binary_part(binary, 0, 60 * 287 * 4)})
    assert elem(one, 2) == row(outs, 0)
  end
end
