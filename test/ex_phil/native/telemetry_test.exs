# The library's events, by the application :telemetry where it is available, else by a module in its place.
defmodule ExPhil.Native.TelemetryTest do
  use ExUnit.Case, async: false

  import ExPhil.Native.TestSupport.Telemetry, only: [with_events: 1]
  import ExPhil.Native.TestSupport.Waiting, only: [until_tick: 2]

  alias ExPhil.Native.{Clock, Policy, Telemetry}
  alias ExPhil.Native.TestSupport.Policies

  setup do
    session = Policy.new_session!(Policy.load!(Policies.checkpoint(), backend: :host), history: 8)
    {:ok, session: session, obs: <<0::size(session.policy.info.d_input)-unit(32)>>}
  end

  test "one step in 64 is timed, the first among them", %{session: session, obs: obs} do
    with_events(fn ->
      for _ <- 1..65, do: Policy.step!(session, obs)
      assert_received {[:exphil_native, :policy, :step, :stop], %{duration: first}, metadata}
      assert metadata == %{call: :step, result: :ok, every: 64}
      assert first > 0
      assert_received {[:exphil_native, :policy, :step, :stop], _, _}
      refute_received {[:exphil_native | _], _, _}
    end)
  end

  test "steps in between that are not counted are none of the 64", %{session: session, obs: obs} do
    with_events(fn ->
      assert Telemetry.uncounted(fn -> for(_ <- 1..100, do: Policy.step!(session, obs)) |> length() end) ==
               100

      refute_received {[:exphil_native | _], _, _}

      for _ <- 1..64,
          do: {Policy.step!(session, obs), Telemetry.uncounted(fn -> Policy.step!(session, obs) end)}

      assert_received {[:exphil_native, :policy, :step, :stop], _, _}
      refute_received {[:exphil_native | _], _, _}
      Policy.step!(session, obs)
      assert_received {[:exphil_native, :policy, :step, :stop], _, _}
    end)
  end

  test "a step that fails is told from one that succeeds", %{session: session} do
    with_events(fn ->
      assert {:error, _} = Policy.step(session, <<1, 2, 3>>)
      assert_received {[:exphil_native, :policy, :step, :stop], _, %{result: :error}}
    end)
  end

  test "going back is reported with its frames, where it succeeds", %{session: session, obs: obs} do
    with_events(fn ->
      for _ <- 1..4, do: Policy.step!(session, obs)
      assert_received {[:exphil_native, :policy, :step, :stop], _, _}
      Policy.rollback!(session, 3)
      assert_received {[:exphil_native, :policy, :rollback], %{frames: 3}, %{call: :rollback}}
      Policy.resimulate!(session, 1, obs)
      assert_received {[:exphil_native, :policy, :rollback], %{frames: 1}, %{call: :resimulate}}
      assert {:error, _} = Policy.rollback(session, 100)
      refute_received {[:exphil_native | _], _, _}
    end)
  end

  test "ticks that went by are a missed deadline" do
    with_events(fn ->
      clock = Clock.start!(200)
      first = Clock.wait(clock)
      until_tick(clock, first + 10)
      before = System.monotonic_time(:nanosecond)
      number = Clock.wait(clock)
      later = System.monotonic_time(:nanosecond)
      assert_received {[:exphil_native, :clock, :miss], %{count: count, late: late}, metadata}
      assert count == number - first - 1
      assert count >= 9
      due = Clock.due(clock, number)
      assert late in (before - due)..(later - due)
      assert metadata == %{fps: 200, tick: number}
      :ok = Clock.stop(clock)
    end)
  end

  test "without the application or a handler nothing is reported and the answers are the same", %{
    session: session,
    obs: obs
  } do
    assert {:ok, _} = Policy.step(session, obs)
    assert Telemetry.sampled(:step, fn -> {:ok, 1} end) == {:ok, 1}
    refute_received {[:exphil_native | _], _, _}
  end
end
