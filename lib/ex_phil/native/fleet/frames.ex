defmodule ExPhil.Native.Fleet.Frames do
  @moduledoc false
  # An owner's frames by their numbers: those that were answered get the same answer, those that follow are
  # played, those further back are a rollback first. Functions on the state of ExPhil.Native.Fleet.Agent, in
  # its process.

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Copy, Devices, Log, News, Player}
  alias ExPhil.Native.Policy.States

  @doc """
  The answers to the frames from `number` on, `{{:ok, answers} | {:error, error}, state}`; `{:retry, state}` where a new agent ought to have a
  copy, and has none yet. The copy has them only after `News.confirm/1`.
  """
  def play(state, number, kind, obs, how_many) do
    case frames(state, obs, how_many) do
      {:ok, frames} -> play(state, number, kind, frames)
      {:error, _} = error -> {error, state}
    end
  end

  defp frames(%{session: %{policy: %{info: %{d_input: d_input}}}}, obs, how_many) do
    size = 4 * d_input

    case {how_many, byte_size(obs)} do
      {:one, ^size} -> {:ok, [obs]}
      {:many, bytes} when rem(bytes, size) == 0 -> {:ok, Player.split(obs, div(bytes, size))}
      {:one, _} -> {:error, Error.invalid("obs", "a frame of #{d_input} numbers, #{size} bytes", obs)}
      {:many, _} -> {:error, Error.invalid("frames", "frames of #{d_input} numbers, #{size} bytes each", obs)}
    end
  end

  @doc """
  Plays what the owner before this one has answered although its copy did not have it, as a caller was told: `{:ok | {:error, error}, state}`.
  Where another call has played frames since then, or that owner was not the last one, nothing changes.
  """
  def catch_up(%{heir: {owner, sequence}} = state, owner, news) do
    news
    |> Enum.drop_while(fn {number, _} -> number <= sequence end)
    |> Enum.reduce_while({:ok, state}, fn {number, {:frames, from, [{kind, _, _} | _] = frames}},
                                          {:ok, state} ->
      case play(state, from, kind, for({_, obs, _} <- frames, do: obs)) do
        {{:ok, _answers}, state} -> {:cont, {:ok, %{state | heir: {owner, number}}}}
        failed -> {:halt, failed}
      end
    end)
  end

  def catch_up(state, _owner, _news), do: {:ok, state}

  defp play(%{log: %{last: nil}} = state, _number, _kind, []), do: {{:ok, []}, state}

  # The number of its first frame is the agent's first. Before that is answered the agent has a copy.
  defp play(%{log: %{last: nil}} = state, number, kind, frames) do
    case Copy.ensure(state) do
      {:ok, state} -> advance(state, number, 0, kind, frames, [])
      retry -> retry
    end
  end

  defp play(%{log: log} = state, number, kind, frames) do
    {kept, rest} = kept(log, number, kind, frames, [])
    from = number + length(kept)

    cond do
      rest == [] -> {{:ok, kept}, state}
      same?(log, from, rest) -> {{:error, other_call(from, kind)}, state}
      from > log.last + 1 -> {{:error, gap(log.last, from)}, state}
      from < log.first -> {{:error, too_far(log.first, from)}, state}
      true -> advance(state, from, log.last + 1 - from, kind, rest, kept)
    end
  end

  # Frames that were answered already, with their answers, and those to be played.
  defp kept(log, number, kind, [obs | rest] = frames, done) do
    case Log.fetch(log, number) do
      {^kind, ^obs, answer} when answer != nil -> kept(log, number + 1, kind, rest, [answer | done])
      _ -> {Enum.reverse(done), frames}
    end
  end

  defp kept(_log, _number, _kind, [], done), do: {Enum.reverse(done), []}

  # Whether frames were played with these inputs, and none of these with others: then nothing is undone, whatever is
  # called. An action does not say what the outputs were.
  defp same?(log, number, [obs | _] = frames) do
    match?({_, ^obs, _}, Log.fetch(log, number)) and
      frames
      |> Enum.with_index(number)
      |> Enum.all?(fn {obs, number} -> number > log.last or match?({_, ^obs, _}, Log.fetch(log, number)) end)
  end

  defp other_call(number, kind) do
    {asked, played} = if kind == :step, do: {"no outputs can", "act"}, else: {"no action can", "step"}
    again = if kind == :step, do: "act/5 or resimulate_acts/5", else: "step/5 or resimulate/5"

    Error.new(
      :invalid_argument,
      "frame_number",
      "frame #{number} was played with these inputs by #{played}, so #{asked} be answered again, and the same inputs " <>
        "undo no frames: call #{again}"
    )
  end

  defp advance(state, from, back, kind, frames, kept) do
    case Player.play(state.session, back, kind, frames) do
      {:ok, answers} ->
        log = Log.put(state.log, from, Enum.zip_with(frames, answers, &{kind, &1, &2}))
        state = News.tell(%{state | log: log}, {:frames, from, Enum.map(frames, &{kind, &1, nil})})
        {{:ok, kept ++ answers}, state}

      {:error, %Error{kind: :limit_exceeded}} = error when not state.recorded ->
        case recorded(state, error) do
          {:ok, state} -> advance(state, from, back, kind, frames, kept)
          error -> {error, state}
        end

      {:error, %Error{} = error} ->
        {{:error, beyond_history(error, state, from, back)}, state}
    end
  end

  # The session's error counts frames back, which the fleet's caller did not.
  defp beyond_history(%Error{argument: argument} = error, %{log: %{history: history}} = state, from, back)
       when back > 0 and (argument == "frames_back" or (argument == "session" and history == 0)) do
    case States.recorded(state.session) do
      {:ok, recorded} ->
        text =
          "frame #{from} is further back than the session can go (history: #{history}); " <>
            "the earliest frame that can be played now is #{state.log.last + 1 - recorded}"

        Error.new(:limit_exceeded, "frame_number", text)

      {:error, _} ->
        error
    end
  end

  defp beyond_history(error, _state, _from, _back), do: error

  # With a session that can go back over the frames before those that it has played here. Not where the node has other weights by now:
  # then this agent will have a new session too.
  defp recorded(%{fleet: fleet, log: %{generation: generation} = log} = state, error) do
    with {place, ^generation} <- Devices.place(fleet, state.device, generation),
         {:ok, session, log} <- Player.build(log, place, state.options) do
      {:ok, %{state | session: session, log: log, recorded: true}}
    else
      {:error, _} = failed -> failed
      {_place, _other} -> error
    end
  end

  defp gap(last, from) do
    missing = if from == last + 2, do: "frame #{last + 1} is", else: "frames #{last + 1} to #{from - 1} are"

    Error.new(
      :missing_frames,
      "frame_number",
      "frame #{from} cannot be played yet: #{missing} missing (the last one was #{last})"
    )
  end

  defp too_far(first, from) do
    text = "frame #{from} is further back than what is kept of the agent, which begins with frame #{first}"
    Error.new(:limit_exceeded, "frame_number", text)
  end
end
