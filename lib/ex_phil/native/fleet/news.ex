defmodule ExPhil.Native.Fleet.News do
  @moduledoc false
  # What an owner sends its copy, what the copy acknowledges, and when the owner may answer. Functions on the
  # state of ExPhil.Native.Fleet.Agent, in the owner's process. ExPhil.Native.Fleet.Successor has the copy's
  # side.
  #
  # At most one process may go on with an agent. A copy counts from the moment at which it receives `:arm`.
  # The owner makes another one only when the first has ended, or its node is no member any more, which a
  # majority has decided; and the copy takes over only when the owner has ended, or its node is no member any
  # more.
  #
  # An owner answers a frame when the copy has it. Where that takes long, it may answer before, for the time of
  # a lease: the copy does not take over for longer than that after it has heard from the owner, unless the
  # owner's process or VM has ended. The caller gets such an answer with what the copy has not acknowledged,
  # and hands that to another owner before its next frame (ExPhil.Native.Fleet.Caller).

  alias ExPhil.Native.Fleet.{Agent, Directory, View}

  # Milliseconds: how long a call waits for a copy that is out of reach; between looks. An agent whose copy was
  # lost makes another one after a random time of at most @spread, because the agents of the lost node have to be
  # built again at the same moment, and they go first.
  @patience 2000
  @look 10
  @spread 250

  @doc "Adds news for the copy. `offer/1`, `confirm/1` and `deliver/1` send it."
  def tell(%{peer: nil, maker: nil} = state, _news), do: state

  def tell(%{sequence: sequence} = state, news) do
    state = if state.maker, do: %{state | since: [{sequence + 1, news} | state.since]}, else: state
    if state.peer, do: order(state, news), else: %{state | sequence: sequence + 1}
  end

  @doc "A message for the present copy alone: another one that is being made must not get it."
  def order(%{sequence: sequence} = state, what),
    do: %{state | sequence: sequence + 1, pending: [{sequence + 1, what} | state.pending]}

  @doc "The agent's copy from here on, which has not got this yet."
  def begin(state, pid, member, pending) do
    %{state | peer: pid, peer_member: member, monitor: Process.monitor(pid), pending: pending}
    |> Map.merge(%{sent: 0, asked: [], lease: nil})
  end

  @doc "Sends the copy what it has not been sent, where it can be reached, and waits for nothing."
  def deliver(%{peer: nil} = state), do: %{state | pending: []}

  def deliver(%{pending: [{newest, _} | _], sent: sent} = state) when newest > sent do
    case watch(state) do
      %{monitor: nil} = state ->
        state

      state ->
        news = Enum.take_while(state.pending, fn {number, _} -> number > sent end)
        send(state.peer, {:copy, self(), {sent, newest}, Enum.reverse(news)})
        %{state | sent: newest, asked: [{newest, Agent.now()} | state.asked]}
    end
  end

  def deliver(state), do: state

  defp watch(%{monitor: nil, peer: peer} = state),
    do: if(node(peer) in Node.list(), do: %{state | monitor: Process.monitor(peer)}, else: state)

  defp watch(state), do: state

  @doc """
  Sends what is pending and waits until the copy has it: `{:ok, state}`. `{:error, state}` where the copy is out of reach and nobody has
  decided what becomes of it; `{:given_up, state}` where it is the owner now.
  """
  def confirm(state), do: settle(state, Agent.now() + @patience)

  @doc """
  As `confirm/1`, but waits a part of a frame's time only, where the copy cannot take over meanwhile: `{:unconfirmed, state}`. `unconfirmed/1`
  says what the copy may not have then.
  """
  def offer(state) do
    state = deliver(state)

    case await(state, patience(state)) do
      {:waiting, state} -> if leased?(state), do: {:unconfirmed, state}, else: confirm(state)
      done -> done
    end
  end

  @doc "The frames that the copy has not acknowledged, oldest first, with their numbers among the news."
  def unconfirmed(%{pending: pending}),
    do: for({_, {:frames, _, _}} = news <- Enum.reverse(pending), do: news)

  # A promoted copy may be the owner by now.
  defp leased?(%{lease: lease, promoting: promoting}),
    do: lease != nil and not promoting and Agent.now() < lease

  # Until when a frame waits. Where one has waited in vain, those after it do not wait as well.
  defp patience(%{asked: [_ | _] = asked, wait_ms: wait}) do
    {_, oldest} = List.last(asked)
    oldest + wait
  end

  defp patience(_state), do: Agent.now()

  defp settle(state, deadline) do
    case state |> deliver() |> await(deadline) do
      {:waiting, %{monitor: nil} = state} -> await_decision(state, deadline)
      {:waiting, state} -> {:error, state}
      done -> done
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
        settle(state, deadline)

      true ->
        receive do
          :view -> await_decision(state, deadline)
        after
          @look -> await_decision(state, deadline)
        end
    end
  end

  defp await(%{pending: []} = state, _until), do: {:ok, state}
  defp await(%{monitor: nil} = state, _until), do: {:waiting, state}

  defp await(%{peer: peer, monitor: monitor} = state, until) do
    receive do
      {:copied, ^peer, number, answer} ->
        with {:ok, state} <- heard(state, number, answer), do: await(state, until)

      {:DOWN, ^monitor, :process, _, reason} ->
        state |> down(reason) |> await(until)
    after
      max(until - Agent.now(), 0) -> {:waiting, state}
    end
  end

  @doc "What the copy says of the news up to that number: `{:ok, state}`, or `{:given_up, state}` where it is the owner now."
  def heard(state, number, :ok) do
    {unheard, heard} = Enum.split_while(state.asked, fn {asked, _} -> asked > number end)
    {:ok, %{acknowledged(state, number) | asked: unheard, lease: lease(state, heard)} |> promoted()}
  end

  # The connection was lost and made again: some news went with the first one.
  def heard(state, number, :missing),
    do: {:ok, %{acknowledged(state, number) | asked: [], sent: number} |> deliver()}

  def heard(state, _number, :owner), do: {:given_up, state}

  def heard(state, number, {:refused, error}) do
    {:ok, state} = heard(%{state | promoting: false}, number, :ok)
    {:ok, refused(state, error)}
  end

  defp acknowledged(%{pending: pending} = state, number),
    do: %{state | pending: Enum.take_while(pending, fn {newer, _} -> newer > number end)}

  # From when the newest news was sent that the copy has acknowledged: it heard of it later than that.
  defp lease(%{lease: lease}, []), do: lease

  defp lease(%{lease_ms: time}, [{_, sent} | _]), do: sent + time

  defp promoted(%{promoting: true, pending: [], peer: peer} = state) do
    Directory.leave(state.fleet, :owner, state.key, self())
    Directory.learn(state.fleet, state.key, peer)
    Directory.count(state.fleet, :moved, 1)
    %{state | moved_to: peer}
  end

  defp promoted(state), do: state

  @doc "The monitor of the copy says that it is out of reach, or has ended."
  def down(state, :noconnection), do: %{state | monitor: nil, sent: 0, asked: []}
  def down(state, _ended), do: lost(%{state | monitor: nil})

  @doc "The copy cannot become the owner, and stays a copy: whoever wanted it is told so."
  def refused(state, error) do
    if state.mover, do: GenServer.reply(state.mover, {:error, error})
    %{state | promoting: false, mover: nil}
  end

  @doc "Without a copy. Whoever waits for it to take over is told to try again."
  def dropped(state) do
    if state.monitor, do: Process.demonitor(state.monitor, [:flush])
    if state.mover, do: GenServer.reply(state.mover, :retry)

    %{state | peer: nil, peer_member: nil, monitor: nil, pending: [], promoting: false, mover: nil}
    |> Map.merge(%{sent: 0, asked: [], lease: nil})
  end

  @doc "Whether the other process's node is no member any more, as a majority has decided, or not with that process."
  def gone?(%{fleet: fleet, peer: peer, peer_member: member}),
    do: View.get(fleet).members[node(peer)] != member

  @doc "The copy was lost: goes on without it, and makes another one a little later."
  def lost(state), do: state |> dropped() |> later()

  @doc "Makes a copy a little later, where it does not say when after a random time."
  def later(state, wait \\ :rand.uniform(@spread)) do
    Process.send_after(self(), :look_after, wait + 1)
    %{state | copy_at: Agent.now() + wait}
  end
end
