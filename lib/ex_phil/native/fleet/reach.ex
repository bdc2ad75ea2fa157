defmodule ExPhil.Native.Fleet.Reach do
  @moduledoc false
  # Which of a fleet's members can be reached, and what follows from it on this node. Called by
  # ExPhil.Native.Fleet.View, in its process, on its state.

  alias ExPhil.Native.Fleet.{Ballot, Directory}

  # Milliseconds: how long calls wait before a lost majority is an error; between looks at a node that is out of
  # reach; the same where its host does not answer.
  @grace 1000
  @looks List.duplicate(5, 20)
  @far 500

  @doc """
  Whether the VM of a member that is out of reach has ended: `{:probed, pid, ended}` to `view`, at once or after a while. epmd, on its
  host, lists the names of the VMs that have not ended, where it listed them before.
  """
  @spec probe(pid(), pid()) :: pid()
  def probe(pid, view), do: spawn(fn -> send(view, {:probed, pid, ended?(pid, @looks)}) end)

  @doc "Whether epmd lists the VM of a member: `{:registered, pid}` to `view` where it does."
  @spec look_up(pid(), pid()) :: pid()
  def look_up(pid, view), do: spawn(fn -> if there?(pid) == true, do: send(view, {:registered, pid}) end)

  # A VM that was killed a moment ago may still be there: its system frees its memory, and that of its GPU.
  defp ended?(pid, looks) do
    case {there?(pid), looks} do
      {:unknown, _} ->
        Process.sleep(@far)
        false

      {false, _} ->
        true

      {true, [pause | later]} ->
        Process.sleep(pause)
        ended?(pid, later)

      {true, []} ->
        false
    end
  end

  defp there?(pid) do
    with [name, host] <- pid |> node() |> Atom.to_string() |> String.split("@"),
         {:ok, names} <- :net_adm.names(String.to_charlist(host)) do
      List.keymember?(names, String.to_charlist(name), 0)
    else
      _ -> :unknown
    end
  end

  @doc """
  Whether a proposal leaves out a member that this node reaches, itself too: who has lost one connection does not decide alone that the other side
  is gone.
  """
  @spec hasty?(map(), tuple()) :: boolean()
  def hasty?(state, {:accept, {_, members}}) do
    kept = Map.values(members)
    here = Map.values(state.view.members) |> Enum.reject(&(&1 in state.down))
    # What it has accepted once may have been decided.
    not match?(%{accepted: {_, ^members}}, state.acceptor) and not Enum.all?(here, &(&1 in kept))
  end

  def hasty?(_state, _message), do: false

  @doc "Those of the nodes that have a process of that name, or do not answer."
  @spec with_process(MapSet.t(node()), atom()) :: MapSet.t(node())
  def with_process(nodes, name) do
    nodes = MapSet.to_list(nodes)
    found = Enum.zip(nodes, :erpc.multicall(nodes, :erlang, :whereis, [name], 2 * @far))
    for {node, answer} <- found, answer != {:ok, :undefined}, into: MapSet.new(), do: node
  end

  @doc "Whether this is a fleet of this node only, without agents, which may join another one."
  @spec alone?(map()) :: boolean()
  def alone?(state), do: map_size(state.view.members) == 1 and Directory.counters(state.fleet).owners == 0

  @doc "What the process of the view says of itself to another one; `reply`: whether that one is to answer."
  @spec hello(map(), boolean()) :: tuple()
  def hello(state, reply), do: {:hello, self(), state.view, alone?(state), reply}

  @doc "Without what is known of others than these."
  @spec only(map(), [pid()]) :: map()
  def only(state, pids) do
    [down, dead, registered] =
      for set <- [state.down, state.dead, state.registered], do: MapSet.new(Enum.filter(set, &(&1 in pids)))

    %{state | down: down, dead: dead, registered: registered}
  end

  @doc "What callers and agents read, then a message to the agents, who act on it."
  @spec publish(map()) :: map()
  def publish(%{fleet: fleet, view: view} = state) do
    reached = Map.values(view.members) |> Enum.reject(&(&1 in state.down))
    missing = for {node, pid} <- view.members, pid in state.down, do: node
    here = Ballot.quorum?(view.members, reached, state.dead)
    state = %{state | lost_at: if(not here, do: state.lost_at || lost())}

    Directory.put(fleet, :missing, missing)
    Directory.put(fleet, :ended, state.ended)
    Directory.put(fleet, :view, view)
    Directory.put(fleet, :quorum, answers(state, here))
    Directory.wake(fleet)
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
