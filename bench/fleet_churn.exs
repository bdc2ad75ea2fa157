# A fleet whose agents come and go: each plays a few frames at 60 FPS and is stopped, on two VMs of this machine that keep copies for one another.
# Twenty times it prints how many have been, how many are there, and the memory of both VMs, which may not grow.
#
#   mix run bench/fleet_churn.exs [cuda|host] [AGENTS] [SECONDS]
#
# AGENTS (100,000) come within SECONDS (600). Every answer is compared with that of a session of its own. It needs epmd.
Code.require_file("support.exs", __DIR__)
Code.require_file("../test/support/waiting.ex", __DIR__)
modules = Code.require_file("../test/support/fleet_nodes.ex", __DIR__)

defmodule FleetChurn do
  alias ExPhil.Native.{Fleet, Policy}
  alias ExPhil.Native.TestSupport.FleetNodes
  alias ExPhil.Native.Tools.Demo

  @fleet FleetChurn.Fleet
  @players 64
  @frames 6
  @rows 20

  def run(backend, agents, seconds, modules) do
    FleetNodes.distribute()
    folder = Path.join(System.tmp_dir!(), "fleet_churn_#{System.pid()}")
    {path, _} = Demo.write(folder)
    options = [name: @fleet, policy: path, load: [backend: backend], session: [history: 8], copies: 1]
    FleetNodes.start_fleet(options)
    {peer, node} = FleetNodes.start(schedulers: max(div(System.schedulers_online(), 2), 1))

    for {module, code} <- modules,
        do: {:module, _} = FleetNodes.call(peer, :code, :load_binary, [module, ~c"bench", code])

    FleetNodes.start_fleet(peer, options)
    FleetNodes.settled(@fleet, [node(), node])

    %{"obs" => {:f32, {_, columns}, obs}} = Demo.frames(@frames)
    frames = for <<frame::binary-size(4 * columns) <- obs>>, do: frame
    expected = answers(path, backend, frames)
    done = :counters.new(2, [:write_concurrency])
    each = div(agents, @players)
    pause = seconds * 1_000_000 / each

    begin = now()

    players =
      for p <- 1..@players, do: Task.async(fn -> play(p, each, begin, pause, frames, expected, done) end)

    IO.puts("| s | agents so far | there | VM 1, MB | its Erlang memory | VM 2, MB | its Erlang memory |")
    IO.puts("|---|---|---|---|---|---|---|")
    report(peer, begin, done)

    for row <- 1..@rows do
      Process.sleep(max(div(begin - now(), 1000) + div(row * seconds * 1000, @rows), 0))
      report(peer, begin, done)
    end

    Task.await_many(players, :infinity)
    report(peer, begin, done)
    wrong = :counters.get(done, 2)

    IO.puts(
      "#{:counters.get(done, 1)} agents of #{@frames} frames, #{wrong} with another answer than a session of their own"
    )

    :peer.stop(peer)
    File.rm_rf!(folder)
    if wrong > 0, do: System.halt(1)
  end

  defp answers(path, backend, frames) do
    model = Policy.load!(path, backend: backend)
    session = Policy.new_session!(model)
    for frame <- frames, do: Policy.step!(session, frame)
  end

  defp play(player, each, begin, pause, frames, expected, done) do
    Enum.each(1..each, fn agent ->
      due = begin + round((agent - 1 + player / @players) * pause)
      Process.sleep(max(div(due - now(), 1000), 0))
      key = {player, agent}

      answers =
        for {frame, number} <- Enum.with_index(frames) do
          if number > 0, do: Process.sleep(16)
          {:ok, answer} = again(key, number, frame)
          answer
        end

      :ok = Fleet.stop(@fleet, key)
      :counters.add(done, 1, 1)
      if answers != expected, do: :counters.add(done, 2, 1)
    end)
  end

  # An error that says that the frame may be sent again.
  defp again(key, number, frame) do
    case Fleet.step(@fleet, key, number, frame) do
      {:error, %{kind: :unavailable}} -> again(key, number, frame)
      answer -> answer
    end
  end

  defp report(peer, begin, done) do
    there = Fleet.info!(@fleet).nodes |> Enum.map(& &1.agents) |> Enum.sum()
    own = [resident(System.pid()), erlang(:erlang.memory(:total))]

    other = [
      resident(FleetNodes.call(peer, System, :pid, [])),
      erlang(FleetNodes.call(peer, :erlang, :memory, [:total]))
    ]

    row = [div(now() - begin, 1_000_000), :counters.get(done, 1), there] ++ own ++ other
    IO.puts("| " <> Enum.join(row, " | ") <> " |")
  end

  defp resident(pid) do
    [_, kilobytes] = Regex.run(~r/VmRSS:\s+(\d+) kB/, File.read!("/proc/#{pid}/status"))
    Float.round(String.to_integer(kilobytes) / 1024, 1)
  end

  defp erlang(bytes), do: Float.round(bytes / 1_048_576, 1)
  defp now, do: System.monotonic_time(:microsecond)
end

{backend, rest} = BenchSupport.arguments()
FleetChurn.run(backend, BenchSupport.integer(rest, 0, 100_000), BenchSupport.integer(rest, 1, 600), modules)
