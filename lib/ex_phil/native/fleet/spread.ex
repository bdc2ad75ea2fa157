defmodule ExPhil.Native.Fleet.Spread do
  @moduledoc false
  # Moves copies to a node that takes agents from now on. Otherwise the nodes that were there before would go on keeping copies for each
  # other alone, and when one of them dies all of its agents would go on on one other. Agents themselves stay where they are.

  alias ExPhil.Native.Fleet.{Directory, Drain, Placing, View}

  # What the nodes say of their loads is not of one moment, while others give too: so it looks again.
  @rounds 5

  @doc "Moves this node's share of copies to those nodes, beside the caller."
  @spec begin(atom(), [node()]) :: :ok
  def begin(_fleet, []), do: :ok

  def begin(fleet, nodes) do
    spawn(fn -> for node <- nodes, node != node(), do: give(fleet, node, @rounds) end)
    :ok
  end

  defp give(fleet, to, rounds) do
    count = fleet |> Placing.loads(Map.keys(View.get(fleet).members)) |> Placing.open() |> share(node(), to)
    owners = for {_copy, owner} <- Directory.copies(fleet), node(owner) != to, do: owner
    moved = owners |> Enum.take_random(count) |> Drain.ask_each({:move_copy, to})
    if moved != [] and rounds > 1, do: give(fleet, to, rounds - 1)
  end

  @doc """
  How many copies `from` gives to `to`, from the loads of the nodes that take agents: a part of what it has more than the mean, as the others
  give of theirs, so that `to` comes to the mean at the most.
  """
  @spec share([{node(), map()}], node(), node()) :: non_neg_integer()
  def share(loads, from, to) do
    devices = loads |> Enum.map(fn {_, load} -> load.devices end) |> Enum.sum()
    busy = loads |> Enum.map(fn {_, load} -> load.owners + load.copies end) |> Enum.sum()
    over = fn load -> load.owners + load.copies - busy * load.devices / devices end
    surplus = for {node, load} <- loads, node != to, into: %{}, do: {node, max(over.(load), 0)}

    with {:ok, mine} when mine > 0 <- Map.fetch(surplus, from),
         {_, there} <- List.keyfind(loads, to, 0),
         room when room > 0 <- -over.(there),
         do: trunc(mine * min(room / Enum.sum(Map.values(surplus)), 1)),
         else: (_ -> 0)
  end
end
