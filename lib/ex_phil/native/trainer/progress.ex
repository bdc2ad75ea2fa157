defmodule ExPhil.Native.Trainer.Progress do
  @moduledoc false
  # The line that ExPhil.Native.Trainer.fit/3 prints and overwrites.

  @bar 30
  @every_ms 100

  @doc "nil where nothing is printed."
  @spec start(boolean(), non_neg_integer()) :: nil | map()
  def start(true, steps) when steps > 0,
    do: %{steps: steps, begin: now(), shown: :counters.new(1, [])}

  def start(_print, _steps), do: nil

  @doc "After step `number` of this run: at most ten times a second, and after the last."
  @spec show(nil | map(), pos_integer(), ExPhil.Native.Trainer.t()) :: :ok
  def show(nil, _number, _trainer), do: :ok

  def show(%{steps: steps, begin: begin, shown: shown}, number, trainer) do
    elapsed = now() - begin

    if number == steps or elapsed - :counters.get(shown, 1) >= @every_ms do
      :counters.put(shown, 1, elapsed)
      IO.write("\r" <> line(number, steps, elapsed, trainer))
    end

    :ok
  end

  defp line(number, steps, elapsed, trainer) do
    done = div(@bar * number, steps)
    bar = String.duplicate("#", done) <> String.duplicate(".", @bar - done)
    [{_, loss, rate, _} | _] = trainer.history

    held_out =
      case trainer.evaluations do
        [{_, held_out} | _] -> "  held out #{text(held_out)}"
        [] -> ""
      end

    speed = :erlang.float_to_binary(1000 * number / max(elapsed, 1), decimals: 1)
    rate = :erlang.float_to_binary(rate, [{:scientific, 1}])
    "[#{bar}] #{number}/#{steps}  loss #{text(loss)}#{held_out}  rate #{rate}  #{speed} steps/s "
  end

  defp text(loss), do: :erlang.float_to_binary(loss, decimals: 4)

  @doc "Ends the line."
  @spec stop(nil | map()) :: :ok
  def stop(nil), do: :ok
  def stop(_progress), do: IO.write("\n")

  defp now, do: System.monotonic_time(:millisecond)
end
