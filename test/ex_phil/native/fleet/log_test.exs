defmodule ExPhil.Native.Fleet.LogTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Fleet.Log

  @sizes %{history: 4, burn_in: 10}

  defp frame(number), do: {:act, "obs #{number}", "answer #{number}"}
  defp put(log, numbers), do: Enum.reduce(numbers, log, &Log.put(&2, &1, [frame(&1)]))

  test "has the frames by their numbers, which may begin anywhere" do
    log = @sizes |> Log.new(0) |> put(-123..-120)
    assert {log.first, log.last} == {-123, -120}
    assert Log.fetch(log, -121) == frame(-121)
    assert Log.fetch(log, -124) == nil and Log.fetch(log, -119) == nil
    assert Log.replay(log) == {:new, for(number <- -123..-120, do: {number, frame(number)})}
  end

  test "has nothing to replay before its first frame" do
    assert @sizes |> Log.new(3) |> Log.switch(4) |> Log.replay() == {:new, []}
  end

  test "forgets what a rollback undoes, and the states after it" do
    log = @sizes |> Log.new(0) |> put(0..9) |> Log.put_state("after 9") |> put(10..12)
    log = Log.put(log, 9, [{:act, "other", "another"}])
    assert log.last == 9
    assert Log.fetch(log, 9) == {:act, "other", "another"}
    assert {:new, frames} = Log.replay(log)
    assert length(frames) == 10
  end

  test "replays from the newest state that the history cannot go back over" do
    log = @sizes |> Log.new(0) |> put(0..9) |> Log.put_state("after 9") |> put(10..12)
    assert {:new, _} = Log.replay(log)
    log = put(log, [13])
    assert {"after 9", [{10, _}, {11, _}, {12, _}, {13, _}]} = Log.replay(log)
    log = log |> Log.put_state("after 13") |> put(14..16)
    assert {"after 9", _} = Log.replay(log)
    # Back as far as the history goes.
    assert {"after 9", [{10, _}, {11, _}, {12, {:act, "other", nil}}]} =
             log |> Log.put(12, [{:act, "other", nil}]) |> Log.replay()
  end

  test "is bounded by the time between states" do
    log =
      Enum.reduce(0..10_000, Log.new(@sizes, 0), fn number, log ->
        log = put(log, [number])
        if rem(number, 60) == 0, do: Log.put_state(log, "after #{number}"), else: log
      end)

    assert map_size(log.frames) <= 60 + 10 + 4 + 1
    assert length(log.states) <= 2
    assert log.first == log.last - map_size(log.frames) + 1
  end

  test "after other weights is a new session that has played the last frames" do
    log = @sizes |> Log.new(0) |> put(0..30) |> Log.put_state("after 30") |> put(31..32) |> Log.switch(1)
    assert {:new, frames} = Log.replay(log)
    assert Enum.map(frames, &elem(&1, 0)) == Enum.to_list(23..32)

    # Whatever it goes back to.
    log = log |> put(33..34) |> Log.put(31, [{:act, "other", nil}])
    assert {:new, frames} = Log.replay(log)
    assert Enum.map(frames, &elem(&1, 0)) == Enum.to_list(23..31)
  end

  test "can go back at any time and still has the frames for other weights" do
    log = @sizes |> Log.new(0) |> put(0..99) |> Log.put_state("after 99") |> put(100..110)
    log = log |> Log.put(107, [frame(107)]) |> Log.switch(1)
    assert {:new, frames} = Log.replay(log)
    assert Enum.map(frames, &elem(&1, 0)) == Enum.to_list(98..107)
  end

  test "keeps answers that were given" do
    log = @sizes |> Log.new(0) |> put(0..2) |> Log.put(3, [{:act, "obs 3", nil}])
    log = Log.put_answers(log, %{2 => "later", 3 => "first"})
    assert Log.fetch(log, 2) == frame(2)
    assert Log.fetch(log, 3) == {:act, "obs 3", "first"}
    assert Log.answers(log) == %{0 => "answer 0", 1 => "answer 1", 2 => "answer 2", 3 => "first"}
  end
end
