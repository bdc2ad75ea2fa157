defmodule ExPhil.Native.QueuePriorityTest do
  # The priority of the threads that run large calls. Each test has a VM of its own: frames and calls of other tests
  # would lower it.
  use ExPhil.Native.TestSupport.BackendCase

  import ExPhil.Native.TestSupport.Peer

  # threads.() is the nice of each thread for large calls; own is the VM's, low that of a thread that gives way.
  @prelude """
  alias ExPhil.Native.{Policy, SelectiveScan}
  alias ExPhil.Native.TestSupport.Waiting
  nice = fn stat -> stat |> String.split(") ") |> List.last() |> String.split() |> Enum.at(16) |> String.to_integer() end
  threads = fn ->
    for thread <- File.ls!("/proc/self/task"),
        {:ok, stat} <- [File.read("/proc/self/task/\#{thread}/stat")],
        String.contains?(stat, "(exphil_job)"),
        do: nice.(stat)
  end
  own = nice.(File.read!("/proc/self/stat"))
  low = max(own, 10)
  scan = fn batch, state ->
    x = {:f32, {batch, 1024, 512}, :binary.copy(<<0.1::float-32-little>>, batch * 1024 * 512)}
    b = {:f32, {batch, 1024, state}, :binary.copy(<<0.1::float-32-little>>, batch * 1024 * state)}
    a = {:f32, {512, state}, :binary.copy(<<-1.0::float-32-little>>, 512 * state)}
    fn -> SelectiveScan.scan(x, x, a, b, b, backend: :host) end
  end
  all_own = fn -> Enum.all?(threads.(), &(&1 == own)) end
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
    true = all_own.()
    # Until two of them met.
    Waiting.until(fn ->
      calls = for _ <- 1..4, do: Task.async(scan)
      [^expected] = Enum.uniq(Task.await_many(calls, :infinity))
      low in threads.()
    end)
    # A call that comes longer after them than they are remembered.
    Waiting.until(fn -> Process.sleep(150) && scan.() == expected && all_own.() end)
    """)
  end

  # That calls beside frames give way from their beginning is in test/c_src/core/background_priority_test.cpp.
  test "a call in progress gives way when frames begin" do
    run("""
    model = Policy.load!(#{inspect(Policies.checkpoint())}, backend: :host)
    obs = :binary.copy(<<0.1::float-32-little>>, Policy.info!(model).d_input)
    session = Policy.new_session!(model)
    scan = scan.(8, 128)
    expected = scan.()
    true = all_own.()
    loop = spawn_link(fn -> Stream.repeatedly(fn -> ^expected = scan.() end) |> Stream.run() end)
    Waiting.until(fn -> Policy.step!(session, obs) && low in threads.() end)
    Process.unlink(loop)
    Process.exit(loop, :kill)
    """)
  end

  @tag :bound
  test "threads of the library use every core where the VM has bound its schedulers to one each" do
    run(
      """
      _ = {low, all_own}
      cores = fn thread -> Regex.run(~r/^Cpus_allowed:.*$/m, File.read!("/proc/self/task/\#{thread}/status")) end
      named = fn prefix ->
        for thread <- File.ls!("/proc/self/task"),
            {:ok, name} <- [File.read("/proc/self/task/\#{thread}/comm")],
            String.starts_with?(name, prefix),
            do: thread
      end
      all = Regex.run(~r/^Cpus_allowed:.*$/m, File.read!("/proc/self/status"))
      # OTP 27 has another name for it than those before it.
      [scheduler] = named.("1_scheduler\\n") ++ named.("erts_sched_1\\n")
      if :erlang.system_info(:logical_processors_available) > 1,
        do: Waiting.until(fn -> cores.(scheduler) != all end)
      model = Policy.load!(#{inspect(Policies.checkpoint())}, backend: :host)
      _clock = ExPhil.Native.Clock.start!(60)
      session = Policy.new_session!(model, fps: 60)
      obs = :binary.copy(<<0.1::float-32-little>>, Policy.info!(model).d_input)
      for _ <- 1..3, do: Policy.step!(session, obs)
      scan.(8, 16).()
      for name <- ["exphil_job", "exphil_ticks", "exphil_pace"], do: [_ | _] = named.(name)
      Waiting.until(fn -> Enum.all?(named.("exphil_"), fn thread -> cores.(thread) == all end) end)
      """,
      ["--erl", "+sbt db"]
    )
  end
end
