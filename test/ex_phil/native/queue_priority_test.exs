defmodule ExPhil.Native.QueuePriorityTest do
  # The priority of the threads that run large calls. Each test has a VM of its own: frames and calls of other tests
  # would lower it.
  use ExPhil.Native.TestSupport.BackendCase

  import ExPhil.Native.TestSupport.Peer

  # threads.() is {thread, nice, ticks of 10 ms that it ran} of each; own is the VM's nice, low that of a thread that gives way.
  @prelude """
  alias ExPhil.Native.{Mamba, SelectiveScan}
  fields = fn stat -> stat |> String.split(") ") |> List.last() |> String.split() end
  integer = fn fields, at -> fields |> Enum.at(at) |> String.to_integer() end
  threads = fn ->
    for thread <- File.ls!("/proc/self/task"),
        {:ok, stat} <- [File.read("/proc/self/task/\#{thread}/stat")],
        String.contains?(stat, "(exphil_job)"),
        do: {thread, integer.(fields.(stat), 16), integer.(fields.(stat), 11) + integer.(fields.(stat), 12)}
  end
  own = integer.(fields.(File.read!("/proc/self/stat")), 16)
  low = max(own, 10)
  scan = fn batch, state ->
    x = {:f32, {batch, 1024, 512}, :binary.copy(<<0.1::float-32-little>>, batch * 1024 * 512)}
    b = {:f32, {batch, 1024, state}, :binary.copy(<<0.1::float-32-little>>, batch * 1024 * state)}
    a = {:f32, {512, state}, :binary.copy(<<-1.0::float-32-little>>, 512 * state)}
    fn -> SelectiveScan.scan(x, x, a, b, b, backend: :host) end
  end
  await = fn await, condition, left ->
    cond do
      condition.() -> :ok
      left > 0 -> Process.sleep(1) && await.(await, condition, left - 1)
    end
  end
  eventually = fn condition -> await.(await, condition, 20_000) end
  """

  defp run(code, options \\ []) do
    {output, status} = peer(@prelude <> code <> "IO.puts(\"SOUND\")", library(), options)
    assert {status, output} == {0, "SOUND\n"}
  end

  test "a call that has the machine for itself has the VM's priority, and again after calls beside each other" do
    run("""
    scan = scan.(8, 16)
    expected = scan.()
    [_ | _] = threads.()
    true = Enum.all?(threads.(), fn {_, nice, _} -> nice == own end)
    calls = for _ <- 1..4, do: Task.async(scan)
    eventually.(fn -> Enum.any?(threads.(), fn {_, nice, _} -> nice == low end) end)
    [expected] = Enum.uniq([expected | Task.await_many(calls, 60_000)])
    Process.sleep(150)
    ^expected = scan.()
    eventually.(fn -> Enum.all?(threads.(), fn {_, nice, _} -> nice == own end) end)
    """)
  end

  test "a call in progress gives way when frames begin, and calls beside frames do from their beginning" do
    run("""
    model = Mamba.load!(#{inspect(Policies.checkpoint())}, backend: :host)
    obs = :binary.copy(<<0.1::float-32-little>>, Mamba.info(model).d_input)
    session = Mamba.new_session!(model)
    # As long on many cores: it must still run when this has read the state of all threads.
    long = scan.(4 * System.schedulers_online(), 128)
    Process.sleep(150)
    call = Task.async(long)
    eventually.(fn -> Enum.any?(threads.(), fn {_, nice, ticks} -> nice == own and ticks >= 2 end) end)
    Mamba.step!(session, obs)
    running = fn -> for {thread, nice, _} <- threads.(), nice == low, do: thread end
    eventually.(fn -> running.() != [] end)
    nil = Task.yield(call, 0)
    expected = Task.await(call, 60_000)

    player = spawn_link(fn -> Stream.repeatedly(fn -> Mamba.step!(session, obs) && Process.sleep(5) end) |> Stream.run() end)
    Process.sleep(20)
    before = Map.new(threads.(), fn {thread, _, ticks} -> {thread, ticks} end)
    ^expected = long.()
    grown = for {thread, nice, ticks} <- threads.(), ticks > Map.get(before, thread, 0) + 1, do: nice
    [^low] = Enum.uniq(grown)
    Process.unlink(player)
    Process.exit(player, :kill)
    """)
  end

  test "threads of the library use every core where the VM has bound its schedulers to one each" do
    run(
      """
      _ = low
      cores = fn thread -> Regex.run(~r/^Cpus_allowed:.*$/m, File.read!("/proc/self/task/\#{thread}/status")) end
      named = fn prefix ->
        for thread <- File.ls!("/proc/self/task"),
            {:ok, name} <- [File.read("/proc/self/task/\#{thread}/comm")],
            String.starts_with?(name, prefix),
            do: thread
      end
      all = Regex.run(~r/^Cpus_allowed:.*$/m, File.read!("/proc/self/status"))
      [scheduler] = named.("1_scheduler")
      if :erlang.system_info(:logical_processors_available) > 1,
        do: eventually.(fn -> cores.(scheduler) != all end)
      model = Mamba.load!(#{inspect(Policies.checkpoint())}, backend: :host)
      _clock = ExPhil.Native.Clock.start!(60)
      session = Mamba.new_session!(model, pace: 60)
      obs = :binary.copy(<<0.1::float-32-little>>, Mamba.info(model).d_input)
      for _ <- 1..3, do: Mamba.step!(session, obs)
      scan.(8, 16).()
      for name <- ["exphil_job", "exphil_ticks", "exphil_pace"], do: [_ | _] = named.(name)
      eventually.(fn -> Enum.all?(named.("exphil_"), fn thread -> cores.(thread) == all end) end)
      """,
      ["--erl", "+sbt db"]
    )
  end
end
