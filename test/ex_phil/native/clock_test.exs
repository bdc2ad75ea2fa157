defmodule ExPhil.Native.ClockTest do
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Waiting

  alias ExPhil.Native.{Clock, Error, Policy}
  alias ExPhil.Native.TestSupport.Policies

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

  # With the clocks of before, the mailbox was looked through once for each tick, and a look took longer than a tick.
  test "a wait returns at its tick however many messages are in the mailbox" do
    for i <- 1..500_000, do: send(self(), {:noise, i})
    clock = Clock.start!(10_000)
    numbers = for _ <- 1..50, do: Clock.wait(clock)
    assert numbers == Enum.uniq(Enum.sort(numbers))
    assert Process.info(self(), :message_queue_len) == {:message_queue_len, 500_000}
    :ok = Clock.stop(clock)
  end

  test "nothing is sent that was not asked for" do
    {_, dictionary} = Process.info(self(), :dictionary)
    forgotten = for fps <- [60, 2000, 10_000], do: Clock.start!(fps)
    Enum.each(forgotten, &Clock.wait/1)
    # Two hundred ticks of the fastest.
    other = Clock.start!(1000)
    first = Clock.wait(other)
    Stream.repeatedly(fn -> Clock.wait(other) end) |> Enum.find(&(&1 >= first + 20))
    Enum.each([other | forgotten], &(:ok = Clock.stop(&1)))
    assert Process.info(self(), :messages) == {:messages, []}
    assert Process.info(self(), :dictionary) == {:dictionary, dictionary}
  end

  test "stop ends the ticks, and removes the one that was asked for" do
    %Clock{ref: ref} = clock = Clock.start!(1000)
    Clock.wait(clock)
    :ok = Clock.next(clock)
    # Another clock's message: the first one's is in the mailbox by then, or is dropped.
    later = Clock.start!(100)
    for _ <- 1..2, do: Clock.wait(later)
    :ok = Clock.stop(later)
    :ok = Clock.stop(clock)
    :ok = Clock.stop(clock)
    for _ <- 1..2, do: Clock.wait(Clock.start!(100))
    refute_received {:tick, ^ref, _}
  end

  test "each message of a tick is asked for; next/1 may be called twice" do
    {%Clock{ref: ref} = clock, since_due} = start_clock!(100)

    Enum.reduce(1..5, -1, fn _, before ->
      for _ <- 1..2, do: :ok = Clock.next(clock)
      assert_receive {:tick, ^ref, number} when number > before
      assert since_due.(number) >= 0
      number
    end)

    # A wait goes on where the messages were.
    :ok = Clock.next(clock)
    assert_receive {:tick, ^ref, number}
    assert Clock.wait(clock) > number
    :ok = Clock.stop(clock)
    refute_received {:tick, ^ref, _}
  end

  test "waiting for a stopped clock, or in another process, is an error that says so" do
    clock = Clock.start!(1000)
    elsewhere = fn call -> Task.await(Task.async(fn -> assert_raise(Error, fn -> call.(clock) end) end)) end

    for call <- [&Clock.wait/1, &Clock.next/1] do
      assert %Error{kind: :invalid_argument, argument: "clock"} = error = elsewhere.(call)
      assert Exception.message(error) =~ "only the process that started the clock"
    end

    Clock.wait(clock)
    :ok = Clock.stop(clock)

    for call <- [&Clock.wait/1, &Clock.next/1] do
      error = assert_raise(Error, fn -> call.(clock) end)
      assert {error.kind, error.argument} == {:invalid_argument, "clock"}
      assert Exception.message(error) =~ "stopped"
    end
  end

  test "a process that waits is woken where another one stops the clock" do
    parent = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        clock = Clock.start!(1.0e-6)
        0 = Clock.wait(clock)
        send(parent, {:clock, clock})
        send(parent, {:raised, assert_raise(Error, fn -> Clock.wait(clock) end)})
      end)

    assert_receive {:clock, clock}
    :ok = Clock.stop(clock)
    assert_receive {:raised, %Error{argument: "clock"}}
    assert_receive {:DOWN, ^monitor, :process, ^pid, :normal}
  end

  test "a clock ends with its process" do
    parent = self()
    {pid, monitor} = spawn_monitor(fn -> send(parent, {:clock, Clock.start!(1000)}) end)
    assert_receive {:clock, clock}
    assert_receive {:DOWN, ^monitor, :process, ^pid, :normal}
    :ok = Clock.stop(clock)
  end

  test "the clock of a session has its rate; a session without one is an error that says so" do
    policy = Policy.load!(Policies.checkpoint(), backend: :host)
    session = Policy.new_session!(policy, fps: 200)
    assert {:ok, %Clock{fps: 200.0} = clock} = Clock.start(session)
    assert Clock.wait(clock) < Clock.wait(clock)
    assert Clock.due(clock, 200) - Clock.due(clock, 0) == 1_000_000_000
    :ok = Clock.stop(clock)
    assert Process.info(self(), :messages) == {:messages, []}

    without = Policy.new_session!(policy)
    assert {:error, %Error{kind: :invalid_argument, argument: "session"} = error} = Clock.start(without)
    assert Exception.message(error) =~ ":fps"

    for bad <- [:session, make_ref(), policy],
        do: assert({:error, %Error{argument: "fps"}} = Clock.start(bad))
  end

  test "an invalid rate is an error that names fps" do
    for bad <- [0, -60, 1.0e9, 1.0e-9, 10_001, "60", nil, Integer.pow(10, 400)] do
      assert {:error, %Error{kind: :invalid_argument, argument: "fps"}} = Clock.start(bad)
      assert_raise Error, fn -> Clock.start!(bad) end
    end
  end
end
