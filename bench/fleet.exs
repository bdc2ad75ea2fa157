# A fleet whose VMs are killed: agents at 60 FPS on three VMs of this machine, played from a fourth one. Again and again one of the three
# gets SIGKILL and is replaced. For the agents that moved, and for the others, it prints how late their answers were around the kills, and at the
# end whether every answer was that of a session that nothing disturbed.
#
#   mix run bench/fleet.exs [cuda|host] [AGENTS] [KILLS] [SECONDS] [gather] [when]
#
# SECONDS is the time between two kills (4). With `gather` each VM's model answers the frames of its agents together. With `when` it also
# prints for each kill in which tenths of a second after it frames were late, and how late those of the others were that were due in its
# first 200 ms. An answer's lateness is counted from when its frame was due; frames are due at fixed times, whatever
# happened to those before. The pause of a kill is the largest lateness of an agent in the second after it. It needs epmd.
Code.require_file("support.exs", __DIR__)
Code.require_file("../test/support/waiting.ex", __DIR__)
modules = Code.require_file("../test/support/fleet_nodes.ex", __DIR__)

defmodule FleetBench do
  alias ExPhil.Native.{Fleet, Policy}
  alias ExPhil.Native.TestSupport.{FleetNodes, Waiting}
  alias ExPhil.Native.Tools.Demo

  @fleet FleetBench.Fleet
  @frame 1_000_000_000 / 60
  @window 1_000_000_000
  @frames 600

  def run(backend, [agents, kills, seconds], [gather, times], modules) do
    FleetNodes.distribute()
    folder = Path.join(System.tmp_dir!(), "fleet_bench_#{System.pid()}")
    {path, _} = Demo.write(folder)

    options = [
      name: @fleet,
      policy: path,
      load: [backend: backend, gather: gather],
      session: [history: 8],
      idle: :infinity
    ]

    FleetNodes.start_fleet(Keyword.put(options, :devices, []))
    # After some kills one VM may have half of the agents and more.
    schedulers = max(div(System.schedulers_online(), 2), 1)
    start = fn -> start(options, modules, schedulers) end
    vms = for _ <- 1..3, do: start.()
    settled(vms)

    # Beside the players, so that no list of answers is copied when one ends.
    %{"obs" => {:f32, {_, columns}, obs}} = Demo.frames(@frames)
    frames = for <<frame::binary-size(4 * columns) <- obs>>, do: frame
    frames = List.to_tuple(frames)
    stop = :atomics.new(1, [])
    begin = now() + 500_000_000
    players = for agent <- 1..agents, do: Task.async(fn -> play(agent, begin, frames, stop) end)

    {vms, events} =
      Enum.map_reduce(1..kills, vms, fn _, vms -> kill(vms, start, seconds) end)
      |> then(fn {e, v} -> {v, e} end)

    Process.sleep(1000 * seconds)
    info = Fleet.info!(@fleet)
    :atomics.put(stop, 1, 1)
    played = Task.await_many(players, :infinity)
    for {peer, _} <- vms, do: :peer.stop(peer)
    report(played, events, info)
    if times, do: timeline(played, events)
    check(played, path, backend, frames)
    File.rm_rf!(folder)
  end

  defp start(options, modules, schedulers) do
    # On a machine with room the VMs have the flags that users have.
    {peer, node} = FleetNodes.start(schedulers: schedulers, spin: schedulers > 1)

    for {module, code} <- modules,
        do: {:module, _} = FleetNodes.call(peer, :code, :load_binary, [module, ~c"bench", code])

    FleetNodes.start_fleet(peer, options)
    {peer, node}
  end

  defp settled(vms), do: FleetNodes.settled(@fleet, [node() | for({_, node} <- vms, do: node)])

  # One VM is killed, and replaced once the agents play elsewhere.
  defp kill(vms, start, seconds) do
    Process.sleep(1000 * seconds)
    settled(vms)
    # One that has agents: a new one has only copies.
    playing = for %{node: node, agents: agents} when agents > 0 <- Fleet.info!(@fleet).nodes, do: node
    {peer, node} = vm = Enum.random(for {_, node} = vm <- vms, node in playing, do: vm)
    at = now()
    FleetNodes.kill(peer)
    Waiting.until(fn -> node not in Enum.map(Fleet.info!(@fleet).nodes, & &1.node) end)
    Process.sleep(1000)
    {{at, node}, [start.() | List.delete(vms, vm)]}
  end

  # {agent, [{due, answered, node, hash of the answer}]}, newest first.
  defp play(agent, begin, frames, stop),
    do: {agent, play(agent, begin + rem(agent * 7_919_000, round(@frame)), frames, stop, 0, [])}

  defp play(agent, begin, frames, stop, number, done) do
    due = begin + round(number * @frame)
    wait(due)

    if :atomics.get(stop, 1) == 1 do
      done
    else
      {:ok, answer} = again(agent, number, frames)
      row = {due, now(), node(Fleet.Directory.find(@fleet, agent)), :erlang.md5(answer)}
      play(agent, begin, frames, stop, number + 1, [row | done])
    end
  end

  # An error that says that the frame may be sent again.
  defp again(agent, number, frames) do
    case Fleet.step(@fleet, agent, number, frame(frames, agent, number)) do
      {:error, %{kind: :unavailable}} -> again(agent, number, frames)
      answer -> answer
    end
  end

  defp frame(frames, agent, number), do: elem(frames, rem(41 * agent + number, @frames))

  defp wait(due) do
    left = due - now()
    if left > 0, do: Process.sleep(max(div(left, 1_000_000), 1)) && wait(due)
  end

  defp report(played, events, info) do
    IO.puts(
      "#{length(played)} agents, #{length(events)} kills; #{info.agents} agents and #{info.copies} copies at the end\n"
    )

    IO.puts(
      "| kill | agents | p50 ms | p99 ms | longest ms | frames later than 16.67 ms |\n|---|---|---|---|---|---|"
    )

    all =
      for {{at, node}, index} <- Enum.with_index(events, 1) do
        around =
          for {_, rows} <- played,
              do: for({due, _, _, _} = row <- rows, due > at - 50_000_000 and due < at + @window, do: row)

        {moved, others} = Enum.split_with(around, fn rows -> Enum.any?(rows, &(elem(&1, 2) == node)) end)
        row("#{index}: moved", moved)
        row("#{index}: others", others)
        {moved, others}
      end

    row("all: moved", Enum.flat_map(all, &elem(&1, 0)))
    row("all: others", Enum.flat_map(all, &elem(&1, 1)))
    row("the whole run", for({_, rows} <- played, do: rows))
  end

  # Of all agents until shortly before the next kill, and of those that did not move.
  defp timeline(played, events) do
    ends =
      for({{at, _}, _} <- events |> Enum.drop(1) |> Enum.with_index(), do: at - 50_000_000) ++ [:infinity]

    for {{{at, node}, last}, index} <- events |> Enum.zip(ends) |> Enum.with_index(1) do
      rows = for {_, rows} <- played, do: Enum.filter(rows, fn {due, _, _, _} -> due > at and due < last end)
      others = for {_, rows} <- played, not Enum.any?(rows, &near?(&1, at, node)), do: rows

      IO.puts("\nkill #{index}, % of the frames late, by tenths of a second: " <> shares(rows, at))
      IO.puts("the others' latest, ms, by 10 ms: " <> latest(others, at))
    end
  end

  defp near?({due, _, on, _}, at, node), do: on == node and due > at - 50_000_000 and due < at + @window

  defp shares(rows, at) do
    in_tenths = rows |> Enum.concat() |> Enum.group_by(fn {due, _, _, _} -> div(due - at, 100_000_000) end)

    for {tenth, rows} <- Enum.sort(in_tenths), late = Enum.count(rows, &(late(&1) > 1000 / 60)), late > 0 do
      "#{tenth}: #{round(100 * late / length(rows))}"
    end
    |> Enum.join(", ")
  end

  defp latest(agents, at) do
    rows = for rows <- agents, {due, _, _, _} = row <- rows, due > at, due < at + 200_000_000, do: row
    in_parts = Enum.group_by(rows, fn {due, _, _, _} -> div(due - at, 10_000_000) end)

    for({_, rows} <- Enum.sort(in_parts), do: round(rows |> Enum.map(&late/1) |> Enum.max()))
    |> Enum.join(" ")
  end

  defp late({due, answered, _, _}), do: (answered - due) / 1.0e6

  # The largest lateness of each agent.
  defp row(name, []), do: IO.puts("| #{name} | 0 | | | | |")

  defp row(name, agents) do
    pauses =
      agents |> Enum.map(fn rows -> rows |> Enum.map(&late/1) |> Enum.max(fn -> 0.0 end) end) |> Enum.sort()

    at = fn percent -> pauses |> BenchSupport.at(percent) |> Float.round(1) end
    frames = agents |> Enum.map(&length/1) |> Enum.sum()
    over = agents |> Enum.map(fn rows -> Enum.count(rows, &(late(&1) > 1000 / 60)) end) |> Enum.sum()
    IO.puts("| #{name} | #{length(agents)} | #{at.(50)} | #{at.(99)} | #{at.(100)} | #{over} of #{frames} |")
  end

  defp check(played, path, backend, frames) do
    policy = Policy.load!(path, backend: backend)

    wrong =
      for {agent, rows} <- played do
        session = Policy.new_session!(policy)

        rows
        |> Enum.reverse()
        |> Enum.with_index()
        |> Enum.count(fn {{_, _, _, hash}, number} ->
          :erlang.md5(Policy.step!(session, frame(frames, agent, number))) != hash
        end)
      end

    IO.puts("\nanswers that differ from an undisturbed run: #{Enum.sum(wrong)}")
  end

  defp now, do: System.monotonic_time(:nanosecond)
end

{backend, rest} = BenchSupport.arguments()
arguments = for {default, at} <- Enum.with_index([300, 10, 4]), do: BenchSupport.integer(rest, at, default)
FleetBench.run(backend, arguments, for(word <- ~w(gather when), do: word in rest), modules)
