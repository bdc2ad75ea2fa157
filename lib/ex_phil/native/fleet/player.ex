defmodule ExPhil.Native.Fleet.Player do
  @moduledoc false
  # An agent's session: new, played, and built again from a log with the bits that it had.

  alias ExPhil.Native.Fleet.{Devices, Log}
  alias ExPhil.Native.{Error, Policy}

  @type answers :: [binary() | Policy.Action.t()]

  @doc """
  A session that is where the log ends, and the log with an answer to each frame that was played for it. With `recorded` it can go back over
  the last frames as far as its history says; without, steps are played in one pass, which takes a third to two thirds of the time.
  """
  @spec build(Log.t(), Devices.place(), keyword(), boolean()) ::
          {:ok, Policy.session(), Log.t()} | {:error, Error.t()}
  def build(log, place, options, recorded \\ true) do
    {state, frames} = Log.replay(log)

    with {:ok, session} <- Devices.new_session(place, options),
         {:ok, session} <- import_state(session, state),
         {:ok, answers} <- replay(session, frames, log, recorded) do
      numbers = for {number, _} <- frames, do: number
      {:ok, session, Log.put_answers(log, Map.new(Enum.zip(numbers, answers)))}
    end
  end

  @doc """
  The answers to these frames, after going back `back` frames. One frame that follows is `Policy.step/2` or `act/2`; anything else is one
  `resimulate`, which changes nothing where it fails.
  """
  @spec play(Policy.session(), non_neg_integer(), :step | :act, [binary()]) ::
          {:ok, answers()} | {:error, Error.t()}
  def play(session, 0, :step, [obs]), do: one(Policy.step(session, obs))
  def play(session, 0, :act, [obs]), do: one(Policy.act(session, obs))

  def play(session, back, :act, frames),
    do: Policy.resimulate_acts(session, back, IO.iodata_to_binary(frames))

  def play(session, back, :step, frames) do
    with {:ok, outs} <- Policy.resimulate(session, back, IO.iodata_to_binary(frames)),
         do: {:ok, split(outs, length(frames))}
  end

  @doc "A binary of `count` equal parts as a list of them."
  @spec split(binary(), non_neg_integer()) :: [binary()]
  def split(_binary, 0), do: []

  def split(binary, count) do
    size = div(byte_size(binary), count)
    for <<part::binary-size(size) <- binary>>, do: part
  end

  defp one({:ok, answer}), do: {:ok, [answer]}
  defp one(error), do: error

  defp import_state(session, :new), do: {:ok, session}
  defp import_state(session, state), do: Policy.import_state(session, state)

  # The last `history` frames are recorded by the session, as they were when they were played: it can go back
  # over them. Frames before those go the fastest way.
  defp replay(session, frames, %{last: last, history: history}, recorded) do
    {early, recent} = Enum.split_while(frames, fn {number, _} -> not recorded or number <= last - history end)

    with {:ok, first} <- in_runs(early, &early(session, history, &1, &2)),
         {:ok, rest} <- in_runs(recent, &chunks(session, history, &1, &2)),
         do: {:ok, first ++ rest}
  end

  # `play` gets the frames of one kind that follow each other.
  defp in_runs(frames, play) do
    frames
    |> Enum.chunk_by(fn {_, {kind, _, _}} -> kind end)
    |> each(fn [{_, {kind, _, _}} | _] = run -> play.(kind, for({_, {_, obs, _}} <- run, do: obs)) end)
  end

  defp early(session, _history, :step, frames) do
    with {:ok, outs} <- Policy.prefill(session, IO.iodata_to_binary(frames)),
         do: {:ok, split(outs, length(frames))}
  end

  defp early(session, history, :act, frames), do: chunks(session, history, :act, frames)

  # A session without history has no call for several frames with an action each.
  defp chunks(session, history, kind, frames),
    do: frames |> Enum.chunk_every(max(history, 1)) |> each(&play(session, 0, kind, &1))

  defp each(parts, play) do
    parts
    |> Enum.reduce_while([], fn part, done ->
      case play.(part) do
        {:ok, answers} -> {:cont, [answers | done]}
        {:error, _} = error -> {:halt, error}
      end
    end)
    |> case do
      {:error, _} = error -> error
      done -> {:ok, done |> Enum.reverse() |> Enum.concat()}
    end
  end
end
