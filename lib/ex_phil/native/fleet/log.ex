defmodule ExPhil.Native.Fleet.Log do
  @moduledoc false
  # What is kept of one agent so that it can be built again anywhere: exported states, and its frames by
  # number. The agent's owner and its copy on another node keep the same log; the owner's has the answers too.
  # Pure functions.
  #
  # Kept are the newest state from which `history` frames and more can be played again, the states after it,
  # every frame since, and the last `burn_in` frames at any time to which the agent can go back. So its size
  # is bounded by the time between two exported states.

  defstruct [:first, :last, :states, :history, :burn_in, :generation, frames: %{}]

  @typedoc "`obs` and a step's answer are f32 binaries; an action is an `ExPhil.Native.Policy.Action`."
  @type frame :: {kind :: :step | :act, obs :: binary(), answer :: nil | term()}

  @typedoc """
  `first` and `last` are the numbers of the frames kept; `states` are `{number, state}`, newest first: the state after that frame.
  `:new` is a new session that has played the kept frames up to there. `generation` counts the weights of `Fleet.update/2`.
  """
  @type t :: %__MODULE__{
          first: integer() | nil,
          last: integer() | nil,
          states: [{integer(), binary() | :new}] | nil,
          history: non_neg_integer(),
          burn_in: non_neg_integer(),
          generation: non_neg_integer(),
          frames: %{integer() => frame()}
        }

  @doc "The log of an agent that has no frame yet; `last` is nil until it has."
  @spec new(%{history: non_neg_integer(), burn_in: non_neg_integer()}, non_neg_integer()) :: t()
  def new(%{history: history, burn_in: burn_in}, generation),
    do: %__MODULE__{history: history, burn_in: burn_in, generation: generation}

  @doc "With the frames from `number` on. Frames that were there from that number on are forgotten first."
  @spec put(t(), integer(), [frame()]) :: t()
  def put(%{last: nil} = log, number, frames),
    do: put(%{log | first: number, last: number - 1, states: [{number - 1, :new}]}, number, frames)

  def put(log, number, frames) do
    log = forget(log, number)
    numbered = for {frame, index} <- Enum.with_index(frames, number), into: log.frames, do: {index, frame}
    trim(%{log | frames: numbered, last: log.last + length(frames)})
  end

  @doc "Without the frames from `number` on, and without the states after them."
  @spec forget(t(), integer()) :: t()
  def forget(%{last: last} = log, number) when number > last, do: log

  def forget(log, number) do
    states =
      case Enum.drop_while(log.states, fn {at, _} -> at >= number end) do
        # The session began with these frames; it began with fewer of them then.
        [] -> [{number - 1, :new}]
        states -> states
      end

    %{log | frames: Map.drop(log.frames, Enum.to_list(number..log.last)), last: number - 1, states: states}
  end

  @doc "With the state after the last frame."
  @spec put_state(t(), binary()) :: t()
  def put_state(log, state), do: trim(%{log | states: [{log.last, state} | log.states]})

  @doc """
  With other weights from here on. States of the old ones are worth nothing then: the agent goes on as a new session that has played
  the last `burn_in` frames.
  """
  @spec switch(t(), non_neg_integer()) :: t()
  def switch(%{last: nil} = log, generation), do: %{log | generation: generation}

  def switch(log, generation) do
    log = %{log | states: [{log.last, :new}], generation: generation}
    drop_before(log, log.last - log.burn_in + 1)
  end

  @doc "The frame of that number, or nil where it is not kept."
  @spec fetch(t(), integer()) :: frame() | nil
  def fetch(log, number), do: log.frames[number]

  @doc "The answers that were given, by the frames' numbers."
  @spec answers(t()) :: %{integer() => term()}
  def answers(log),
    do: for({number, {_, _, answer}} <- log.frames, answer != nil, into: %{}, do: {number, answer})

  @doc "With these answers, where a frame has none."
  @spec put_answers(t(), %{integer() => term()}) :: t()
  def put_answers(log, answers) do
    frames =
      Map.new(log.frames, fn
        {number, {kind, obs, nil}} -> {number, {kind, obs, answers[number]}}
        frame -> frame
      end)

    %{log | frames: frames}
  end

  @doc "The state to begin with, and the frames that it has to play to be where the agent is, in order."
  @spec replay(t()) :: {binary() | :new, [{integer(), frame()}]}
  def replay(%{last: nil}), do: {:new, []}

  def replay(log) do
    {at, state} = List.last(log.states)
    from = if state == :new, do: log.first, else: at + 1
    {state, for(number <- from..log.last//1, do: {number, Map.fetch!(log.frames, number)})}
  end

  defp trim(log) do
    {newer, rest} = Enum.split_while(log.states, fn {at, _} -> at > log.last - log.history end)

    case rest do
      [] ->
        log

      [{_, :new} = base | _] ->
        %{log | states: newer ++ [base]}

      [{at, _} = base | _] ->
        drop_before(%{log | states: newer ++ [base]}, min(at, log.last - log.burn_in - log.history) + 1)
    end
  end

  defp drop_before(%{first: first} = log, number) when number <= first, do: log

  defp drop_before(log, number),
    do: %{log | frames: Map.drop(log.frames, Enum.to_list(log.first..(number - 1))), first: number}
end
