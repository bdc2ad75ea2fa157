defmodule ExPhil.Native.Tools.Player.Verify do
  @moduledoc """
  Checks the answers of a play.

  They are compared with the recording's `logits`, or where it has none and no rollbacks, with one `Policy.prefill/2`
  of the same frames, which computes all frames in one pass. Recorded logits are those of `:f32` weights: a policy of another
  precision is always compared with its own prefill. The measure is the relative error of each frame, ||answer
  - expected|| / ||expected||, which must be at most `tolerance/0`. Every session must give the same bits, because all
  have the same frames.
  """

  alias ExPhil.Native.Policy
  alias ExPhil.Native.Tools.Player
  alias ExPhil.Native.Tools.Player.Recording

  @tolerance 1.0e-5

  defstruct [:against, frames: 0, worst: 0.0, worst_frame: nil, failed: 0]

  @typedoc """
  `against` says what the answers were compared with. `worst` is the largest relative error and `worst_frame` its
  index (`:invalid` where an answer has a NaN, an infinity or another size); `failed` counts the frames beyond the tolerance.
  """
  @type t :: %__MODULE__{
          against: :logits | :prefill | :nothing,
          frames: non_neg_integer(),
          worst: float() | :invalid,
          worst_frame: nil | non_neg_integer(),
          failed: non_neg_integer()
        }

  @doc "The largest relative error of a frame that passes."
  @spec tolerance() :: float()
  def tolerance, do: @tolerance

  @doc "Compares the answers in `result` with the recording's logits or, without them, with a prefill by `policy`."
  @spec verify(Player.result(), Policy.t(), Recording.t()) :: t()
  def verify(result, policy, recording) do
    case recording |> without_other_logits(policy) |> expected(policy) do
      {:nothing, _} -> %__MODULE__{against: :nothing}
      {against, rows} -> compare(result, rows, against)
    end
  end

  defp without_other_logits(recording, %{info: %{precision: precision}}) when precision != :f32,
    do: %{recording | logits: nil}

  defp without_other_logits(recording, _policy), do: recording

  defp expected(%Recording{logits: nil, depth: 0} = recording, policy) do
    obs = recording |> Recording.frames() |> Enum.map(&elem(&1, 1)) |> IO.iodata_to_binary()
    outs = Policy.prefill!(Policy.new_session!(policy), obs)
    bytes = div(byte_size(outs), recording.count)
    {:prefill, for(<<row::binary-size(bytes) <- outs>>, do: row)}
  end

  defp expected(%Recording{logits: nil}, _policy), do: {:nothing, []}
  defp expected(recording, _policy), do: {:logits, Recording.logits(recording)}

  defp compare(result, rows, against) do
    result.answers
    |> Enum.zip(rows)
    |> Enum.with_index()
    |> Enum.reduce(%__MODULE__{against: against}, fn {{answer, row}, index}, verify ->
      add(verify, index, error(answer, row, result.sessions))
    end)
  end

  defp add(verify, index, error) do
    verify = %{verify | frames: verify.frames + 1}
    # Atoms sort after numbers: :invalid is the worst of all.
    verify = if error > verify.worst, do: %{verify | worst: error, worst_frame: index}, else: verify
    if error > @tolerance, do: %{verify | failed: verify.failed + 1}, else: verify
  end

  # The error of the worst session. Usually all have the same bits, and one comparison is enough.
  defp error(answer, row, sessions) do
    bytes = div(byte_size(answer), sessions)

    for(<<one::binary-size(bytes) <- answer>>, do: one)
    |> Enum.uniq()
    |> Enum.map(&relative_error(&1, row))
    |> Enum.max()
  end

  @doc """
  ||answer - expected|| / ||expected|| of two f32 binaries; `:invalid` where a number is not finite or the sizes
  differ.

      iex> ExPhil.Native.Tools.Player.Verify.relative_error(<<3.0::float-32-little>>, <<2.0::float-32-little>>)
      0.5
  """
  @spec relative_error(binary(), binary()) :: float() | :invalid
  def relative_error(answer, expected) when byte_size(answer) != byte_size(expected), do: :invalid
  def relative_error(answer, expected), do: relative_error(answer, expected, 0.0, 0.0)

  defp relative_error(
         <<a::float-32-little, as::binary>>,
         <<e::float-32-little, es::binary>>,
         difference,
         norm
       ),
       do: relative_error(as, es, difference + (a - e) * (a - e), norm + e * e)

  defp relative_error(<<>>, <<>>, difference, _norm) when difference == 0.0, do: 0.0
  defp relative_error(<<>>, <<>>, difference, norm) when norm > 0.0, do: :math.sqrt(difference / norm)

  # A NaN or an infinity does not match a float pattern, and the relative error to an all-zero row is
  # undefined.
  defp relative_error(_, _, _, _), do: :invalid
end
