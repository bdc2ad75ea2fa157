defmodule ExPhil.Native.Fleet.Successor do
  @moduledoc false
  # The copy's side of an agent: how it listens to the owner, and becomes the owner. Functions on the state of
  # ExPhil.Native.Fleet.Agent, in the copy's process. ExPhil.Native.Fleet.Copy is the owner's side, and has
  # the rule that both follow.
  #
  # Each answers `{:ok, state}`, `{:look_after, state}` where the owner's work between frames is due, or
  # `{:stop, state}`.

  require Logger

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Agent, Copy, Devices, Directory, Log, Placing, Player, Turns, View}

  @doc "The view, or who is out of reach, has changed."
  def view_changed(state) do
    cond do
      View.quorum(state.fleet) != true ->
        {:ok, state}

      state.monitor == :ended or Copy.gone?(state) ->
        take_over(state)

      state.monitor == nil and node(state.peer) in Node.list() ->
        {:ok, %{state | monitor: Process.monitor(state.peer)}}

      true ->
        {:ok, state}
    end
  end

  @doc "The owner, or its node, is down."
  def owner_down(state, :noconnection), do: {:ok, state}
  def owner_down(state, :normal), do: leave(state)
  def owner_down(state, _reason), do: view_changed(%{state | monitor: :ended})

  @doc "What the owner sent, each item with its number. Items are acknowledged once they are applied; one that was sent again is applied already."
  def learn(%{peer: owner} = state, owner, tag, news) do
    news = for {sequence, one} <- news, sequence > state.sequence, do: {sequence, one}

    state =
      Enum.reduce(news, state, fn {sequence, one}, state -> known(%{state | sequence: sequence}, one) end)

    case List.last(news) do
      {_, :promote} ->
        state |> play_warm(news) |> promoted(owner, tag)

      {_, :end} ->
        Directory.leave(state.fleet, :copy, state.key, self())
        send(owner, {tag, :ok})
        {:stop, state}

      _ ->
        # The owner waits for this, not for the session of a copy that is warm.
        send(owner, {tag, :ok})
        {:ok, play_warm(state, news)}
    end
  end

  def learn(state, owner, tag, _news) do
    send(owner, {tag, :owner})
    {:ok, state}
  end

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

  defp promoted(state, owner, tag) do
    case owning(state) do
      {:ok, state} ->
        send(owner, {tag, :ok})
        {:look_after, state}

      {:error, error} ->
        send(owner, {tag, {:refused, error}})
        {:ok, state}
    end
  end

  # A copy that was never armed is one that its owner does not have.
  defp take_over(%{armed: false} = state), do: leave(state)

  defp take_over(state) do
    case owning(state) do
      {:ok, state} ->
        Directory.count(state.fleet, :taken_over, 1)
        {:look_after, state}

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

      owner =
        Agent.owner(%{
          state
          | peer: nil,
            peer_member: nil,
            monitor: nil,
            used: now,
            exported: now,
            pending: []
        })

      {:ok, Copy.later(owner)}
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
