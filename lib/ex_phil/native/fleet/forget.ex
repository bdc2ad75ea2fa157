defmodule ExPhil.Native.Fleet.Forget do
  @moduledoc false
  # When an agent is stopped, every node of the fleet removes its entries. Its key can then be used for a new agent.
  #
  # The node that stops the agent may lack a connection to some nodes. A node that is connected to them tells them. If there is none, they
  # are told as soon as they are connected again. If the key has a new agent by then, the entries of the new agent are kept.

  alias ExPhil.Native.Fleet.{Directory, View}

  @timeout 5000
  # How many keys are kept for nodes that are out of reach.
  @most 10_000

  @doc "Removes the entries of a stopped agent on every node of the fleet."
  @spec everywhere(atom(), term()) :: :ok
  def everywhere(fleet, key) do
    Directory.forget(fleet, key)
    {near, far} = fleet |> others() |> Enum.split_with(&(&1 in Node.list()))
    answers = Enum.zip(near, :erpc.multicall(near, __MODULE__, :here, [fleet, key, far], @timeout))
    told = for {_, {:ok, nodes}} <- answers, node <- nodes, do: node
    for node <- (near ++ far) -- told, do: owe(fleet, node, key)
    :ok
  end

  defp others(fleet), do: Map.keys(View.get(fleet).members) -- [node()]

  @doc "Removes the entries on this node, and on those of the nodes `far` that it has a connection to. Returns the nodes that have done so."
  @spec here(atom(), term(), [node()]) :: [node()]
  def here(fleet, key, far) do
    Directory.forget(fleet, key)
    near = for node <- far, node in Node.list(), do: node
    answers = Enum.zip(near, :erpc.multicall(near, __MODULE__, :late, [fleet, [key]], @timeout))
    [node() | for({node, {:ok, :ok}} <- answers, do: node)]
  end

  @doc "These agents were stopped some time ago: removes their entries, but not those of a new agent with the same key."
  @spec late(atom(), [term()]) :: :ok
  def late(fleet, keys) do
    for key <- keys, not alive?(Directory.find(fleet, key)), do: Directory.forget(fleet, key)
    :ok
  end

  defp alive?(nil), do: false

  defp alive?(pid) do
    (node(pid) == node() or node(pid) in Node.list()) and
      :erpc.call(node(pid), Process, :alive?, [pid], @timeout)
  catch
    _, _ -> false
  end

  defp owe(fleet, node, key) do
    owed = :ets.select_count(fleet, [{{{:owed, :_, :_}}, [], [true]}])
    if owed < @most, do: :ets.insert(fleet, {{:owed, node, key}})
  end

  @doc "Tells nodes that can be reached again, beside the caller, and drops what is for nodes that have left the fleet."
  @spec settle(atom()) :: pid()
  def settle(fleet), do: spawn(fn -> settle_now(fleet) end)

  @doc "As `settle/1`, in the calling process."
  @spec settle_now(atom()) :: :ok
  def settle_now(fleet) do
    members = others(fleet)
    owed = for [node, key] <- :ets.match(fleet, {{:owed, :"$1", :"$2"}}), do: {node, key}

    for {node, keys} <- Enum.group_by(owed, &elem(&1, 0), &elem(&1, 1)),
        node not in members or told?(fleet, node, keys),
        key <- keys,
        do: :ets.delete(fleet, {:owed, node, key})

    :ok
  end

  defp told?(fleet, node, keys) do
    node in Node.list() and :erpc.call(node, __MODULE__, :late, [fleet, keys], @timeout) == :ok
  catch
    _, _ -> false
  end
end
