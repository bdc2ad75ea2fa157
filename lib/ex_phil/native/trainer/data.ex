defmodule ExPhil.Native.Trainer.Data do
  @moduledoc false
  # Sequences of ExPhil.Native.Trainer: checked once, drawn and cut into pieces, and padded to batches. Pure.
  #
  # A piece is {sequence, first, length}: frames [first, first + length) of it.

  alias ExPhil.Native.{Error, Options, Tensor}

  @enforce_keys [:sequences, :frame_bytes, :target_bytes, :types, :widths]
  defstruct @enforce_keys

  @type sequence :: %{frames: binary(), targets: binary(), mask: nil | binary(), count: pos_integer()}
  @type piece :: {sequence(), first :: non_neg_integer(), length :: pos_integer()}
  @type t :: %__MODULE__{
          sequences: tuple(),
          frame_bytes: pos_integer(),
          target_bytes: pos_integer(),
          types: {:f32, :s32 | :f32},
          widths: {pos_integer(), pos_integer()}
        }
  @typedoc "Tensors {n, seq, _}, and a mask {n, seq} where a frame has no loss."
  @type batch :: {Tensor.plain(), Tensor.plain(), nil | Tensor.plain()}

  @doc "Checks the sequences: those of `argument` in errors."
  @spec read!(term(), String.t(), map()) :: t()
  def read!([_ | _] = sequences, argument, options) do
    {type, width} = targets_of(options)

    data = %__MODULE__{
      sequences: {},
      frame_bytes: 4 * options.d_input,
      target_bytes: 4 * width,
      types: {:f32, type},
      widths: {options.d_input, width}
    }

    read =
      for {sequence, number} <- Enum.with_index(sequences) do
        read_sequence!(sequence, "sequence #{number} of #{argument}", argument, data)
      end

    %{data | sequences: List.to_tuple(read)}
  end

  def read!(other, argument, _options),
    do:
      Options.invalid(argument, "a list of at least one {frames, targets} or {frames, targets, mask}", other)

  defp targets_of(%{loss: {:cross_entropy, _groups, columns}}), do: {:s32, columns}
  defp targets_of(%{loss: :mean_squared_error, d_output: d_output}), do: {:f32, d_output}

  defp read_sequence!({frames, targets}, name, argument, data),
    do: read_sequence!({frames, targets, nil}, name, argument, data)

  defp read_sequence!({frames, targets, mask}, name, argument, %{types: {_, type}, widths: {d_input, width}}) do
    {count, frames} = read_frames!(frames, d_input, name, argument)

    %{
      count: count,
      frames: frames,
      targets: read_tensor!(targets, type, {count, width}, "the targets of #{name}", argument),
      mask: mask && read_tensor!(mask, :s32, {count}, "the mask of #{name}", argument)
    }
  end

  defp read_sequence!(other, name, argument, _data) do
    got = Error.invalid(name, "{frames, targets} or {frames, targets, mask}", other)
    raise %{got | argument: argument}
  end

  defp read_frames!(frames, d_input, name, argument) do
    case packed!(frames, :f32, argument) do
      {:f32, {count, ^d_input}, binary} when count > 0 and byte_size(binary) == 4 * count * d_input ->
        {count, binary}

      other ->
        refuse!("the frames of #{name}", "f32 of the shape {seq, #{d_input}}", other, argument)
    end
  end

  defp read_tensor!(tensor, type, shape, name, argument) do
    bytes = 4 * (shape |> Tuple.to_list() |> Enum.product())

    case packed!(tensor, type, argument) do
      {^type, ^shape, binary} when byte_size(binary) == bytes -> binary
      other -> refuse!(name, "#{type} of the shape #{inspect(shape)}", other, argument)
    end
  end

  defp packed!(tensor, type, argument), do: tensor |> Tensor.pack!(argument, [type]) |> elem(0)

  defp refuse!(name, expected, got, argument),
    do: raise(%{Error.invalid(name, expected, got) | argument: argument})

  @doc "All sequences, whole."
  @spec all(t()) :: [piece()]
  def all(data), do: data.sequences |> Tuple.to_list() |> Enum.map(&{&1, 0, &1.count})

  @doc "The pieces of one step: they depend on the data, the seed and the step's number alone."
  @spec draw(t(), map(), pos_integer()) :: [piece()]
  def draw(data, %{batch: count, seq: seq, seed: seed}, step) do
    ends = ends(data, seq)
    places = elem(ends, tuple_size(ends) - 1)
    random = :rand.seed_s(:exsss, {seed, step, 0})

    {pieces, _random} =
      Enum.map_reduce(1..count, random, fn _, random ->
        {place, random} = :rand.uniform_s(places, random)
        {piece(data, ends, place - 1, seq), random}
      end)

    pieces
  end

  # For each sequence, how many places there are in it and in those before it.
  defp ends(data, seq) do
    data.sequences |> Tuple.to_list() |> Enum.scan(0, &(&2 + places(&1, seq))) |> List.to_tuple()
  end

  defp places(_sequence, nil), do: 1
  defp places(%{count: count}, seq), do: max(count - seq + 1, 1)

  defp piece(data, ends, place, seq) do
    index = search(ends, place, 0, tuple_size(ends) - 1)
    sequence = elem(data.sequences, index)
    first = place - if(index == 0, do: 0, else: elem(ends, index - 1))
    if seq == nil, do: {sequence, 0, sequence.count}, else: {sequence, first, min(seq, sequence.count)}
  end

  # The first sequence whose end is behind the place.
  defp search(_ends, _place, low, high) when low == high, do: low

  defp search(ends, place, low, high) do
    middle = div(low + high, 2)

    if elem(ends, middle) > place,
      do: search(ends, place, low, middle),
      else: search(ends, place, middle + 1, high)
  end

  @doc "All sequences in pieces of `seq` frames, the last of each shorter; whole without `seq`."
  @spec pieces(t(), map()) :: [piece()]
  def pieces(data, %{seq: seq}) do
    for %{count: count} = sequence <- Tuple.to_list(data.sequences),
        first <- Enum.take_every(0..(count - 1), seq || count),
        do: {sequence, first, min(seq || count, count - first)}
  end

  @doc "The pieces as one batch, padded to the longest with zeros that the mask leaves out."
  @spec batch([piece()], t()) :: batch()
  def batch(pieces, %{types: {_, type}, widths: {d_input, width}} = data) do
    seq = pieces |> Enum.map(&elem(&1, 2)) |> Enum.max()
    shape = {length(pieces), seq}
    frames = padded(pieces, & &1.frames, data.frame_bytes, seq)
    targets = padded(pieces, & &1.targets, data.target_bytes, seq)
    masked? = Enum.any?(pieces, fn {sequence, _, length} -> length < seq or sequence.mask != nil end)
    mask = if masked?, do: {:s32, shape, padded(pieces, &mask/1, 4, seq)}

    {{:f32, Tuple.insert_at(shape, tuple_size(shape), d_input), frames},
     {type, Tuple.insert_at(shape, tuple_size(shape), width), targets}, mask}
  end

  defp mask(%{mask: nil, count: count}), do: :binary.copy(<<1::32-little>>, count)
  defp mask(%{mask: mask}), do: mask

  defp padded(pieces, part, bytes, seq) do
    for {sequence, first, length} <- pieces, into: <<>> do
      <<binary_part(part.(sequence), first * bytes, length * bytes)::binary,
        0::size((seq - length) * bytes * 8)>>
    end
  end

  @doc "The outputs of a batch without those of its padding."
  @spec unpad(binary(), [piece()], pos_integer()) :: iodata()
  def unpad(outs, pieces, d_output) do
    seq = div(byte_size(outs), 4 * d_output * length(pieces))

    for {{_sequence, _first, length}, index} <- Enum.with_index(pieces),
        do: binary_part(outs, 4 * d_output * seq * index, 4 * d_output * length)
  end

  @doc "Outputs, targets and mask of many batches as one, a row for each frame."
  @spec gather([{iodata(), [piece()]}], t(), pos_integer()) :: batch()
  def gather(batches, %{types: {_, type}, widths: {_, width}} = data, d_output) do
    pieces = Enum.flat_map(batches, &elem(&1, 1))
    rows = pieces |> Enum.map(&elem(&1, 2)) |> Enum.sum()

    part = fn part, bytes ->
      for {sequence, first, length} <- pieces,
          into: <<>>,
          do: binary_part(part.(sequence), first * bytes, length * bytes)
    end

    outs = batches |> Enum.map(&elem(&1, 0)) |> IO.iodata_to_binary()
    masked? = Enum.any?(pieces, fn {sequence, _, _} -> sequence.mask != nil end)
    mask = if masked?, do: {:s32, {rows}, part.(&mask/1, 4)}
    {{:f32, {rows, d_output}, outs}, {type, {rows, width}, part.(& &1.targets, data.target_bytes)}, mask}
  end
end
