defmodule ExPhil.Native.Fleet.View do
  @moduledoc false
  # The members of a fleet, on each of its nodes: who they are (decided by ExPhil.Native.Fleet.Ballot), who is out of reach, and whether this
  # side may answer. Agents and copies act on a view that was decided, never on a connection that was lost.
  #
  # A member is the process of this module on a node. It ends when its fleet has decided that it is no member any more; its supervisor
  # starts another one, without agents, which joins as a new member.

  use GenServer

  require Logger

  alias ExPhil.Native.Fleet.{Ballot, Devices, Directory}

  # Milliseconds: how long an answer is held back before a lost majority becomes an error; between attempts.
  @grace 1000
  @again 50

  def start_link(config), do: GenServer.start_link(__MODULE__, config, name: process(config.name))

  @spec process(atom()) :: atom()
  def process(fleet), do: Module.concat(fleet, View)

  @doc "The view that this node knows."
  @spec get(atom()) :: Ballot.view()
  def get(fleet), do: Directory.get(fleet, :view)

  @doc """
  Whether this side may answer: `true`, `:wait` (it is not known yet) or `false`. For the error, `missing/1` says who is out of reach.
  """
  @spec quorum(atom()) :: boolean() | :wait
  def quorum(fleet), do: Directory.get(fleet, :quorum)

  @doc "The nodes of the view that are out of reach, as far as this node sees."
  @spec missing(atom()) :: [node()]
  def missing(fleet), do: Directory.get(fleet, :missing)

  @doc "The node that proposes views: the first that can be reached."
  @spec chair(atom()) :: node()
  def chair(fleet), do: hd(Enum.sort(Map.keys(get(fleet).members) -- missing(fleet)))

  # ---- the process -------------------------------------------------------------------------------------------

  @impl true
  def init(%{name: fleet}) do
    :ok = :net_kernel.monitor_nodes(true)
    Directory.clear(fleet)

    state = %{
      fleet: fleet,
      view: %{id: {System.os_time(), node()}, number: 0, members: %{node() => self()}},
      acceptor: Ballot.new(),
      round: 0,
      proposer: nil,
      monitors: %{},
      down: MapSet.new(),
      dead: MapSet.new(),
      joining: MapSet.new(),
      # Other fleets of this name that we have not settled with.
      unsettled: MapSet.new(),
      ready: false,
      lost_at: nil
    }

    {:ok, publish(state), {:continue, :look_around}}
  end

  @impl true
  def handle_continue(:look_around, %{fleet: fleet} = state) do
    nodes = Node.list()
    found = Enum.zip(nodes, :erpc.multicall(nodes, :erlang, :whereis, [process(fleet)], 5000))
    others = for {node, {:ok, pid}} when is_pid(pid) <- found, into: MapSet.new(), do: node
    {:noreply, settle(%{state | unsettled: others, ready: true})}
  end

  @impl true
  def handle_call({:ballot, %{id: id, number: number, members: members}, message}, _from, state) do
    %{view: view} = state

    cond do
      view.id != id or members[node()] != self() ->
        {:reply, {:other, view.id}, state}

      view.number > number ->
        {:reply, {:newer, view}, state}

      view.number < number ->
        {:reply, {:behind, view.number}, state}

      true ->
        {answer, acceptor} = Ballot.answer(state.acceptor, message)
        {:reply, answer, %{state | acceptor: acceptor}}
    end
  end

  @impl true
  def handle_cast({:hello, pid, view, alone, reply}, state) do
    if reply, do: GenServer.cast(pid, hello(state, false))
    {:noreply, state |> met(pid, view, alone) |> publish()}
  end

  # One that is about to join another fleet takes no members: they would be left behind.
  def handle_cast({:join, pid}, state) do
    if alone?(state) and MapSet.size(MapSet.delete(state.unsettled, node(pid))) > 0,
      do: {:noreply, state},
      else: {:noreply, join(state, pid)}
  end

  def handle_cast({:decided, view}, state), do: {:noreply, adopt(state, view)}

  defp join(state, pid) do
    state = if state.view.members[node(pid)] == pid, do: state, else: wish(state, pid)
    GenServer.cast(pid, hello(state, false))
    propose(state)
  end

  @impl true
  def handle_info({:nodeup, node}, state) do
    GenServer.cast({process(state.fleet), node}, hello(state, true))
    {:noreply, state}
  end

  def handle_info({:nodedown, node}, state),
    do: {:noreply, publish(%{state | unsettled: MapSet.delete(state.unsettled, node)})}

  def handle_info({:DOWN, monitor, :process, pid, reason}, state) when is_map_key(state.monitors, monitor) do
    state = %{state | monitors: Map.delete(state.monitors, monitor), down: MapSet.put(state.down, pid)}

    if reason == :noconnection do
      probe(pid)
      {:noreply, state |> publish() |> propose()}
    else
      {:noreply, state |> ended(pid) |> publish() |> propose()}
    end
  end

  def handle_info({:probed, pid, true}, state),
    do: {:noreply, state |> ended(pid) |> publish() |> propose()}

  def handle_info({:probed, pid, false}, state) do
    if pid in state.down and pid in Map.values(state.view.members), do: probe(pid)
    {:noreply, state}
  end

  def handle_info({:DOWN, monitor, :process, _, result}, %{proposer: monitor} = state) do
    state = %{state | proposer: nil}

    case result do
      {:proposed, {:failed, round}} ->
        again(:propose)
        {:noreply, %{state | round: round}}

      {:proposed, {_, view}} ->
        {:noreply, state |> adopt(view) |> propose()}

      _failed ->
        again(:propose)
        {:noreply, state}
    end
  end

  def handle_info(:propose, state), do: {:noreply, propose(state)}
  def handle_info(:settle, state), do: {:noreply, settle(state)}
  def handle_info(:grace, state), do: {:noreply, publish(state)}
  def handle_info(_other, state), do: {:noreply, state}

  # ---- meeting other members ---------------------------------------------------------------------------------

  # `alone`: a fleet of this node only, without agents, which may join another one.
  defp alone?(state),
    do: map_size(state.view.members) == 1 and Directory.counters(state.fleet).owners == 0

  defp hello(state, reply), do: {:hello, self(), state.view, alone?(state), reply}

  defp settle(state) do
    for node <- state.unsettled, do: GenServer.cast({process(state.fleet), node}, hello(state, true))
    if MapSet.size(state.unsettled) > 0, do: Process.send_after(self(), :settle, 4 * @again)
    publish(state)
  end

  defp met(%{view: %{id: id}} = state, pid, %{id: id} = view, _alone) do
    state = settled(state, pid) |> present(pid)
    if view.number < state.view.number, do: GenServer.cast(pid, {:decided, state.view})
    if view.number > state.view.number, do: adopt(state, view), else: state
  end

  defp met(state, pid, view, alone) do
    cond do
      alone?(state) and (not alone or view.id < state.view.id) ->
        GenServer.cast(pid, {:join, self()})
        # Asked again until the view is decided.
        if MapSet.size(state.unsettled) == 0, do: Process.send_after(self(), :settle, 4 * @again)
        %{state | unsettled: MapSet.put(state.unsettled, node(pid))}

      alone ->
        settled(state, pid)

      true ->
        Logger.error(
          "fleet #{inspect(state.fleet)}: #{node(pid)} belongs to another fleet of this name, which began apart from this one " <>
            "and has agents; the two stay apart until one of them is stopped"
        )

        settled(state, pid)
    end
  end

  defp settled(state, pid), do: %{state | unsettled: MapSet.delete(state.unsettled, node(pid))}

  # Of a member that was out of reach: it is back. Of a node whose member is another process: that one has ended.
  defp present(state, pid) do
    case state.view.members[node(pid)] do
      ^pid -> watch(%{state | down: MapSet.delete(state.down, pid)}, pid)
      nil -> state
      ended -> state |> ended(ended) |> propose()
    end
  end

  defp wish(state, pid) do
    joining = for joining <- state.joining, node(joining) != node(pid), into: MapSet.new([pid]), do: joining
    %{state | joining: joining}
  end

  defp ended(state, pid), do: %{state | dead: MapSet.put(state.dead, pid), down: MapSet.put(state.down, pid)}

  defp watch(state, pid) do
    if pid == self() or pid in Map.values(state.monitors),
      do: state,
      else: %{state | monitors: Map.put(state.monitors, Process.monitor(pid), pid)}
  end

  # Whether the VM has ended: epmd, on its host, knows the names of those that have not.
  defp probe(pid) do
    view = self()

    spawn(fn ->
      [name, host] = pid |> node() |> Atom.to_string() |> String.split("@")

      case :net_adm.names(String.to_charlist(host)) do
        {:ok, names} ->
          if List.keymember?(names, String.to_charlist(name), 0), do: Process.sleep(@again)
          send(view, {:probed, pid, not List.keymember?(names, String.to_charlist(name), 0)})

        {:error, _} ->
          Process.sleep(10 * @again)
          send(view, {:probed, pid, false})
      end
    end)
  end

  # ---- views -------------------------------------------------------------------------------------------------

  defp propose(%{proposer: nil, view: view} = state) do
    joining = Map.new(state.joining, &{node(&1), &1})
    staying = for {node, pid} <- view.members, pid not in state.down, into: %{}, do: {node, pid}
    wanted = Map.merge(staying, joining)

    cond do
      wanted == view.members -> %{state | joining: MapSet.new()}
      chair(state.fleet) != node() -> pass_on(state)
      true -> start_proposer(state, wanted)
    end
  end

  defp propose(state), do: state

  # The chair finds out about lost members by itself.
  defp pass_on(state) do
    for pid <- state.joining, do: GenServer.cast({process(state.fleet), chair(state.fleet)}, {:join, pid})
    if Enum.any?(Map.values(state.view.members), &(&1 in state.down)), do: again(:propose)
    %{state | joining: MapSet.new()}
  end

  defp start_proposer(%{fleet: fleet, view: view, dead: dead, round: round} = state, wanted) do
    {_pid, monitor} =
      spawn_monitor(fn -> exit({:proposed, Ballot.propose(fleet, view, wanted, dead, round + 1)}) end)

    %{state | proposer: monitor, round: round + 1}
  end

  defp again(what), do: Process.send_after(self(), what, @again + :rand.uniform(@again))

  defp adopt(%{view: %{id: id, number: number}} = state, %{id: id, number: new}) when new <= number, do: state

  defp adopt(%{fleet: fleet, view: old} = state, %{members: members} = view) do
    cond do
      members[node()] == self() ->
        for pid <- Enum.uniq(Map.values(old.members) ++ Map.values(members)),
            pid != self(),
            do: GenServer.cast(pid, {:decided, view})

        pids = Map.values(members)
        joining = state.joining |> Enum.reject(&(&1 in pids)) |> MapSet.new()
        state = %{state | view: view, acceptor: Ballot.new(), round: 0, joining: joining}
        keep = &(&1 in pids)
        state = %{state | down: MapSet.new(Enum.filter(state.down, keep))}
        state = %{state | dead: MapSet.new(Enum.filter(state.dead, keep))}
        state = Enum.reduce(pids, %{state | unsettled: drop_nodes(state.unsettled, members)}, &watch(&2, &1))
        Devices.follow(fleet, Map.keys(members))
        publish(state)

      old.id == view.id ->
        Logger.warning("fleet #{inspect(fleet)}: the other members went on without #{node()}; it begins anew")
        exit({:shutdown, :excluded})

      true ->
        state
    end
  end

  defp drop_nodes(nodes, members), do: MapSet.new(Enum.reject(nodes, &is_map_key(members, &1)))

  # What callers and agents read, then a message to those agents that act on it.
  defp publish(%{fleet: fleet, view: view} = state) do
    reached = Map.values(view.members) |> Enum.reject(&(&1 in state.down))
    missing = for {node, pid} <- view.members, pid in state.down, do: node
    here = Ballot.quorum?(view.members, reached, state.dead)
    state = %{state | lost_at: if(not here, do: state.lost_at || lost())}

    Directory.put(fleet, :missing, missing)
    Directory.put(fleet, :view, view)
    Directory.put(fleet, :quorum, answers(state, here))
    for role <- [:owner, :copy], pid <- Directory.pids(fleet, role), do: send(pid, :view)
    state
  end

  defp lost do
    Process.send_after(self(), :grace, @grace + 1)
    System.monotonic_time(:millisecond)
  end

  defp answers(%{ready: ready, unsettled: unsettled}, true),
    do: if(ready and MapSet.size(unsettled) == 0, do: true, else: :wait)

  defp answers(%{lost_at: lost_at}, false),
    do: if(System.monotonic_time(:millisecond) - lost_at > @grace, do: false, else: :wait)
end
