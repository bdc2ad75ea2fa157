defmodule ExPhil.Native.Policy.WarmTest do
  # A clock of a session: its wait makes a scratch step in the calling process and polls until the tick. On a device in
  # a VM of its own over the fake driver, which replaces steps by simple ones; in some tests every third takes a millisecond. How
  # much faster a frame becomes is for bench/paced.exs.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.Clock
  alias ExPhil.Native.TestSupport.{FakeCuda, Shared, Waiting}

  @delays [{"FAKE_CUDA_DELAY", "1000"}, {"FAKE_CUDA_DELAY_EVERY", "3"}]

  # `wait`: whether a wait returned at its tick or later. Messages come up to a millisecond earlier. The library takes the
  # machine for an idle one, so that waits poll.
  @prelude """
  alias ExPhil.Native.TestSupport.Waiting
  ExPhil.Native.Tools.Reference.runnable_threads!(0)
  wait = fn {clock, since_due} -> since_due.(Clock.wait(clock)) >= 0 end
  """

  defp run(code, variables \\ []), do: FakeCuda.play(60, @prelude <> code, variables)

  test "on the host the wait ends at the tick, and the session is unchanged" do
    session = Policy.new_session!(Policy.load!(Policies.checkpoint(), backend: :host), fps: 200)
    before = Policy.export_state!(session)
    {clock, since_due} = Waiting.start_clock!(session)
    for _ <- 1..20, do: assert(since_due.(Clock.wait(clock)) >= 0)

    assert :ok = Clock.stop(clock)
    assert Policy.export_state!(session) == before
  end

  for {name, delays} <- [{"a device", []}, {"a device that is late", @delays}] do
    @tag :fake_cuda
    test "on #{name} the wait ends at the tick, and frames have the bits of frames without it" do
      output =
        run(
          """
          for options <- [[fps: 200], [fps: 200, history: 4]] do
            session = Policy.new_session!(model, options)
            {clock, _} = timed = Waiting.start_clock!(session)
            {waits, answers} = Enum.unzip(for frame <- frames, do: {wait.(timed), Policy.step!(session, frame)})
            :ok = Clock.stop(clock)
            IO.puts("not early: \#{Enum.all?(waits)}, right: \#{answers == outs and Policy.export_state!(session) == state}")
          end
          """,
          unquote(Macro.escape(delays))
        )

      assert output == String.duplicate("not early: true, right: true\n", 2)
    end
  end

  @tag :fake_cuda
  test "shortly before a tick the process makes steps of a session of nobody's" do
    output =
      run("""
      session = Policy.new_session!(model, fps: 200)
      clock = Clock.start!(session)
      {scratch, _frame} = clock.scratch
      new = Policy.export_state!(scratch)
      Waiting.until(fn -> Clock.wait(clock); Policy.export_state!(scratch) != new end)
      IO.puts("new: \#{new == Policy.export_state!(session)}")
      """)

    assert output == "new: true\n"
  end

  # A state that has played is longer by what its play needs.
  @tag :fake_cuda
  @tag :shared
  test "a session that acts has actions chosen before a tick" do
    output =
      run("""
      bots = Policy.load!(#{inspect(Shared.file("exphil/exphil_policy/policy.bin"))}, backend: :cuda, max_sessions: 8)
      session = Policy.new_session!(bots, fps: 200, window: :none)
      clock = Clock.start!(session)
      {scratch, _frame} = clock.scratch
      size = fn -> byte_size(Policy.export_state!(scratch)) end
      new = size.()
      Policy.act!(session, :binary.copy(<<0.5::float-32-little>>, Policy.info!(bots).d_input))
      Waiting.until(fn -> Clock.wait(clock); size.() > new end)
      IO.puts("acts")
      """)

    assert output == "acts\n"
  end

  @tag :fake_cuda
  test "a busy session, a late process and a session of replaced weights: the wait ends at the tick" do
    output =
      run("""
      session = Policy.new_session!(model, fps: 200)
      {clock, _} = timed = Waiting.start_clock!(session)
      busy = spawn_link(fn ->
        play = fn play -> (for frame <- frames, do: Policy.step!(session, frame)); play.(play) end
        play.(play)
      end)
      IO.puts("busy: \#{Enum.all?(for _ <- 1..40, do: wait.(timed))}")
      Process.unlink(busy)
      Process.exit(busy, :kill)
      first = Clock.wait(clock)
      Waiting.until_tick(clock, first + 10)
      IO.puts("late: \#{Clock.wait(clock) >= first + 10}")
      {:ok, _} = Policy.update(model, Policy.weights!(model))
      {:error, %{kind: :mismatch}} = Policy.step(session, hd(frames))
      IO.puts("replaced: \#{Enum.all?(for _ <- 1..40, do: wait.(timed))}")
      """)

    assert output == "busy: true\nlate: true\nreplaced: true\n"
  end

  @tag :fake_cuda
  test "callers that are killed while they wait change no session, and their clocks can be collected" do
    output =
      run(
        """
        session = Policy.new_session!(model, fps: 1000)
        for frame <- frames, do: Policy.step!(session, frame)
        for round <- 1..30 do
          pid = spawn(fn ->
            clock = Clock.start!(session)
            for _ <- Stream.repeatedly(fn -> Clock.wait(clock) end), do: :ok
          end)
          Process.sleep(rem(round, 8))
          Process.exit(pid, :kill)
          if rem(round, 10) == 0, do: :erlang.garbage_collect()
        end
        IO.puts("right: \#{Policy.export_state!(session) == state and Policy.step!(session, hd(frames)) != nil}")
        """,
        @delays
      )

    assert output == "right: true\n"
  end
end
