defmodule ExPhil.Native.Fleet.Play do
  @moduledoc false
  # A call that plays frames of an agent: its arguments, the call, and the answers in the form of the frames.
  # Callers: ExPhil.Native.Fleet.

  alias ExPhil.Native.{Error, Options}
  alias ExPhil.Native.Fleet.Caller

  @timeout 5000

  @doc "The answers to frames, which are a binary or {type, shape, binary}: one where `how_many` is :one, else a list of them."
  def run(fleet, key, number, {kind, frames, how_many}, options) do
    begin = System.monotonic_time()

    with {:ok, timeout} <- timeout(options),
         :ok <- number(number),
         {:ok, binary} <- plain(frames, how_many),
         {:ok, answers} <- Caller.call(fleet, key, {:play, number, kind, binary, how_many}, true, timeout) do
      Caller.count(fleet, length(answers), System.monotonic_time() - begin)
      {:ok, answers}
    end
  end

  defp plain(binary, _how_many) when is_binary(binary), do: {:ok, binary}
  defp plain({:f32, {_}, binary}, :one), do: {:ok, binary}
  defp plain({:f32, {_, _}, binary}, :many), do: {:ok, binary}
  defp plain(other, :one), do: {:error, Error.invalid("obs", "f32 of shape {d_input}", other)}
  defp plain(other, :many), do: {:error, Error.invalid("frames", "f32 of shape {seq, d_input}", other)}

  @doc "Outputs in the form of the frames."
  def like(binary, outs) when is_binary(binary), do: IO.iodata_to_binary(outs)
  def like({_, {_}, _}, [outs]), do: {:f32, {div(byte_size(outs), 4)}, outs}
  def like({_, {_, _}, _}, []), do: {:f32, {0, 0}, <<>>}

  def like({_, {_, _}, _}, outs),
    do: {:f32, {length(outs), div(byte_size(hd(outs)), 4)}, IO.iodata_to_binary(outs)}

  defp number(number) when is_integer(number), do: :ok
  defp number(other), do: {:error, Error.invalid("frame_number", "an integer", other)}

  @doc "The timeout of a call, which is its only option."
  def timeout(options) do
    Options.read(options, [:timeout], &Options.positive_integer(&1, :timeout, @timeout))
  end
end
