defmodule ExPhil.Native.Trainer.Lanes do
  @moduledoc false
  # Training from carried states (`carry: true` of ExPhil.Native.Trainer): `batch` lanes, of which each goes
  # through one sequence after another, `seq` frames at a step. A lane that begins a sequence begins with a
  # new agent's state, and goes on with the state in which its last excerpt ended. Pure but for the policy's
  # first state, which the caller passes.
  #
  # `places` has {sequence, next frame} for each lane; `state` is that after the last step, as
  # Policy.forward/3 returns it.

  alias ExPhil.Native.Trainer.Data

  @enforce_keys [:data, :places, :state]
  defstruct @enforce_keys

  @type state :: ExPhil.Native.Policy.state()
  @type t :: %__MODULE__{data: binary(), places: [{non_neg_integer(), non_neg_integer()}], state: state()}

  @doc "What a run must have in common with the one before it to go on in its lanes."
  @spec fingerprint(Data.t()) :: binary()
  def fingerprint(data) do
    parts = for sequence <- Tuple.to_list(data.sequences), do: :erlang.md5(sequence.frames)
    Base.encode16(:erlang.md5(parts))
  end

  @doc """
  The places of the step's excerpts, and the excerpts. `lanes` are those of the step before it; nil where there is none with the same
  data. Which sequence a lane begins depends on the seed, the step's number and the lane alone.
  """
  @spec draw(Data.t(), map(), pos_integer(), nil | t()) ::
          {[{non_neg_integer(), non_neg_integer()}], [Data.piece()]}
  def draw(data, %{batch: batch, seq: seq, seed: seed}, step, lanes) do
    places = if lanes, do: lanes.places, else: List.duplicate(nil, batch)
    random = :rand.seed_s(:exsss, {seed, step, 0})

    {places, _random} =
      Enum.map_reduce(places, random, fn place, random ->
        {index, random} = :rand.uniform_s(tuple_size(data.sequences), random)
        {if(ended?(place, data), do: {index - 1, 0}, else: place), random}
      end)

    {places,
     for {index, first} <- places do
       sequence = elem(data.sequences, index)
       {sequence, first, min(seq, sequence.count - first)}
     end}
  end

  defp ended?(nil, _data), do: true
  defp ended?({index, first}, data), do: first >= elem(data.sequences, index).count

  @doc "The states with which the excerpts begin. `first` is a new agent's."
  @spec initial_state([{non_neg_integer(), non_neg_integer()}], nil | t(), state()) :: state()
  def initial_state(places, lanes, first) do
    Map.new(first, fn {name, {:f32, shape, new}} ->
      bytes = byte_size(new)
      old = if lanes, do: lanes.state[name] |> elem(2)

      rows =
        for {{_index, frame}, lane} <- Enum.with_index(places),
            into: <<>>,
            do: if(frame == 0, do: new, else: binary_part(old, lane * bytes, bytes))

      {name, {:f32, put_elem(shape, 0, length(places)), rows}}
    end)
  end

  @doc "The lanes after the step."
  @spec next(binary(), [{non_neg_integer(), non_neg_integer()}], pos_integer(), state()) :: t()
  def next(data, places, seq, state),
    do: %__MODULE__{data: data, places: for({index, first} <- places, do: {index, first + seq}), state: state}
end
