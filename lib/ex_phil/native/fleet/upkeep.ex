defmodule ExPhil.Native.Fleet.Upkeep do
  @moduledoc false
  # What an agent does between its frames: it sees to its copy, exports its state, and changes over to other weights. Called by
  # ExPhil.Native.Fleet.Agent, in its process.

  alias ExPhil.Native.Fleet.{Agent, Copy, Devices, Directory, Log, News, Player}
  alias ExPhil.Native.{Error, Policy}

  # Frames after which a state is exported even before its time.
  @most_frames 256

  @doc "Nobody waits meanwhile."
  @spec look_after(struct()) :: struct()
  def look_after(%{role: :owner, moved_to: nil, log: %{last: last}} = state) when last != nil,
    do: state |> Copy.look_for() |> export() |> News.deliver()

  def look_after(state), do: state

  # Without a copy too: states bound the log.
  defp export(%{log: %{last: last, states: [{at, _} | _]}} = state) do
    due = Agent.now() - state.exported >= Directory.get(state.fleet, :config).export

    with true <- last > at and (due or last - at >= @most_frames),
         {:ok, exported} <- Policy.export_state(state.session) do
      News.tell(%{state | log: Log.put_state(state.log, exported), exported: Agent.now()}, {:state, exported})
    else
      _ -> state
    end
  end

  @doc "The agent has the weights of that generation from its next frame on. Where it cannot, it keeps its own."
  @spec change_over(struct(), non_neg_integer()) :: {:ok | {:error, Error.t()}, struct()}
  def change_over(%{log: %{generation: generation}} = state, generation), do: {:ok, state}

  def change_over(%{log: log, role: :owner, moved_to: nil} = state, generation) do
    {place, generation} = Devices.place(state.fleet, state.device, generation)
    switched = Log.switch(log, generation)

    # Answers that were given stay, in this log and in the copy's.
    case Player.build(switched, place, state.options) do
      {:ok, session, _} ->
        state = %{state | session: session, log: switched, recorded: true}
        {:ok, News.tell(state, {:switch, generation, Log.answers(switched)})}

      {:error, _} = error ->
        {error, state}
    end
  end

  def change_over(state, _generation), do: {:ok, state}
end
