defmodule ExPhil.Native.Fleet.Placing do
  @moduledoc false
  # Where an agent is, and where a new one goes. A caller without an entry for the agent calls the key's
  # registrar, the member that a hash chooses. The registrar calls every member of the view, so it keeps no
  # table of its own; and every member has to answer in the same view, so that two views never place one key
  # twice. Frames do not pass through here.

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Agent, Directory, Spread, View, Weights}

  @timeout 5000
  # How many agents, and a sixteenth, may have come to a node since it said how busy it was. With more it is
  # queried again.
  @slack 2

  @type place :: {:ok, pid()} | :unknown | :retry | {:error, Error.t()}

  @doc "The agent's process. Where there is no such agent, and `place` is true, a new one; else :unknown."
  @spec locate(atom(), term(), boolean()) :: place()
  def locate(fleet, key, place) do
    %{members: members} = view = View.get(fleet)
    registrar = members |> Map.keys() |> Enum.max_by(&{:erlang.phash2({key, &1}), &1})
    remote(registrar, :register, [fleet, key, node(), tag(view), place])
  end

  @doc "What identifies a view."
  @spec tag(map()) :: {term(), non_neg_integer()}
  def tag(%{id: id, number: number}), do: {id, number}

  @doc "Calls a function of this module on another node; :retry where it cannot."
  def remote(node, function, arguments, module \\ __MODULE__) do
    if node == node() or node in Node.list(),
      do: :erpc.call(node, module, function, arguments, @timeout),
      else: :retry
  catch
    _, _ -> :retry
  end

  @doc "`locate/3` on the key's registrar. One call for a key at a time."
  @spec register(atom(), term(), node(), term(), boolean()) :: place()
  def register(fleet, key, near, tag, place) do
    lock = {{:placing, key}, self()}

    cond do
      tag(View.get(fleet)) != tag ->
        :retry

      :ets.insert_new(fleet, lock) ->
        try do
          registered(fleet, key, near, tag, place)
        after
          :ets.delete_object(fleet, lock)
        end

      true ->
        wait_for(fleet, Directory.row(fleet, {:placing, key}))
        :retry
    end
  end

  defp wait_for(_fleet, nil), do: :ok

  # Whoever was killed has left its row.
  defp wait_for(fleet, {_, holder} = lock) do
    monitor = Process.monitor(holder)

    receive do
      {:DOWN, ^monitor, :process, _, _} -> :ets.delete_object(fleet, lock)
    after
      @timeout -> Process.demonitor(monitor, [:flush])
    end
  end

  defp registered(fleet, key, near, tag, place) do
    case reports(fleet, key, tag) do
      :retry ->
        :retry

      reports ->
        found = fn what -> Enum.find_value(reports, fn {_, report} -> report[what] end) end

        cond do
          pid = found.(:owner) -> {:ok, pid}
          # It goes on there in a moment, or its owner's node is about to be found missing.
          found.(:copy) -> :retry
          not place -> :unknown
          freed = found.(:freed) -> freed(key, freed)
          pid = found.(:known) -> lost(key, pid)
          true -> start(fleet, key, near, tag, reports)
        end
    end
  end

  # [{node, report}] of every member, all of one view; else :retry.
  defp reports(fleet, key, tag) do
    nodes = Map.keys(View.get(fleet).members)

    if nodes -- [node() | Node.list()] == [] do
      reports =
        for {:ok, report} <- :erpc.multicall(nodes, __MODULE__, :report, [fleet, key], @timeout), do: report

      if length(reports) == length(nodes) and Enum.all?(reports, &(&1.tag == tag)),
        do: Enum.zip(nodes, reports),
        else: :retry
    else
      :retry
    end
  end

  @doc "The agent's entries on this node, and how busy the node is."
  @spec report(atom(), term()) :: map()
  def report(fleet, key) do
    second = fn row -> row && elem(row, 1) end

    Map.merge(load(fleet), %{
      tag: tag(View.get(fleet)),
      owner: second.(Directory.row(fleet, {:owner, key})),
      copy: second.(Directory.row(fleet, {:copy, key})),
      known: second.(Directory.row(fleet, {:known, key})),
      freed: second.(Directory.row(fleet, {:freed, key}))
    })
  end

  @doc "Enters the calling process as the agent on every node, so that callers there need no query."
  @spec announce(atom(), term()) :: :ok
  def announce(fleet, key), do: everywhere(fleet, :learn, [fleet, key, self()])

  @doc "This node takes agents again. Called on that node."
  @spec opened(atom()) :: :ok
  def opened(fleet) do
    Directory.put(fleet, :draining, false)
    wake(fleet)
  end

  @doc "This node takes agents from now on: those on other nodes that have no copy may have waited for it, and others' copies come to it."
  @spec wake(atom()) :: :ok
  def wake(fleet) do
    everywhere(fleet, :wake, [fleet])
    everywhere(fleet, :begin, [fleet, [node()]], Spread)
  end

  defp everywhere(fleet, function, arguments, module \\ Directory) do
    nodes = for node <- Map.keys(View.get(fleet).members), node != node(), node in Node.list(), do: node
    for node <- nodes, do: :erpc.cast(node, module, function, arguments)
    :ok
  end

  @doc "How busy this node is, and whether agents may come to it: `open` is `true`, `false`, or `:soon` where it has just joined."
  @spec load(atom()) :: map()
  def load(fleet) do
    %{owners: owners, copies: copies} = Directory.counters(fleet)
    devices = length(Directory.get(fleet, :devices))
    ours = Weights.ours(fleet)
    # Of a node that has not the fleet's weights, the number says nothing.
    generation = if ours == true, do: Directory.get(fleet, :generation), else: -1
    open = devices > 0 and not Directory.get(fleet, :draining) and ours
    %{owners: owners, copies: copies, devices: devices, open: open, generation: generation}
  end

  @doc "The loads of those nodes that answer within so many milliseconds."
  @spec loads(atom(), [node()], pos_integer()) :: [{node(), map()}]
  def loads(fleet, nodes, timeout \\ @timeout) do
    loads = Enum.zip(nodes, :erpc.multicall(nodes, __MODULE__, :load, [fleet], timeout))
    for {node, {:ok, load}} <- loads, do: {node, load}
  end

  @doc "The nodes that take agents, with their loads."
  @spec open([{node(), map()}]) :: [{node(), map()}]
  def open(loads) do
    newest = loads |> Enum.map(fn {_, load} -> load.generation end) |> Enum.max(fn -> 0 end)
    for {node, %{open: true, generation: ^newest} = load} <- loads, do: {node, load}
  end

  defp start(fleet, key, near, tag, reports) do
    case open(reports) do
      [] ->
        if Enum.any?(reports, fn {_, load} -> load.open != false end), do: :retry, else: nowhere()

      open ->
        {node, load} =
          Enum.min_by(open, fn {node, load} ->
            {load.owners / load.devices, node != near, :erlang.phash2({key, node})}
          end)

        remote(node, :start, [fleet, key, tag, load.owners + @slack + div(load.owners, 16)], Agent)
    end
  end

  defp nowhere do
    why = "each has no device, is drained, or has other weights"
    {:error, Error.new(:unavailable, "", "no node of the fleet takes agents: #{why}")}
  end

  defp freed(key, last) do
    {:error,
     Error.new(
       :lost,
       "key",
       "agent #{inspect(key, limit: 8)} was freed after frame #{last}, because it had no frame for the fleet's :idle time; " <>
         "after Fleet.stop/2 its next frame begins it anew"
     )}
  end

  defp lost(key, pid) do
    {:error,
     Error.new(
       :lost,
       "key",
       "agent #{inspect(key, limit: 8)} was lost with its process on #{node(pid)}: no other node had a copy of it; " <>
         "after Fleet.stop/2 its next frame begins it anew"
     )}
  end
end
