defmodule ExPhil.Native.Tools.Player.PaceTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Tools.Player.Pace

  test "frames arrive at multiples of the period, without drift" do
    pace = Pace.start(60)
    assert Pace.arrival(pace, 0) == pace.start
    assert Pace.arrival(pace, 60) - pace.start == 1_000_000_000
    assert Pace.arrival(pace, 60 * 3600) - pace.start == 3600 * 1_000_000_000
  end

  test "wait/2 never returns before the frame has arrived" do
    pace = Pace.start(200)

    for index <- 1..20 do
      :ok = Pace.wait(pace, index)
      assert Pace.now() >= Pace.arrival(pace, index)
    end
  end

  test "a loop that is behind does not wait" do
    pace = %Pace{start: Pace.now() - 10_000_000_000, fps: 60}
    began = Pace.now()
    for _ <- 1..5_000, do: Pace.wait(pace, 500)
    # 5,000 waits of even a millisecond would take five seconds.
    assert Pace.now() - began < 2_500_000_000
  end

  test "an answer is late once the next frame has arrived" do
    pace = %Pace{start: 0, fps: 50}
    refute Pace.missed?(pace, 0, 20_000_000)
    assert Pace.missed?(pace, 0, 20_000_001)
    refute Pace.missed?(pace, 9, 200_000_000)
    assert Pace.missed?(pace, 9, 200_000_001)
  end
end
