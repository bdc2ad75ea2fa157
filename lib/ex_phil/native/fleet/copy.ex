defmodule ExPhil.Native.Fleet.Copy do
  @moduledoc false
  # An agent's copy on another node, as its owner uses it: makes one, sends it what changes, and makes it the
  # owner. Functions on the state of ExPhil.Native.Fleet.Agent, in the owner's process.
  # ExPhil.Native.Fleet.Successor has those in the copy's process.
  #
  # At most one process may go on with an agent. A copy counts from the moment at which it receives `:arm`.
  # The owner makes another one only when the first has ended, or its node is no member any more, which a
  # majority has decided; and the copy takes over only when the owner has ended, or its node is no member any
  # more.

  alias ExPhil.Native.Fleet.{Agent, Directory, Placing, View}

  # Milliseconds: how long a call waits for a copy that is out of reach; between looks; before another attempt
  # to make one. An agent whose copy was lost makes another one after a random time of at most @spread, because
  # the agents of the lost node have to be built again at the same moment, and they go first.
  @patience 2000
  @look 10
  @again 100
  @spread 250

  # ---- the owner's side --------------------------------------------------------------------------------------

  @doc "Adds news for the copy. `confirm/1` sends it."
  def tell(%{peer: nil, maker: nil} = state, _news), do: state

  def tell(%{sequence: sequence} = state, news) do
    state = if state.maker, do: %{state | since: [{sequence + 1, news} | state.since]}, else: state
    if state.peer, do: order(state, news), else: %{state | sequence: sequence + 1}
  end

  # A message for the present copy alone: another one that is being made must not get it.
  defp order(%{sequence: sequence} = state, what),
    do: %{state | sequence: sequence + 1, pending: [{sequence + 1, what} | state.pending]}

  @doc """
  Sends what is pending and waits until the copy has it: `{:ok, state}`. `{:error, state}` where the copy is out of reach and nobody has
  decided what becomes of it; `{:given_up, state}` where it is the owner now.
  """
  def confirm(%{peer: nil} = state), do: {:ok, %{state | pending: []}}
  def confirm(%{pending: []} = state), do: {:ok, state}
  def confirm(state), do: send_news(state, Agent.now() + @patience)

  defp send_news(%{peer: peer} = state, deadline) do
    state = watch(state)
    tag = make_ref()
    send(peer, {:copy, self(), tag, Enum.reverse(state.pending)})
    await(state, tag, deadline)
  end

  defp watch(%{monitor: nil, peer: peer} = state), do: %{state | monitor: Process.monitor(peer)}
  defp watch(state), do: state

  defp await(%{monitor: monitor} = state, tag, deadline) do
    receive do
      {^tag, :ok} -> {:ok, confirmed(state)}
      {^tag, :owner} -> {:given_up, state}
      {^tag, {:refused, error}} -> {:ok, refused(state, error)}
      {:DOWN, ^monitor, :process, _, :noconnection} -> await_decision(%{state | monitor: nil}, deadline)
      {:DOWN, ^monitor, :process, _, _ended} -> {:ok, lost(%{state | monitor: nil})}
    after
      max(deadline - Agent.now(), 0) -> {:error, state}
    end
  end

  # The copy's node is out of reach: until it is back, or no member any more.
  defp await_decision(%{peer: peer} = state, deadline) do
    cond do
      gone?(state) ->
        {:ok, lost(state)}

      Agent.now() >= deadline ->
        {:error, state}

      node(peer) in Node.list() ->
        send_news(state, deadline)

      true ->
        receive do
          :view -> await_decision(state, deadline)
        after
          @look -> await_decision(state, deadline)
        end
    end
  end

  defp confirmed(%{promoting: true, peer: peer} = state) do
    Directory.leave(state.fleet, :owner, state.key, self())
    Directory.learn(state.fleet, state.key, peer)
    Directory.count(state.fleet, :moved, 1)
    %{state | pending: [], moved_to: peer}
  end

  defp confirmed(state), do: %{state | pending: []}

  @doc "The copy cannot become the owner: whoever wanted it is told so."
  def refused(state, error) do
    if state.mover, do: GenServer.reply(state.mover, {:error, error})
    %{state | pending: [], promoting: false, mover: nil}
  end

  @doc "Without a copy. Whoever waits for it to take over is told to try again."
  def dropped(state) do
    if state.monitor, do: Process.demonitor(state.monitor, [:flush])
    if state.mover, do: GenServer.reply(state.mover, :retry)
    %{state | peer: nil, peer_member: nil, monitor: nil, pending: [], promoting: false, mover: nil}
  end

  @doc "Whether the other process's node is no member any more, as a majority has decided, or not with that process."
  def gone?(%{fleet: fleet, peer: peer, peer_member: member}),
    do: View.get(fleet).members[node(peer)] != member

  @doc "The copy was lost: goes on without it, and makes another one a little later."
  def lost(state), do: state |> dropped() |> later()

  @doc "Makes a copy a little later."
  def later(state) do
    wait = :rand.uniform(@spread)
    Process.send_after(self(), :look_after, wait + 1)
    %{state | copy_at: Agent.now() + wait}
  end

  # ---- making one: another process looks for a node and starts the copy there, while the owner plays -----------

  @doc "Begins to make a copy, where the fleet has copies and the agent has none."
  def look_for(%{peer: nil, maker: nil, copy_at: at} = state) do
    due = at == nil or Agent.now() >= at
    if due and copies?(state), do: begin(state, nil, nil), else: state
  end

  def look_for(state), do: state

  @doc "With a copy on another node, where the fleet has copies and a node for it: `{:ok, state}`, or `{:retry, state}` where that failed."
  def ensure(%{peer: nil} = state), do: if(copies?(state), do: make(state), else: {:ok, state})
  def ensure(state), do: {:ok, state}

  defp copies?(state), do: Directory.get(state.fleet, :config).copies > 0

  @doc """
  Moves the copy to that node, where there is one that may be moved, and tells `from` when that is done. The new one is there before the old
  one ends, so that the agent is without a copy for the time of two messages.
  """
  def move(%{peer: peer} = state, node, from) do
    if peer == nil or state.maker != nil or state.mover != nil or node(peer) == node do
      GenServer.reply(from, :ok)
      state
    else
      begin(state, node, from)
    end
  end

  # Starts a process that makes a copy with the present log. The copy is not used before it is armed. node: where
  # it is to be; nil: on any node that has room.
  defp begin(%{fleet: fleet} = state, node, from) do
    view = View.get(fleet)

    copy = %{
      key: state.key,
      owner: self(),
      member: view.members[node()],
      log: state.log,
      sequence: state.sequence,
      tag: Placing.tag(view)
    }

    {_pid, monitor} = spawn_monitor(fn -> exit({:made, start(fleet, view, copy, node)}) end)
    %{state | maker: %{monitor: monitor, from: from}, since: []}
  end

  defp start(fleet, %{members: members} = view, copy, nil) do
    case open(fleet, Map.keys(members) -- [node() | View.missing(fleet)]) do
      [] -> :nowhere
      open -> start(fleet, view, copy, choose(open, copy.key))
    end
  end

  defp start(fleet, _view, copy, node), do: Placing.remote(node, :start_copy, [fleet, copy], Agent)

  @doc "The process that makes a copy has ended: `{:ok, state}`, with the copy or because no node takes one, or `{:retry, state}`."
  def made(%{maker: %{from: from}, since: since} = state, made) do
    answer = with_copy(%{state | maker: nil, since: []}, made, since)
    if from, do: GenServer.reply(from, :ok)
    answer
  end

  defp with_copy(%{moved_to: nil, mover: nil, peer: nil} = state, {:made, {:ok, pid, member}}, since) do
    {_, state} =
      %{state | peer: pid, peer_member: member, pending: since} |> watch() |> order(:arm) |> confirm()

    {:ok, state}
  end

  # Replaces the present copy, unless that one could not be told to end: it may become the owner.
  defp with_copy(%{moved_to: nil, mover: nil} = state, {:made, {:ok, pid, _}} = made, since) do
    case let_go(state) do
      {:ok, state} ->
        with_copy(state, made, since)

      {_, state} ->
        Process.exit(pid, :shutdown)
        {:retry, state}
    end
  end

  defp with_copy(state, {:made, {:ok, pid, _}}, _since) do
    Process.exit(pid, :shutdown)
    {:retry, state}
  end

  defp with_copy(state, {:made, :nowhere}, _since), do: {:ok, state}

  defp with_copy(state, _failed, _since) do
    Process.send_after(self(), :look_after, @again)
    {:retry, state}
  end

  # Makes a copy and waits for it, also in a fleet without copies.
  defp make(%{maker: nil} = state), do: state |> begin(nil, nil) |> make()

  defp make(%{maker: %{monitor: monitor}} = state) do
    receive do
      {:DOWN, ^monitor, :process, _, made} -> made(state, made)
    end
  end

  # The less busy one of two that depend on the key: when a node dies, its agents do not all choose the same
  # one.
  defp choose(open, key) do
    {node, _} =
      open
      |> Enum.sort_by(fn {node, _} -> :erlang.phash2({key, node}) end)
      |> Enum.take(2)
      |> Enum.min_by(fn {_, load} -> (load.owners + load.copies) / load.devices end)

    node
  end

  defp open(_fleet, []), do: []

  defp open(fleet, nodes) do
    [{node(), Placing.load(fleet)} | Placing.loads(fleet, nodes, @patience)]
    |> Placing.open()
    |> List.keydelete(node(), 0)
  end

  @doc "Ends the copy, on purpose: `{:ok, state}` without one, or what `confirm/1` answers."
  def let_go(state) do
    with {:ok, %{moved_to: nil} = state} <- state |> order(:end) |> confirm(), do: {:ok, dropped(state)}
  end

  @doc """
  Begins to hand over to the copy, which warms up first: `{:ok, state}`, or `{:retry, state}` where there is none. Where the copy is on a node
  that takes no agents there is another one first.
  """
  def hand_over(%{peer: nil} = state) do
    case make(state) do
      {:ok, %{peer: peer} = state} when peer != nil -> warm(state)
      {_, state} -> {:retry, state}
    end
  end

  def hand_over(%{peer: peer} = state) do
    case Placing.remote(node(peer), :load, [state.fleet]) do
      %{open: true} -> warm(state)
      :retry -> {:retry, state}
      _ -> with {:ok, %{peer: nil} = state} <- let_go(state), do: hand_over(state)
    end
  end

  defp warm(state) do
    send(state.peer, {:warm, self()})
    {:ok, state}
  end

  @doc "The copy is warm: where it agrees, it is the owner from here on."
  def promote(state) do
    {_, state} = %{state | promoting: true} |> order(:promote) |> confirm()
    state
  end
end
