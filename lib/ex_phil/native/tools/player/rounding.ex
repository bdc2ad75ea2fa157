defmodule ExPhil.Native.Tools.Player.Rounding do
  @moduledoc """
  What rounded weights change in the answers of a play: the error that they add, and the share of frames that a player
  would answer in the same way.

  A frame is answered in the same way where every group of outputs has its largest entry at the same place. In a binary group,
  a group of one output and a group named `:buttons`, each output is a decision of its own: there its sign is compared.
  """

  alias ExPhil.Native.Loss
  alias ExPhil.Native.Tools.Player

  @enforce_keys [:against, :frames, :groups, :error, :worst, :worst_frame, :same]
  defstruct @enforce_keys

  @typedoc """
  `against` says where the exact answers are from: the recording's logits or the same policy in `:f32`. `error` is
  ||answers - exact|| / ||exact|| over all frames together, `worst` that of the worst frame and `worst_frame` its index. `same`
  counts the frames that are answered in the same way, in all `groups`.
  """
  @type t :: %__MODULE__{
          against: :logits | :f32,
          frames: pos_integer(),
          groups: pos_integer(),
          error: float(),
          worst: float(),
          worst_frame: non_neg_integer(),
          same: non_neg_integer()
        }

  @doc """
  Compares the answers of the first session with the exact ones, one binary for each frame. `groups` are those of
  `ExPhil.Native.Policy.info/1`; where there are none, all outputs are one group.
  """
  @spec compare(Player.result(), [binary()], [Loss.group()], :logits | :f32) :: t()
  def compare(result, exact, groups, against) do
    frames =
      for {answer, expected} <- Enum.zip(result.answers, exact) do
        {own, expected} = {floats(binary_part(answer, 0, byte_size(expected))), floats(expected)}
        {squares(own, expected), squares(expected), decisions(own, groups) == decisions(expected, groups)}
      end

    errors = for {difference, size, _} <- frames, do: ratio(difference, size)
    worst = Enum.max(errors)

    %__MODULE__{
      against: against,
      frames: length(frames),
      groups: max(length(groups), 1),
      error: ratio(sum(frames, 0), sum(frames, 1)),
      worst: worst,
      worst_frame: Enum.find_index(errors, &(&1 == worst)),
      same: Enum.count(frames, &elem(&1, 2))
    }
  end

  @doc """
  The decisions that a frame's outputs stand for.

      iex> ExPhil.Native.Tools.Player.Rounding.decisions([1.0, 3.0, 2.0], [])
      [1]
      iex> ExPhil.Native.Tools.Player.Rounding.decisions([1.0, 3.0, -2.0, 0.5], stick: 0..1, a: 2..2, b: 3..3)
      [1, false, true]
      iex> ExPhil.Native.Tools.Player.Rounding.decisions([1.0, 3.0, -2.0, 0.5], [{:stick, 0..1}, {:keys, 2..3, :binary}])
      [1, false, true]
  """
  @spec decisions([float()], [Loss.group()]) :: [non_neg_integer() | boolean()]
  def decisions(outs, []), do: decisions(outs, all: 0..(length(outs) - 1))

  def decisions(outs, groups) do
    Enum.flat_map(groups, fn group ->
      own = Enum.slice(outs, elem(group, 1))
      if separate?(group) or match?([_], own), do: Enum.map(own, &(&1 > 0.0)), else: [largest(own)]
    end)
  end

  defp separate?({_name, _range, :binary}), do: true
  defp separate?({name, _range}), do: name == :buttons

  defp largest(values), do: values |> Enum.with_index() |> Enum.max_by(&elem(&1, 0)) |> elem(1)
  defp floats(binary), do: for(<<v::float-32-little <- binary>>, do: v)
  defp squares(values), do: Enum.reduce(values, 0.0, &(&2 + &1 * &1))
  defp squares(p, q), do: p |> Enum.zip(q) |> Enum.reduce(0.0, fn {a, b}, s -> s + (a - b) * (a - b) end)
  defp sum(frames, at), do: frames |> Enum.map(&elem(&1, at)) |> Enum.sum()
  defp ratio(_, size) when size == 0.0, do: 0.0
  defp ratio(difference, size), do: :math.sqrt(difference / size)
end
