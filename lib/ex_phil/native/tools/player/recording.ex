defmodule ExPhil.Native.Tools.Player.Recording do
  @moduledoc """
  The frames that a policy plays: one observation each, in arrival order, with the answers where they are known.

  A recording comes from a safetensors file with `obs` {count, d_input} in f32, and optionally `frame` {count} in s32
  (0, 1, 2, ... where it is left out) and `logits` {count, d_output} in f32. A frame number that was seen before is a
  rollback: the policy answers that frame again, with another observation, from the state that it had before it first
  stepped that frame.
  """

  alias ExPhil.Native.{Error, Safetensors}
  alias ExPhil.Native.Tools.Demo

  defstruct [:count, :d_input, :obs, :numbers, :logits, :depth]

  @type t :: %__MODULE__{
          count: non_neg_integer(),
          d_input: pos_integer(),
          obs: binary(),
          numbers: [integer()],
          logits: nil | binary(),
          depth: non_neg_integer()
        }

  @doc "Reads a recording from a safetensors file: `{:ok, recording}`, or `{:error, text}`, which says what is wrong with the file."
  @spec load(Path.t()) :: {:ok, t()} | {:error, String.t()}
  def load(path) do
    case Safetensors.read(path) do
      {:ok, tensors} -> from_tensors(tensors, path)
      {:error, %Error{} = error} -> {:error, Exception.message(error)}
    end
  end

  @doc """
  `count` generated frames of `d_input` numbers: those of `ExPhil.Native.Tools.Demo`, of which wider frames repeat the numbers and narrower
  ones have the first.
  """
  @spec generated(non_neg_integer(), pos_integer()) :: t()
  def generated(count, d_input \\ Demo.d_input()) do
    %{"obs" => {:f32, {^count, width}, obs}} = tensors = Demo.frames(count)
    copies = div(d_input - 1, width) + 1

    obs =
      for row <- rows(obs, 4 * width),
          into: <<>>,
          do: row |> :binary.copy(copies) |> binary_part(0, 4 * d_input)

    {:ok, recording} = from_tensors(%{tensors | "obs" => {:f32, {count, d_input}, obs}}, "generated")
    recording
  end

  @doc "The recording's first `count` frames, or all of them where it has fewer."
  @spec take(t(), non_neg_integer()) :: t()
  def take(%__MODULE__{count: all} = recording, count) when count >= all, do: recording

  def take(%__MODULE__{} = recording, count) do
    numbers = Enum.take(recording.numbers, count)
    %{recording | count: count, numbers: numbers, depth: depth(numbers)}
  end

  @doc "The observations in order: the frame's number and its `d_input` floats."
  @spec frames(t()) :: [{number :: integer(), obs :: binary()}]
  def frames(%__MODULE__{} = recording) do
    Enum.zip(recording.numbers, rows(recording.obs, 4 * recording.d_input))
  end

  @doc "The recorded answers in order, `nil` where the file has none."
  @spec logits(t()) :: nil | [binary()]
  def logits(%__MODULE__{logits: nil}), do: nil

  def logits(%__MODULE__{logits: logits, count: count} = recording) do
    logits |> rows(4 * d_output(recording)) |> Enum.take(count)
  end

  @doc "How many numbers a recorded answer has, `nil` where the file has none."
  @spec d_output(t()) :: nil | pos_integer()
  def d_output(%__MODULE__{logits: nil}), do: nil
  def d_output(%__MODULE__{logits: logits} = recording), do: div(byte_size(logits), 4 * all(recording))

  defp all(recording), do: div(byte_size(recording.obs), 4 * recording.d_input)

  defp rows(binary, bytes), do: for(<<row::binary-size(bytes) <- binary>>, do: row)

  defp from_tensors(tensors, path) do
    with {:ok, {count, d_input}, obs} <- obs(tensors),
         {:ok, numbers} <- numbers(tensors, count),
         {:ok, logits} <- logits(tensors, count) do
      recording = %__MODULE__{count: count, d_input: d_input, obs: obs, numbers: numbers, logits: logits}
      {:ok, %{recording | depth: depth(numbers)}}
    else
      {:error, reason} -> {:error, "#{path}: #{reason}"}
    end
  end

  defp obs(%{"obs" => {:f32, {count, d_input}, binary}}) when count > 0 and d_input > 0,
    do: {:ok, {count, d_input}, binary}

  defp obs(%{"obs" => {type, shape, _}}),
    do: {:error, "obs must be f32 {count, d_input} with at least one frame, got #{type} #{inspect(shape)}"}

  defp obs(_), do: {:error, "has no tensor obs"}

  defp numbers(%{"frame" => {:s32, {count}, binary}}, count),
    do: {:ok, for(<<number::32-signed-little <- binary>>, do: number)}

  defp numbers(%{"frame" => {type, shape, _}}, count),
    do: {:error, "frame must be s32 {#{count}}, as obs has #{count} rows; got #{type} #{inspect(shape)}"}

  defp numbers(_, count), do: {:ok, Enum.to_list(0..(count - 1)//1)}

  defp logits(%{"logits" => {:f32, {count, d_output}, binary}}, count) when d_output > 0, do: {:ok, binary}

  defp logits(%{"logits" => {type, shape, _}}, count),
    do:
      {:error,
       "logits must be f32 {#{count}, d_output}, as obs has #{count} rows; got #{type} #{inspect(shape)}"}

  defp logits(_, _), do: {:ok, nil}

  # The longest rollback of the recording: how many frames' snapshots a player must keep.
  defp depth(numbers) do
    {depth, _newest} =
      Enum.reduce(numbers, {0, nil}, fn
        number, {depth, newest} when newest == nil or number > newest -> {depth, number}
        number, {depth, newest} -> {max(depth, newest - number + 1), newest}
      end)

    depth
  end
end
