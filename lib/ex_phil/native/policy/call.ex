defmodule ExPhil.Native.Policy.Call do
  @moduledoc false
  # What the calls of a policy share: observations in any form in, answers in the same form out, the library's
  # errors as ExPhil.Native.Error. Used by Policy, Policy.Batches, Policy.States and Policy.Training.

  alias ExPhil.Native.{Error, Queue, Tensor}

  @expected "an f32 binary, an Nx tensor or {:f32, shape, binary}"

  @doc "The answer to `data`, a binary or a tensor: `call` gets the binary or `{:f32, shape, binary}`."
  def with_data(data, _argument, call) when is_binary(data), do: answer(call.(data))
  def with_data(data, argument, call), do: with_tensor(data, argument, @expected, call)

  @doc "As `with_data/3`, of a call whose answer is no tensor."
  def with_frames(data, _argument, call) when is_binary(data), do: answer(call.(data))

  def with_frames(data, argument, call) do
    with {:ok, plain, _form} <- Tensor.pack(data, argument, @expected), do: answer(call.(plain))
  end

  @doc """
  The answer to a tensor. Leading axes keep their names; the last axis becomes that of the outputs, and a window loses
  its seq.
  """
  def with_tensor(data, argument, expected, call) do
    with {:ok, plain, form} <- Tensor.pack(data, argument, expected),
         {:ok, out} <- call.(plain) do
      rank = tuple_size(elem(out, 1))
      {:ok, Tensor.unpack(out, form, fn names -> Enum.take(names, rank - 1) ++ [nil] end)}
    else
      {:error, reason} -> failed(reason)
    end
  end

  @doc "A function of the data that waits for a call which may be queued: `call` gets the data and the reference."
  def queued(call), do: fn data -> Queue.run(&call.(data, &1)) end

  def answer({:ok, _value} = ok), do: ok
  def answer({:error, reason}), do: failed(reason)

  @doc "The error of an `else` clause, which is the library's or already one of this project's."
  def failed(%Error{} = error), do: {:error, error}
  def failed(reason), do: {:error, Error.from_nif(reason)}

  def not_a(argument, other),
    do: {:error, Error.invalid(argument, "a #{argument} of ExPhil.Native.Policy", other)}
end
