defmodule ExPhil.Native.Fleet.View do
  @moduledoc false
  # The members of a fleet, on each of its nodes: who they are (decided by ExPhil.Native.Fleet.Ballot), who is
  # out of reach, and whether this side may answer. Agents and copies act on a view that was decided, never on
  # a connection that was lost.
  #
  # A member is the process of this module on a node. It ends when its fleet has decided that it is no member
  # any more; its supervisor starts another one, without agents, which joins as a new member.

  use GenServer

  require Logger

  alias ExPhil.Native.Fleet.{Ballot, Devices, Directory, Forget, Reach, Spread, Weights}

  # Milliseconds between attempts to decide a view, and to settle with another fleet.
  @again 10
  @settle 200

  def start_link(config), do: GenServer.start_link(__MODULE__, config, name: process(config.name))

  @spec process(atom()) :: atom()
  def process(fleet), do: Module.concat(fleet, View)

  @doc "The view that this node has."
  @spec get(atom()) :: Ballot.view()
  def get(fleet), do: Directory.get(fleet, :view)

  @doc """
  Whether this side may answer: `true`, `:wait` (it is not known yet) or `false`. For the error, `missing/1` says who is out of reach.
  """
  @spec quorum(atom()) :: boolean() | :wait
  def quorum(fleet), do: Directory.get(fleet, :quorum)

  @doc "The nodes of the view that are out of reach of this node."
  @spec missing(atom()) :: [node()]
  def missing(fleet), do: Directory.get(fleet, :missing)

  @doc "Whether the VM, or the process, of a member is known to have ended. Who is out of reach may not have."
  @spec ended?(atom(), pid()) :: boolean()
  def ended?(fleet, member), do: Directory.get(fleet, :ended)[node(member)] == member

  @doc "The node that proposes views: the first that can be reached."
  @spec chair(atom()) :: node()
  def chair(fleet), do: hd(Enum.sort(Map.keys(get(fleet).members) -- missing(fleet)))

  # ---- the process -------------------------------------------------------------------------------------------

  @impl true
  def init(%{name: fleet}) do
    hurry()
    :ok = :net_kernel.monitor_nodes(true)
    Directory.clear(fleet)
    id = {System.os_time(), node()}
    Weights.own(fleet, id)

    state = %{
      fleet: fleet,
      view: %{id: id, number: 0, members: %{node() => self()}},
      acceptor: Ballot.new(),
      round: 0,
      proposer: nil,
      monitors: %{},
      down: MapSet.new(),
      dead: MapSet.new(),
      # Of each node the member that is known to have ended last, also when it is no member any more.
      ended: %{},
      # Members that epmd knew.
      registered: MapSet.new(),
      joining: MapSet.new(),
      # Other fleets of this name that we have not settled with.
      unsettled: MapSet.new(),
      ready: false,
      lost_at: nil
    }

    {:ok, Reach.publish(state), {:continue, :look_around}}
  end

  @impl true
  def handle_continue(:look_around, state),
    do: {:noreply, settle(%{state | unsettled: MapSet.new(Node.list()), ready: true})}

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

      Reach.hasty?(state, message) ->
        {:reply, {:reached, number}, state}

      true ->
        {answer, acceptor} = Ballot.answer(state.acceptor, message)
        {:reply, answer, %{state | acceptor: acceptor}}
    end
  end

  @impl true
  def handle_cast({:hello, pid, view, alone, reply}, state) do
    if reply, do: GenServer.cast(pid, Reach.hello(state, false))
    {:noreply, state |> met(pid, view, alone) |> Reach.publish()}
  end

  # One that is about to join another fleet takes no members: they would be left behind.
  def handle_cast({:join, pid}, state) do
    if Reach.alone?(state) and MapSet.size(MapSet.delete(state.unsettled, node(pid))) > 0,
      do: {:noreply, state},
      else: {:noreply, join(state, pid)}
  end

  def handle_cast({:decided, view}, state), do: {:noreply, adopt(state, view)}

  defp join(state, pid) do
    state = if state.view.members[node(pid)] == pid, do: state, else: wish(state, pid)
    GenServer.cast(pid, Reach.hello(state, false))
    propose(state)
  end

  @impl true
  def handle_info({:nodeup, node}, state) do
    GenServer.cast({process(state.fleet), node}, Reach.hello(state, true))
    {:noreply, state}
  end

  def handle_info({:nodedown, node}, state), do: {:noreply, Reach.publish(settled(state, node))}

  def handle_info({:DOWN, monitor, :process, pid, reason}, state) when is_map_key(state.monitors, monitor) do
    state = %{state | monitors: Map.delete(state.monitors, monitor), down: MapSet.put(state.down, pid)}

    if reason == :noconnection do
      probe(state, pid)
      {:noreply, state |> Reach.publish() |> propose()}
    else
      {:noreply, state |> ended(pid) |> Reach.publish() |> propose()}
    end
  end

  def handle_info({:probed, pid, true}, state),
    do: {:noreply, state |> ended(pid) |> Reach.publish() |> propose()}

  def handle_info({:probed, pid, false}, state) do
    if pid in state.down and pid in Map.values(state.view.members), do: probe(state, pid)
    {:noreply, state}
  end

  def handle_info({:registered, pid}, state),
    do: {:noreply, %{state | registered: MapSet.put(state.registered, pid)}}

  def handle_info({:DOWN, monitor, :process, _, result}, %{proposer: monitor} = state) do
    state = %{state | proposer: nil}

    case result do
      {:proposed, {:failed, round}} ->
        again(%{state | round: round})
        {:noreply, %{state | round: round}}

      {:proposed, {_, view}} ->
        {:noreply, state |> adopt(view) |> propose()}

      _failed ->
        again(state)
        {:noreply, state}
    end
  end

  def handle_info(:propose, state), do: {:noreply, propose(state)}
  def handle_info(:settle, state), do: {:noreply, settle(state)}
  def handle_info(:grace, state), do: {:noreply, Reach.publish(state)}
  def handle_info(_other, state), do: {:noreply, state}

  # ---- meeting other members ---------------------------------------------------------------------------------

  # Until every other fleet of this name has been met, or has ended.
  defp settle(state) do
    state = %{state | unsettled: Reach.with_process(state.unsettled, process(state.fleet))}
    for node <- state.unsettled, do: GenServer.cast({process(state.fleet), node}, Reach.hello(state, true))
    if MapSet.size(state.unsettled) > 0, do: Process.send_after(self(), :settle, @settle)
    Reach.publish(state)
  end

  defp met(%{view: %{id: id}} = state, pid, %{id: id} = view, _alone) do
    state = state |> settled(node(pid)) |> present(pid)
    if view.number < state.view.number, do: GenServer.cast(pid, {:decided, state.view})
    if view.number > state.view.number, do: adopt(state, view), else: state
  end

  defp met(state, pid, view, alone) do
    cond do
      Reach.alone?(state) and (not alone or view.id < state.view.id) ->
        GenServer.cast(pid, {:join, self()})
        # Asked again until the view is decided.
        if MapSet.size(state.unsettled) == 0, do: Process.send_after(self(), :settle, @settle)
        %{state | unsettled: MapSet.put(state.unsettled, node(pid))}

      alone ->
        settled(state, node(pid))

      true ->
        Logger.error(
          "fleet #{inspect(state.fleet)}: #{node(pid)} belongs to another fleet of this name, which began apart from this one " <>
            "and has agents; the two stay apart until one of them is stopped"
        )

        settled(state, node(pid))
    end
  end

  defp settled(state, node), do: %{state | unsettled: MapSet.delete(state.unsettled, node)}

  # Of a member that was out of reach: it is back. Of a node whose member is another process: that one has
  # ended.
  defp present(state, pid) do
    case state.view.members[node(pid)] do
      ^pid -> back(state, pid)
      nil -> state
      ended -> state |> ended(ended) |> propose()
    end
  end

  defp back(state, pid) do
    # What was said to all nodes meanwhile has not reached both sides.
    if pid in state.down do
      Devices.follow(state.fleet)
      Forget.settle(state.fleet)
    end

    watch(%{state | down: MapSet.delete(state.down, pid)}, pid)
  end

  defp probe(state, pid), do: if(pid in state.registered, do: Reach.probe(pid, self()))

  defp wish(state, pid) do
    joining = for joining <- state.joining, node(joining) != node(pid), into: MapSet.new([pid]), do: joining
    %{state | joining: joining}
  end

  defp ended(%{dead: dead, down: down} = state, pid) do
    ended = Map.put(state.ended, node(pid), pid)
    %{state | dead: MapSet.put(dead, pid), down: MapSet.put(down, pid), ended: ended}
  end

  defp watch(state, pid) do
    if pid == self() or pid in Map.values(state.monitors),
      do: state,
      else: %{state | monitors: Map.put(state.monitors, Process.monitor(pid), pid)}
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
    if Enum.any?(Map.values(state.view.members), &(&1 in state.down)), do: again(state)
    %{state | joining: MapSet.new()}
  end

  defp start_proposer(%{fleet: fleet, view: view, dead: dead, round: round} = state, wanted) do
    {_pid, monitor} =
      spawn_monitor(fn ->
        hurry()
        exit({:proposed, Ballot.propose(fleet, view, wanted, dead, round + 1)})
      end)

    %{state | proposer: monitor, round: round + 1}
  end

  # Hundreds of agents may be ready to run, and all of them wait for this decision. It takes little time.
  defp hurry, do: Process.flag(:priority, :high)

  # The longer the more often it has failed: there may be no majority that could decide.
  defp again(%{round: round}),
    do: Process.send_after(self(), :propose, min(@again * max(round, 1), @settle) + :rand.uniform(@again))

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
        for pid <- pids -- Map.values(old.members), do: Reach.look_up(pid, self())
        state = Reach.only(state, pids)
        state = Enum.reduce(pids, %{state | unsettled: drop_nodes(state.unsettled, members)}, &watch(&2, &1))
        state = Reach.publish(state)
        Devices.follow(fleet)
        Forget.settle(fleet)
        Spread.begin(fleet, Map.keys(members) -- Map.keys(old.members))
        state

      old.id == view.id ->
        Logger.warning("fleet #{inspect(fleet)}: the other members went on without #{node()}; it begins anew")
        exit({:shutdown, :excluded})

      true ->
        state
    end
  end

  defp drop_nodes(nodes, members), do: MapSet.new(Enum.reject(nodes, &is_map_key(members, &1)))
end
