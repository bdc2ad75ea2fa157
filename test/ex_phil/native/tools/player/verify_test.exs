defmodule ExPhil.Native.Tools.Player.VerifyTest do
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Numbers, only: [f32: 1]
  doctest ExPhil.Native.Tools.Player.Verify

  alias ExPhil.Native.Tools.Player.{Recording, Verify}

  defp recording(logits) do
    %Recording{
      count: 2,
      d_input: 1,
      obs: f32([0, 0]),
      numbers: [0, 1],
      logits: logits,
      depth: 0
    }
  end

  defp result(answers, sessions \\ 1), do: %{answers: answers, sessions: sessions}

  test "the worst frame is found, and those beyond the tolerance are counted" do
    recording = recording(f32([3, 4, 1, 0]))
    exact = result([f32([3, 4]), f32([1, 0])])
    assert Verify.verify(exact, nil, recording) == %Verify{against: :logits, frames: 2}

    wrong = result([f32([3, 4]), f32([1, 0.5])])
    assert %Verify{failed: 1, worst: 0.5, worst_frame: 1} = Verify.verify(wrong, nil, recording)
  end

  test "one wrong session among many is found" do
    recording = recording(f32([3, 4, 1, 0]))
    answers = [f32([3, 4, 3, 4, 3, 4]), f32([1, 0, 1, 0.5, 1, 0])]
    assert %Verify{failed: 1, worst: 0.5} = Verify.verify(result(answers, 3), nil, recording)
  end

  test "a NaN, an infinity and another size never pass" do
    nan = <<0, 0, 0xC0, 0x7F>>
    infinity = <<0, 0, 0x80, 0x7F>>
    assert Verify.relative_error(nan, f32([1])) == :invalid
    assert Verify.relative_error(infinity, f32([1])) == :invalid
    assert Verify.relative_error(f32([1]), f32([1, 2])) == :invalid
    assert Verify.relative_error(f32([1]), f32([0])) == :invalid

    answers = result([nan <> f32([4]), f32([1, 0])])
    assert %Verify{failed: 1, worst: :invalid} = Verify.verify(answers, nil, recording(f32([3, 4, 1, 0])))
  end

  test "without answers and with rollbacks there is nothing to compare with" do
    rolled_back = %{recording(nil) | depth: 1}
    assert %Verify{against: :nothing, frames: 0, failed: 0} = Verify.verify(result([]), nil, rolled_back)
  end
end
