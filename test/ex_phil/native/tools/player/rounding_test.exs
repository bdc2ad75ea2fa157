defmodule ExPhil.Native.Tools.Player.RoundingTest do
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Numbers, only: [f32: 1]
  doctest ExPhil.Native.Tools.Player.Rounding

  alias ExPhil.Native.Tools.Player.Rounding

  defp result(answers), do: %{answers: Enum.map(answers, &f32/1), sessions: 1}

  test "errors of all frames and of the worst, and the frames with the same largest entries" do
    exact = [f32([3, 4]), f32([0, 5]), f32([6, 8])]
    result = result([[3, 4], [0, 6], [9, 8]])
    rounding = Rounding.compare(result, exact, [], :logits)
    assert %Rounding{against: :logits, frames: 3, groups: 1, same: 2, worst_frame: 2} = rounding
    assert_in_delta rounding.worst, 0.3, 1.0e-9
    assert_in_delta rounding.error, :math.sqrt(10 / 150), 1.0e-9
  end

  test "the first session's answers are compared" do
    rounding = Rounding.compare(result([[3, 4, 5, 5]]), [f32([3, 4])], [], :f32)
    assert {rounding.error, rounding.worst, rounding.same} == {0.0, 0.0, 1}
  end

  test "buttons are decisions by their signs, other groups by their largest entry" do
    groups = [buttons: 0..1, main_x: 2..3]
    same = fn own -> Rounding.compare(result([own]), [f32([1, -1, 2, 3])], groups, :f32).same end
    assert same.([5, -5, 1, 2]) == 1
    assert same.([-1, -1, 2, 3]) == 0
    assert same.([1, 1, 2, 3]) == 0
    assert same.([1, -1, 3, 2]) == 0
  end
end
