defmodule ExPhil.Native.Fleet.Successor do
  @moduledoc false
  # The copy's side of an agent: how it listens to the owner, and becomes the owner. Functions on the state of
  # ExPhil.Native.Fleet.Agent, in the copy's process. ExPhil.Native.Fleet.News is the owner's side, and has
  # the rule that both follow.
  #
  # Each answers `{:ok, state}`, `{:look_after, state}` where the owner's work between frames is due, or
  # `{:stop, state}`.

  require Logger

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Agent, Devices, Directory, Log, News, Placing, Player, Turns, View}

  @doc "The view, or who is out of reach, has changed."
  def view_changed(state) do
    cond do
      View.quorum(state.fleet) != true ->
        {:ok, state}

      state.monitor == :ended ->
        take_over(state)

      News.gone?(state) ->
        after_lease(state)

      true ->
        {:ok, watch(state)}
    end
  end

  # The owner's node may be back: without the owner, where the fleet went on without that node.
  defp watch(%{monitor: nil, peer: owner} = state) do
    if node(owner) in Node.list(), do: %{state | monitor: Process.monitor(owner)}, else: state
  end

  defp watch(state), do: state

  @doc "The owner, or its node, is down."
  def owner_down(state, :noconnection), do: {:ok, state}
  def owner_down(state, :normal), do: leave(state)
  def owner_down(state, _reason), do: view_changed(%{state | monitor: :ended})

  # A node that is no member any more may not know it yet. Its agents may answer until their leases end.
  defp after_lease(%{armed: false} = state), do: take_over(state)

  defp after_lease(%{fleet: fleet, peer_member: member} = state) do
    left = if View.ended?(fleet, member), do: 0, else: state.lease - Agent.now()

    if left > 0 do
      Process.send_after(self(), :view, left)
      {:ok, watch(state)}
    else
      take_over(state)
    end
  end

  @doc """
  What the owner sent, each item with its number, from after number `before` up to `newest`. Items are acknowledged once they are applied;
  one that was sent again is applied already.
  """
  def learn(%{peer: owner, sequence: sequence} = state, owner, {before, _newest}, _news)
      when before > sequence do
    acknowledge(owner, sequence, :missing)
    {:ok, state}
  end

  def learn(%{peer: owner, sequence: sequence} = state, owner, {_before, newest}, news) do
    news = Enum.drop_while(news, fn {number, _} -> number <= sequence end)
    state |> leased() |> learn_all(owner, newest, news)
  end

  def learn(state, owner, {_before, newest}, _news) do
    acknowledge(owner, newest, :owner)
    {:ok, state}
  end

  defp learn_all(state, owner, newest, news) do
    {news, promotion} = Enum.split_while(news, fn {_, what} -> what != :promote end)
    state = known_all(state, news)

    case {promotion, List.last(news)} do
      {[{number, :promote} | later], _} ->
        %{state | sequence: number} |> play_warm(news) |> promoted(owner, newest, later)

      {[], {_, :end}} ->
        Directory.leave(state.fleet, :copy, state.key, self())
        acknowledge(owner, newest, :ok)
        {:stop, state}

      _ ->
        # The owner waits for this, not for the session of a copy that is warm.
        acknowledge(owner, newest, :ok)
        {:ok, play_warm(state, news)}
    end
  end

  @doc "Answers an owner about its news up to that number: `:ok`, `:missing` where there is a gap after it, `:owner` from the agent's owner."
  def acknowledge(owner, number, answer), do: send(owner, {:copied, self(), number, answer})

  # Longer than the owner's, whose clock may be a little slower.
  defp leased(%{lease_ms: time} = state), do: %{state | lease: Agent.now() + time + div(time, 8) + 1}

  defp known_all(state, news),
    do: Enum.reduce(news, state, fn {number, one}, state -> known(%{state | sequence: number}, one) end)

  defp known(state, :arm), do: %{state | armed: true}
  defp known(state, what) when what in [:promote, :end], do: state
  defp known(%{log: log} = state, {:frames, from, frames}), do: %{state | log: Log.put(log, from, frames)}
  defp known(%{log: log} = state, {:state, exported}), do: %{state | log: Log.put_state(log, exported)}

  # Answers that were given stay, although these weights would give others.
  defp known(%{log: log} = state, {:switch, generation, answers}),
    do: %{state | log: log |> Log.switch(generation) |> Log.put_answers(answers), session: nil}

  @doc "Builds the session while the owner still plays; then it plays the owner's frames too."
  def warm_up(%{peer: owner} = state, owner) do
    case build(state) do
      {:ok, state} ->
        send(owner, {:warmed, self()})
        state

      {:error, error} ->
        send(owner, {:not_warmed, self(), error})
        state
    end
  end

  def warm_up(state, _owner), do: state

  defp play_warm(%{session: nil} = state, _news), do: state

  defp play_warm(state, news) do
    Enum.reduce(news, state, fn
      {_, {:frames, from, frames}}, %{session: session} = state when session != nil ->
        play_warm(state, from, frames)

      _, state ->
        state
    end)
  end

  # A copy that is not warm any more is built when it is needed.
  defp play_warm(%{log: log, played: played} = state, from, [{kind, _, _} | _] = frames) do
    case Player.play(state.session, played + 1 - from, kind, for({_, obs, _} <- frames, do: obs)) do
      {:ok, answers} ->
        numbered = Map.new(Enum.with_index(answers, from), fn {answer, number} -> {number, answer} end)
        %{state | log: Log.put_answers(log, numbered), played: from + length(frames) - 1}

      {:error, _} ->
        %{state | session: nil}
    end
  end

  # ---- becoming the owner ------------------------------------------------------------------------------------

  # What an owner has played after it had promoted its copy comes with the promotion where the connection was lost
  # in between. Nobody has got an answer to that, and its callers send it to the new owner.
  defp promoted(state, owner, newest, later) do
    case owning(state) do
      {:ok, state} ->
        acknowledge(owner, newest, :ok)
        {:look_after, state}

      {:error, error} ->
        acknowledge(owner, newest, {:refused, error})
        {:ok, state |> known_all(later) |> play_warm(later)}
    end
  end

  # A copy that was never armed is one that its owner does not have.
  defp take_over(%{armed: false} = state), do: leave(state)

  defp take_over(state) do
    # A hundred agents may do so at once. The frames of those that play here go before that.
    Process.flag(:priority, :low)
    taken = owning(state)
    Process.flag(:priority, :normal)

    case taken do
      {:ok, state} ->
        Directory.count(state.fleet, :taken_over, 1)
        {:look_after, News.later(state)}

      {:error, error} ->
        Logger.error(
          "fleet #{inspect(state.fleet)}: agent #{inspect(state.key)} is lost: #{Exception.message(error)}"
        )

        leave(state)
    end
  end

  # The table has the owner before it has no copy any more.
  defp owning(state) do
    with {:ok, state} <-
           if(state.session, do: {:ok, state}, else: Turns.run(state.fleet, fn -> build(state, false) end)) do
      if is_reference(state.monitor), do: Process.demonitor(state.monitor, [:flush])
      Directory.enter(state.fleet, :owner, state.key, state.device)
      Directory.leave(state.fleet, :copy, state.key, self())
      Placing.announce(state.fleet, state.key)
      now = Agent.now()

      heir = {state.peer, state.sequence}
      state = %{state | peer: nil, peer_member: nil, monitor: nil, lease: nil, pending: [], heir: heir}
      {:ok, Agent.owner(%{state | used: now, exported: now})}
    end
  end

  # When a node has died a hundred agents are built at once, and few of them will go back: their frames are recorded when one does
  # (ExPhil.Native.Fleet.Frames).
  defp build(%{fleet: fleet, log: log} = state, recorded \\ true) do
    with {index, place, generation} <- Devices.pick(fleet, log.generation),
         log = if(generation == log.generation, do: log, else: Log.switch(log, generation)),
         {:ok, session, log} <- Player.build(log, place, state.options, recorded) do
      {:ok, %{state | session: session, log: log, device: index, played: log.last, recorded: recorded}}
    else
      nil -> {:error, Error.new(:unavailable, "", "#{node()} has no device")}
      {:error, _} = error -> error
    end
  end

  defp leave(state) do
    Directory.leave(state.fleet, :copy, state.key, self())
    {:stop, state}
  end
end
