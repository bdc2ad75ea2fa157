defmodule ExPhil.Native.Fleet.Agent do
  @moduledoc false
  # One agent, as a process. As its owner it plays the agent's frames, one call after another; as its copy, on
  # another node, it keeps the log with which it can become the owner (ExPhil.Native.Fleet.Successor). When a
  # frame is answered, the copy has it, or cannot take over for some time: so the copy can give that answer
  # again, and an owner whose copy has taken over answers nothing (ExPhil.Native.Fleet.News).

  use GenServer, restart: :temporary, shutdown: :brutal_kill

  alias ExPhil.Native.Fleet.{Copy, Devices, Directory, Forget, Frames, Log, News, Options, Placing}
  alias ExPhil.Native.Fleet.{Successor, Upkeep, View}
  alias ExPhil.Native.Error

  # Milliseconds for which an agent that has moved away says where it is.
  @linger 1000

  # `peer`: the copy of an owner, the owner of a copy; `peer_member` the member of that node
  # (ExPhil.Native.Fleet.View). `pending`: what the copy may not have yet, newest first, numbered by
  # `sequence`; up to number `sent` it was sent to it, `asked` are the numbers up to which it has not
  # acknowledged that, newest first, each with its time; `lease` is the time until which the owner may
  # answer without it, or a copy does not take over; `lease_ms` is how long one lasts, `wait_ms` for how long
  # a frame waits for its copy. `heir`: the owner that was here before, and its last
  # number. `recorded`: the session can go back over the frames before those that it
  # has played here. `maker` is the process that makes another copy, `since` the news that this copy has
  # not got yet; no copy is made before the time `copy_at`, and none while `nowhere`
  # is the timer after which it looks for a node again (ExPhil.Native.Fleet.Copy). `played`: the last frame of a copy's own session.
  defstruct [:fleet, :key, :role, :options, :session, :device, :log, :played] ++
              [:peer, :peer_member, :monitor, :mover, :used, :exported, :moved_to, :maker, :copy_at] ++
              [:nowhere, :lease, :lease_ms, :wait_ms, :heir, pending: [], asked: [], since: []] ++
              [sequence: 0, sent: 0, armed: false, promoting: false, recorded: true]

  @doc """
  Starts the owner of a new agent on this node, unless more than `most` agents play here by now. Called by the key's registrar, in the view of
  that tag.
  """
  @spec start(atom(), term(), term(), non_neg_integer()) :: {:ok, pid()} | :retry | {:error, Error.t()}
  def start(fleet, key, tag, most) do
    if Placing.tag(View.get(fleet)) == tag and View.quorum(fleet) == true and
         Placing.load(fleet).owners <= most,
       do: start_child(fleet, {:owner, fleet, key}),
       else: :retry
  end

  @doc "Starts a copy on this node. Called by its owner."
  @spec start_copy(atom(), map()) :: {:ok, pid(), pid()} | :retry | {:error, Error.t()}
  def start_copy(fleet, copy) do
    with true <- Placing.tag(View.get(fleet)) == copy.tag,
         {:ok, pid} <- start_child(fleet, {:copy, fleet, copy}) do
      {:ok, pid, Process.whereis(View.process(fleet))}
    else
      false -> :retry
      failed -> failed
    end
  end

  defp start_child(fleet, how) do
    case DynamicSupervisor.start_child(Module.concat(fleet, Agents), {__MODULE__, how}) do
      {:ok, pid} -> {:ok, pid}
      {:error, %Error{} = error} -> {:error, error}
      {:error, _} -> :retry
    end
  end

  @doc "New weights: the agent goes on with them."
  @spec change_over(pid(), non_neg_integer()) :: :ok | :gone | {:error, Error.t()}
  def change_over(pid, generation) do
    GenServer.call(pid, {:change_over, generation}, :infinity)
  catch
    :exit, _ -> :gone
  end

  def start_link(how), do: GenServer.start_link(__MODULE__, how)

  # ---- the process -------------------------------------------------------------------------------------------

  @impl true
  def init({:owner, fleet, key}) do
    with {:ok, state} <- new(fleet, key),
         {index, {policy, _} = place, generation} <- Devices.pick(fleet, Directory.get(fleet, :generation)),
         {:ok, session} <- Devices.new_session(place, state.options),
         true <- Directory.enter(fleet, :owner, key, index) do
      log = Log.new(sizes(state, policy), generation)
      {:ok, owner(%{state | device: index, session: session, log: log})}
    else
      {:error, error} -> {:stop, error}
      _taken_or_no_device -> {:stop, :retry}
    end
  end

  def init({:copy, fleet, %{key: key, owner: owner} = copy}) do
    with {:ok, state} <- new(fleet, key),
         true <- Directory.enter(fleet, :copy, key, owner) do
      state = %{state | role: :copy, log: copy.log, sequence: copy.sequence}
      {:ok, %{state | peer: owner, peer_member: copy.member, monitor: Process.monitor(owner)}}
    else
      {:error, error} -> {:stop, error}
      false -> {:stop, :retry}
    end
  end

  defp new(fleet, key) do
    %{session: session, lease: lease, late: late} = Directory.get(fleet, :config)

    with {:ok, options} <- Options.session_of(session, key) do
      times = %{used: now(), exported: now(), lease_ms: lease, wait_ms: max(round(late / 4), 1)}
      {:ok, Map.merge(%__MODULE__{fleet: fleet, key: key, options: options}, times)}
    end
  end

  defp sizes(%{fleet: fleet, options: options}, policy) do
    window = if is_integer(options[:window]), do: options[:window], else: policy.info.window || 60
    %{history: options[:history] || 0, burn_in: Directory.get(fleet, :config).burn_in || window}
  end

  @doc "The state of an owner, which has a session and is entered in the table."
  def owner(%{fleet: fleet, log: log} = state) do
    # The weights may have changed while the session was made.
    if Directory.get(fleet, :generation) != log.generation, do: send(self(), :change_over)
    rest(%{state | role: :owner})
  end

  # Looks after a while whether the agent is still used.
  defp rest(%{fleet: fleet} = state) do
    idle = Directory.get(fleet, :config).idle
    if idle != :infinity, do: Process.send_after(self(), :idle, max(state.used + idle - now(), 0) + 1)
    state
  end

  @impl true
  def handle_call(_request, _from, %{moved_to: to} = state) when to != nil, do: {:reply, {:moved, to}, state}
  def handle_call(_request, _from, %{role: :copy} = state), do: {:reply, :retry, state}

  def handle_call({:play, number, kind, obs, how_many}, _from, state) do
    if View.quorum(state.fleet) == true,
      do:
        %{state | used: now(), heir: nil} |> Frames.play(number, kind, obs, how_many) |> begun() |> answered(),
      else: {:reply, :retry, state}
  end

  # What an owner before this one has answered, and could not tell its copy.
  def handle_call({:unconfirmed, owner, news}, _from, state) do
    if View.quorum(state.fleet) == true,
      do: state |> Frames.catch_up(owner, news) |> answered(),
      else: {:reply, :retry, state}
  end

  def handle_call({:change_over, generation}, _from, state) do
    {reply, state} = Upkeep.change_over(state, generation)
    {:reply, reply, state, {:continue, :look_after}}
  end

  def handle_call(:stop, _from, state) do
    case Copy.let_go(state) do
      {:ok, %{peer: nil} = state} -> {:stop, :normal, {:ok, :stopped}, left(state)}
      other -> answered({:retry, elem(other, 1)})
    end
  end

  # Leaves this node. The answer comes when another one has taken over.
  def handle_call(:move, _from, %{log: %{last: nil}} = state),
    do: {:stop, :normal, {:ok, {:moved, nil}}, left(state)}

  def handle_call(:move, _from, %{mover: mover} = state) when mover != nil, do: {:reply, :retry, state}

  def handle_call(:move, from, state) do
    case Copy.hand_over(state) do
      {:ok, state} -> moved(%{state | mover: from})
      {_, state} -> {:reply, :retry, state, {:continue, :look_after}}
    end
  end

  # The copy leaves that node, which takes no agents any more.
  def handle_call({:leave_copy, node}, from, %{peer: peer} = state) when peer != nil and node(peer) == node,
    do: {:noreply, Copy.move(state, nil, from)}

  def handle_call({:leave_copy, _node}, _from, state), do: {:reply, :ok, state}

  def handle_call(:settled?, _from, state), do: {:reply, Copy.settled?(state), state}

  # That node has more room for the copy.
  def handle_call({:move_copy, node}, from, state), do: {:noreply, Copy.move(state, node, from)}

  @impl true
  def handle_continue(:look_after, state), do: state |> Upkeep.look_after() |> moved()

  @impl true
  def handle_info({:copy, owner, numbers, news}, %{role: :copy} = state),
    do: state |> Successor.learn(owner, numbers, news) |> go_on()

  # Of an owner that was given up.
  def handle_info({:copy, owner, {_before, newest}, _news}, state) do
    Successor.acknowledge(owner, newest, :owner)
    {:noreply, state}
  end

  # For which no frame waited.
  def handle_info({:copied, copy, number, answer}, %{role: :owner, peer: copy, moved_to: nil} = state) do
    case News.heard(state, number, answer) do
      {:ok, state} -> moved(state)
      {:given_up, state} -> {:stop, :normal, left(state)}
    end
  end

  def handle_info({:warm, owner}, %{role: :copy} = state), do: {:noreply, Successor.warm_up(state, owner)}

  def handle_info({:warmed, copy}, %{role: :owner, peer: copy, mover: mover} = state) when mover != nil,
    do: state |> Copy.promote() |> moved()

  def handle_info({:not_warmed, copy, error}, %{role: :owner, peer: copy} = state),
    do: {:noreply, News.refused(state, error)}

  def handle_info(:view, %{role: :copy} = state), do: state |> Successor.view_changed() |> go_on()

  def handle_info(:view, %{peer: peer} = state) do
    state = if peer != nil and News.gone?(state), do: News.lost(state), else: state
    {:noreply, Copy.somewhere(state), {:continue, :look_after}}
  end

  def handle_info({:DOWN, monitor, :process, _, reason}, %{monitor: monitor, role: :copy} = state),
    do: %{state | monitor: nil} |> Successor.owner_down(reason) |> go_on()

  def handle_info({:DOWN, monitor, :process, _, reason}, %{monitor: monitor} = state),
    do: {:noreply, News.down(state, reason), {:continue, :look_after}}

  def handle_info({:DOWN, monitor, :process, _, made}, %{maker: %{monitor: monitor}} = state) do
    {_, state} = Copy.made(state, made)
    {:noreply, state, {:continue, :look_after}}
  end

  def handle_info(:change_over, state) do
    {_, state} = Upkeep.change_over(state, Directory.get(state.fleet, :generation))
    {:noreply, state, {:continue, :look_after}}
  end

  def handle_info(:look_again, state), do: {:noreply, Copy.somewhere(state), {:continue, :look_after}}
  def handle_info(:look_after, state), do: {:noreply, state, {:continue, :look_after}}
  def handle_info(:linger, state), do: {:stop, :normal, state}

  def handle_info(:idle, %{role: :owner, moved_to: nil} = state) do
    if now() - state.used >= Directory.get(state.fleet, :config).idle,
      do: free(state),
      else: {:noreply, rest(state)}
  end

  def handle_info(_other, state), do: {:noreply, state}

  # An agent whose first frame is refused is none: it ends.
  defp begun({reply, %{log: %{last: nil}} = state}) when reply != :retry do
    case Copy.let_go(state) do
      {:ok, %{peer: nil} = state} -> {:none, reply, state}
      {_, state} -> {reply, state}
    end
  end

  defp begun(played), do: played

  # ---- between frames, and after them ----------------------------------------------------------------------

  # A reply that holds once the copy has what led to it, or else once the caller knows what it may not have.
  defp answered({:none, reply, state}), do: {:stop, :normal, reply, left(state)}

  defp answered({reply, state}) do
    case News.offer(state) do
      {:unconfirmed, state} -> {:reply, unconfirmed(reply, state), state, {:continue, :look_after}}
      {:ok, %{moved_to: nil} = state} -> {:reply, reply, state, {:continue, :look_after}}
      {:ok, state} -> {:reply, {:moved, state.moved_to}, state, {:continue, :look_after}}
      {:error, state} -> {:reply, :retry, state}
      {:given_up, state} -> {:stop, :normal, :retry, left(state)}
    end
  end

  defp unconfirmed({:ok, _} = reply, state), do: {:unconfirmed, reply, News.unconfirmed(state)}
  defp unconfirmed(reply, _state), do: reply

  defp free(state) do
    case Copy.let_go(state) do
      {:ok, %{peer: nil} = state} ->
        Forget.everywhere(state.fleet, state.key)
        if state.log.last, do: Directory.freed(state.fleet, state.key, state.log.last)
        {:stop, :normal, left(state)}

      {_, state} ->
        {:noreply, rest(%{state | used: now()})}
    end
  end

  # The table is changed before any message about it is sent.
  defp left(state) do
    Directory.leave(state.fleet, :owner, state.key, self())
    state
  end

  defp go_on({:stop, state}), do: {:stop, :normal, state}
  defp go_on({:ok, state}), do: {:noreply, state}
  defp go_on({:look_after, state}), do: {:noreply, state, {:continue, :look_after}}

  # Whoever moves this agent hears of it once the copy is the owner.
  defp moved(%{mover: mover, moved_to: to} = state) when mover != nil and to != nil do
    GenServer.reply(mover, {:ok, {:moved, to}})
    Process.send_after(self(), :linger, @linger)
    {:noreply, %{state | mover: nil, session: nil}}
  end

  defp moved(state), do: {:noreply, state}

  @doc "Milliseconds of the monotonic clock."
  def now, do: System.monotonic_time(:millisecond)
end
