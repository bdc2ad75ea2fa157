defmodule ExPhil.Native.Fleet.Copy do
  @moduledoc false
  # An agent's copy on another node, as its owner uses it: makes one, moves it, and makes it the owner.
  # Functions on the state of ExPhil.Native.Fleet.Agent, in the owner's process. ExPhil.Native.Fleet.News has
  # what the owner sends it, and the rule that both follow.

  alias ExPhil.Native.Fleet.{Agent, Directory, News, Placing, View}

  # Milliseconds: how long other nodes may take to answer how busy they are; before another attempt to make a
  # copy; the same where no node takes one. That changes with the members, of which every agent hears; the
  # attempt is for a node that was too busy to answer, or had not the newest weights yet.
  @patience 2000
  @again 100
  @rarely 5000

  # ---- making one: another process looks for a node and starts the copy there, while the owner plays -----------

  @doc "Begins to make a copy, where the fleet has copies and the agent has none."
  def look_for(%{peer: nil, maker: nil, nowhere: nil, copy_at: at} = state) do
    due = at == nil or Agent.now() >= at
    if due and copies?(state), do: begin(state, nil, nil), else: state
  end

  def look_for(state), do: state

  @doc "With a copy on another node, where the fleet has copies and a node for it: `{:ok, state}`, or `{:retry, state}` where that failed."
  def ensure(%{peer: nil} = state), do: if(copies?(state), do: make(state), else: {:ok, state})
  def ensure(state), do: {:ok, state}

  @doc "Whether the agent has a copy that has answered, or can have none: its fleet has none, or no node takes it."
  def settled?(%{peer: nil} = state), do: state.nowhere != nil or not copies?(state)
  def settled?(state), do: state.lease != nil

  defp copies?(state), do: Directory.get(state.fleet, :config).copies > 0

  @doc """
  Moves the copy to that node, or where it is nil to any other one, where there is one that may be moved, and tells `from` when that is
  done. The new one is there before the old one ends, so that the agent is without a copy for the time of two messages. Where no other
  node takes it, it ends.
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
    %{somewhere(state) | maker: %{monitor: monitor, from: from}, since: []}
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
    {_, state} = state |> News.begin(pid, member, since) |> News.order(:arm) |> News.confirm()
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

  defp with_copy(%{peer: nil} = state, {:made, :nowhere}, _since), do: {:ok, nowhere(state)}

  defp with_copy(state, {:made, :nowhere}, _since) do
    case let_go(state) do
      {:ok, %{peer: nil} = state} -> {:ok, nowhere(state)}
      {_, state} -> {:retry, state}
    end
  end

  defp with_copy(state, _failed, _since), do: {:retry, News.later(state, @again)}

  # Waits until the members change, or a node takes agents again.
  defp nowhere(state), do: %{state | nowhere: Process.send_after(self(), :look_again, @rarely)}

  @doc "The members or the nodes that take agents have changed, or time has passed: a copy may be made where none could be."
  def somewhere(%{nowhere: nil} = state), do: state

  def somewhere(%{nowhere: timer} = state) do
    Process.cancel_timer(timer)
    %{state | nowhere: nil}
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

  @doc "Ends the copy, on purpose: `{:ok, state}` without one, or what `News.confirm/1` answers."
  def let_go(state) do
    with {:ok, %{moved_to: nil} = state} <- state |> News.order(:end) |> News.confirm(),
         do: {:ok, News.dropped(state)}
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
    {_, state} = %{state | promoting: true} |> News.order(:promote) |> News.confirm()
    state
  end
end
