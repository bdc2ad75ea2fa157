defmodule ExPhil.Native.Fleet.Directory do
  @moduledoc false
  # A fleet on one node: a public ETS table with the fleet's name, which callers read without a message to a
  # process.
  #
  #     {{:owner, key}, pid, device}     an agent that plays here
  #     {{:copy, key}, pid, owner}       a copy of an agent that plays on another node
  #     {{:known, key}, pid}             where a caller of this node last found the agent
  #     {{:unconfirmed, key}, pid, news} frames that an owner answered to a caller of this node before its copy had them
  #     {{:owed, node, key}}             an agent that was stopped, of which that node does not know yet (ExPhil.Native.Fleet.Forget)
  #     {{:freed, key}, last}            an agent that was freed because it was idle, with its last frame
  #     {:config | :view | :quorum | ..., value}
  #
  # The process owns the table and removes the rows of processes that ended. Frames never pass through it.

  use GenServer

  # How many rows of agents that were freed because they were idle are kept.
  @most_freed 10_000
  # Milliseconds over which frames a second are counted.
  @sample 1000
  @counters [owners: 1, copies: 2, frames: 3, late: 4, taken_over: 5, moved: 6]

  @type fleet :: atom()

  def start_link(config), do: GenServer.start_link(__MODULE__, config, name: process(config.name))

  defp process(fleet), do: Module.concat(fleet, Directory)

  @doc "A value of the fleet on this node. Exits where the fleet does not run here, or not yet: `gone?/1` knows the reason."
  @spec get(fleet(), term()) :: term()
  def get(fleet, name) do
    case row(fleet, name) do
      {_, value} -> value
      nil -> gone(fleet)
    end
  end

  defp gone(fleet), do: exit({:noproc, {__MODULE__, fleet}})

  @doc "Whether a function of this module has exited for that reason because the fleet's table, or what it needs there, is gone."
  @spec gone?(term()) :: boolean()
  def gone?(reason), do: match?({:noproc, {__MODULE__, _}}, reason)

  @spec put(fleet(), term(), term()) :: true
  def put(fleet, name, value), do: :ets.insert(fleet, {name, value})

  @doc "Whether the fleet runs on this node."
  @spec here?(fleet()) :: boolean()
  def here?(fleet), do: is_atom(fleet) and :ets.whereis(fleet) != :undefined and row(fleet, :view) != nil

  @doc "The process that plays the agent, by this node's table, or nil."
  @spec find(fleet(), term()) :: pid() | nil
  def find(fleet, key),
    do: at(fleet, {:owner, key}, 2) || at(fleet, {:known, key}, 2) || at(fleet, {:copy, key}, 3)

  defp at(fleet, name, position) do
    row = row(fleet, name)
    row && elem(row, position - 1)
  end

  @doc "The row of that name, or nil."
  @spec row(fleet(), term()) :: tuple() | nil
  def row(fleet, name) do
    case :ets.lookup(fleet, name) do
      [row] -> row
      [] -> nil
    end
  rescue
    ArgumentError -> gone(fleet)
  end

  # The same of a change.
  defp change(fleet, change) do
    change.()
  rescue
    ArgumentError -> gone(fleet)
  end

  @doc "A caller found the agent there."
  @spec learn(fleet(), term(), pid()) :: true
  def learn(_fleet, _key, pid) when node(pid) == node(), do: true
  def learn(fleet, key, pid), do: change(fleet, fn -> :ets.insert(fleet, {{:known, key}, pid}) end)

  @doc "The agent's owner answered, but its copy may not have this news of frames, oldest first."
  @spec put_unconfirmed(fleet(), term(), pid(), [{pos_integer(), tuple()}]) :: true
  def put_unconfirmed(fleet, key, pid, news),
    do: change(fleet, fn -> :ets.insert(fleet, {{:unconfirmed, key}, pid, news}) end)

  @doc "The agent's copy has every frame that was answered."
  @spec confirmed(fleet(), term()) :: true
  def confirmed(fleet, key), do: change(fleet, fn -> :ets.delete(fleet, {:unconfirmed, key}) end)

  @doc "The agent was stopped: removes its rows. Called on every node."
  @spec forget(fleet(), term()) :: :ok
  def forget(fleet, key) do
    change(fleet, fn -> for name <- [:known, :freed, :unconfirmed], do: :ets.delete(fleet, {name, key}) end)
    :ok
  end

  @doc "Remembers that the agent was freed after frame `last`. Called on its node."
  @spec freed(fleet(), term(), integer()) :: :ok
  def freed(fleet, key, last), do: GenServer.call(process(fleet), {:freed, key, last})

  @doc "Enters the calling process as the agent's owner, on a device, or as its copy. false where another one is entered."
  @spec enter(fleet(), :owner | :copy, term(), term()) :: boolean()
  def enter(fleet, role, key, about) do
    entered = :ets.insert_new(fleet, {{role, key}, self(), about})
    if entered, do: counted(fleet, role, about, 1)
    entered and GenServer.call(process(fleet), {:watch, self(), role, key}, :infinity) == :ok
  end

  @doc "Removes what `enter/4` entered."
  @spec leave(fleet(), :owner | :copy, term(), pid()) :: :ok
  def leave(fleet, role, key, pid) do
    with {_, ^pid, about} <- row(fleet, {role, key}),
         1 <- :ets.select_delete(fleet, [{{{role, key}, pid, :_}, [], [true]}]),
         do: counted(fleet, role, about, -1)

    :ok
  end

  defp counted(fleet, :owner, device, by) do
    :counters.add(get(fleet, :device_counters), device + 1, by)
    count(fleet, :owners, by)
  end

  defp counted(fleet, :copy, _owner, by), do: count(fleet, :copies, by)

  @doc "The processes of the agents that play here, or of the copies."
  @spec pids(fleet(), :owner | :copy) :: [pid()]
  def pids(fleet, role), do: :ets.select(fleet, [{{{role, :_}, :"$1", :_}, [], [:"$1"]}])

  @doc "Agents and copies here look again at the view and at the nodes that take agents."
  @spec wake(fleet()) :: :ok
  def wake(fleet) do
    for role <- [:owner, :copy], pid <- pids(fleet, role), do: send(pid, :view)
    :ok
  end

  @doc "The copies that are here, each with its owner's process."
  @spec copies(fleet()) :: [{pid(), pid()}]
  def copies(fleet), do: :ets.select(fleet, [{{{:copy, :_}, :"$1", :"$2"}, [], [{{:"$1", :"$2"}}]}])

  @doc "How many agents each device of this node plays, in the order of the devices."
  @spec device_loads(fleet()) :: [integer()]
  def device_loads(fleet) do
    case get(fleet, :devices) do
      [] -> []
      devices -> for index <- 1..length(devices), do: :counters.get(get(fleet, :device_counters), index)
    end
  end

  @doc "Adds to one of the node's counters."
  @spec count(fleet(), atom(), integer()) :: :ok
  def count(fleet, name, by), do: :counters.add(get(fleet, :counters), @counters[name], by)

  @spec counters(fleet()) :: %{atom() => integer()}
  def counters(fleet) do
    counters = get(fleet, :counters)
    Map.new(@counters, fn {name, index} -> {name, :counters.get(counters, index)} end)
  end

  @doc "Forgets agents and where they were: this node begins anew."
  @spec clear(fleet()) :: :ok
  def clear(fleet) do
    for name <- [:owner, :copy], do: :ets.match_delete(fleet, {{name, :_}, :_, :_})
    for name <- [:known, :freed], do: :ets.match_delete(fleet, {{name, :_}, :_})
    :ets.match_delete(fleet, {{:owed, :_, :_}})
    counters = get(fleet, :counters)
    for name <- [:owners, :copies], do: :counters.put(counters, @counters[name], 0)
    devices = get(fleet, :device_counters)
    for index <- 1..:counters.info(devices).size, do: :counters.put(devices, index, 0)
    :ok
  end

  # ---- the process -------------------------------------------------------------------------------------------

  @impl true
  def init(config) do
    options = [:named_table, :public, :set, read_concurrency: true, write_concurrency: true]
    :ets.new(config.name, options)
    put(config.name, :counters, :counters.new(length(@counters), [:write_concurrency]))
    put(config.name, :config, Map.delete(config, :policy))
    put(config.name, :draining, false)
    put(config.name, :ended, %{})
    put(config.name, :frames_per_second, 0.0)
    Process.send_after(self(), :sample, @sample)
    sampled = {System.monotonic_time(:millisecond), 0}
    {:ok, %{fleet: config.name, watched: %{}, freed: {:queue.new(), 0}, sampled: sampled}}
  end

  @impl true
  def handle_call({:watch, pid, role, key}, _from, state) do
    {:reply, :ok, %{state | watched: Map.put(state.watched, Process.monitor(pid), {pid, role, key})}}
  end

  def handle_call({:freed, key, last}, _from, %{fleet: fleet} = state) do
    :ets.insert(fleet, {{:freed, key}, last})
    {queue, count} = state.freed
    {:reply, :ok, %{state | freed: bounded(fleet, :queue.in(key, queue), count + 1)}}
  end

  @impl true
  def handle_info(:sample, %{fleet: fleet, sampled: {at, frames}} = state) do
    now = System.monotonic_time(:millisecond)
    %{frames: played} = counters(fleet)
    put(fleet, :frames_per_second, 1000 * (played - frames) / max(now - at, 1))
    Process.send_after(self(), :sample, @sample)
    {:noreply, %{state | sampled: {now, played}}}
  end

  def handle_info({:DOWN, monitor, :process, pid, reason}, state) do
    {{^pid, role, key}, watched} = Map.pop!(state.watched, monitor)
    # An agent that did not end on purpose: where no copy goes on with it, it is lost, and not a new one.
    if role == :owner and reason != :normal, do: :ets.insert_new(state.fleet, {{:known, key}, pid})
    leave(state.fleet, role, key, pid)
    {:noreply, %{state | watched: watched}}
  end

  defp bounded(_fleet, queue, count) when count <= @most_freed, do: {queue, count}

  defp bounded(fleet, queue, count) do
    {{:value, oldest}, queue} = :queue.out(queue)
    :ets.delete(fleet, {:freed, oldest})
    {queue, count - 1}
  end
end
