defmodule ExPhil.Native.ClockTest do
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Waiting

  alias ExPhil.Native.{Clock, Error}

  doctest Clock

  test "ticks are never early, and their numbers rise" do
    {clock, since_due} = start_clock!(400)

    Enum.reduce(1..40, -1, fn _, before ->
      number = Clock.wait(clock)
      assert since_due.(number) >= 0
      assert number > before
      number
    end)

    :ok = Clock.stop(clock)
  end

  test "a process that is late gets the tick that is due, once" do
    clock = Clock.start!(1000)
    until_tick(clock, 40)
    number = Clock.wait(clock)
    assert number >= 40
    assert Clock.wait(clock) > number
    :ok = Clock.stop(clock)
  end

  test "a rate beyond a millisecond timer" do
    {clock, since_due} = start_clock!(900)
    # Half a second of ticks takes half a second: none comes early, and none twice.
    numbers = for _ <- 1..450, number = Clock.wait(clock), since_due.(number) >= 0, do: number
    assert length(numbers) == 450 and numbers == Enum.uniq(Enum.sort(numbers))
    :ok = Clock.stop(clock)
  end

  test "stop ends the ticks and empties the mailbox" do
    clock = Clock.start!(1000)
    Clock.wait(clock)
    :ok = Clock.stop(clock)
    # One thread sends the ticks of all clocks. At most one call was in progress when the clock was stopped.
    other = Clock.start!(1000)
    until_tick(other, 20)
    :ok = Clock.stop(other)
    ref = clock.ref

    flush = fn flush, count ->
      receive(do: ({:tick, ^ref, _} -> flush.(flush, count + 1)), after: (0 -> count))
    end

    assert flush.(flush, 0) <= 1
    :ok = Clock.stop(clock)
  end

  test "a tick is a message with the clock's ref" do
    %Clock{ref: ref} = clock = Clock.start!(100)
    # 0, unless this machine was busy for a whole period
    assert_receive {:tick, ^ref, first}
    assert_receive {:tick, ^ref, number} when number > first
    :ok = Clock.stop(clock)
  end

  test "a clock ends with its process" do
    parent = self()
    {pid, monitor} = spawn_monitor(fn -> send(parent, {:clock, Clock.start!(1000)}) end)
    assert_receive {:clock, clock}
    assert_receive {:DOWN, ^monitor, :process, ^pid, :normal}
    :ok = Clock.stop(clock)
  end

  test "a bad :warm or an unknown option is an error that names it" do
    for bad <- [:session, make_ref(), 60],
        do: assert({:error, %Error{kind: :invalid_argument, argument: ":warm"}} = Clock.start(60, warm: bad))

    assert {:error, %Error{argument: ":cold"}} = Clock.start(60, cold: true)
  end

  test "an invalid rate is an error that names fps" do
    for bad <- [0, -60, 1.0e9, 1.0e-9, 10_001, "60", nil, Integer.pow(10, 400)] do
      assert {:error, %Error{kind: :invalid_argument, argument: "fps"}} = Clock.start(bad)
      assert_raise Error, fn -> Clock.start!(bad) end
    end
  end
end
