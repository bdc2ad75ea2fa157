defmodule ExPhil.Native.Tools.Player.RecordingTest do
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Numbers, only: [f32: 1]

  alias ExPhil.Native.Tools.Player.Recording
  alias ExPhil.Native.Safetensors

  @moduletag :tmp_dir

  defp s32(values), do: for(v <- values, into: <<>>, do: <<v::32-signed-little>>)

  defp load(folder, tensors) do
    path = Path.join(folder, "frames.safetensors")
    :ok = Safetensors.write(path, tensors)
    Recording.load(path)
  end

  test "frames come in order, with their numbers and answers", %{tmp_dir: folder} do
    {:ok, recording} =
      load(folder, %{
        "obs" => {:f32, {3, 2}, f32([1, 2, 3, 4, 5, 6])},
        "frame" => {:s32, {3}, s32([-5, -4, -3])},
        "logits" => {:f32, {3, 1}, f32([7, 8, 9])}
      })

    assert recording.count == 3 and recording.d_input == 2 and recording.depth == 0
    assert Recording.frames(recording) == [{-5, f32([1, 2])}, {-4, f32([3, 4])}, {-3, f32([5, 6])}]
    assert Recording.logits(recording) == [f32([7]), f32([8]), f32([9])]
    assert Recording.logits(Recording.take(recording, 2)) == [f32([7]), f32([8])]
    assert length(Recording.frames(Recording.take(recording, 2))) == 2
    assert Recording.take(recording, 10) == recording
  end

  test "numbers and answers may be left out", %{tmp_dir: folder} do
    {:ok, recording} = load(folder, %{"obs" => {:f32, {2, 1}, f32([1, 2])}})
    assert recording.numbers == [0, 1]
    assert Recording.logits(recording) == nil
  end

  test "the depth is the length of the longest rollback", %{tmp_dir: folder} do
    {:ok, recording} =
      load(folder, %{
        "obs" => {:f32, {7, 1}, f32([1, 2, 3, 4, 5, 6, 7])},
        "frame" => {:s32, {7}, s32([10, 11, 12, 10, 11, 12, 13])}
      })

    # From 12 back to 10: the snapshots from before 10, 11 and 12.
    assert recording.depth == 3
    assert Recording.take(recording, 3).depth == 0
  end

  test "a tensor of the wrong shape is named", %{tmp_dir: folder} do
    for {tensors, expected} <- [
          {%{"x" => {:f32, {1}, f32([1])}}, "no tensor obs"},
          {%{"obs" => {:f32, {4}, f32([1, 2, 3, 4])}}, "obs must be f32 {count, d_input}"},
          {%{"obs" => {:s32, {1, 1}, s32([1])}}, "got s32 {1, 1}"},
          {%{"obs" => {:f32, {2, 1}, f32([1, 2])}, "frame" => {:s32, {3}, s32([1, 2, 3])}},
           "frame must be s32 {2}"},
          {%{"obs" => {:f32, {2, 1}, f32([1, 2])}, "logits" => {:f32, {1, 2}, f32([1, 2])}},
           "logits must be f32 {2"}
        ] do
      assert {:error, message} = load(folder, tensors)
      assert message =~ expected
    end

    assert {:error, message} = Recording.load(Path.join(folder, "absent.safetensors"))
    assert message =~ "absent.safetensors"
  end
end
