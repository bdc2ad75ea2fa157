defmodule ExPhil.Native.Trainer.Curve do
  @moduledoc false
  # The curve of the loss as CSV and SVG. Entries as in ExPhil.Native.Trainer, the last first.

  alias ExPhil.Native.{Error, Gnuplot}

  @doc "A line for each step."
  @spec csv([tuple()], [tuple()]) :: String.t()
  def csv(history, evaluations) do
    held_out = Map.new(evaluations)

    lines =
      for {step, loss, rate, norm} <- Enum.reverse(history),
          do: "#{step},#{loss},#{rate},#{norm},#{held_out[step]}\n"

    IO.iodata_to_binary(["step,loss,learning_rate,norm,held_out\n", lines])
  end

  @doc "Drawn by gnuplot."
  @spec svg([tuple()], [tuple()]) :: {:ok, String.t()} | {:error, Error.t()}
  def svg([], _evaluations),
    do: {:error, Error.new(:unsupported, "trainer", "the trainer has no step to draw yet")}

  def svg(history, evaluations) do
    losses = for {step, loss, _, _} <- Enum.reverse(history), do: {step, loss}
    held_out = for {step, loss} <- Enum.reverse(evaluations), do: {step, loss}
    lines = [{"training loss", losses}] ++ if(held_out == [], do: [], else: [{"held out", held_out}])

    with :ok <- gnuplot() do
      case Gnuplot.lines(lines, "step", "loss") do
        {:ok, svg} -> {:ok, svg}
        {:error, text} -> {:error, Error.new(:internal, "", text)}
      end
    end
  end

  @doc "Raises where the curve cannot be drawn, before a long run rather than behind it."
  @spec require_gnuplot!() :: :ok
  def require_gnuplot! do
    with {:error, error} <- gnuplot(), do: raise(%{error | argument: ":svg"})
  end

  defp gnuplot do
    if Gnuplot.available?(),
      do: :ok,
      else:
        {:error,
         Error.new(
           :unsupported,
           "",
           "the curve is drawn by gnuplot, which was not found; #{Gnuplot.remedy()}"
         )}
  end

  @doc "Writes a file."
  @spec write!(Path.t(), String.t(), String.t()) :: :ok
  def write!(path, argument, contents) do
    with {:error, posix} <- File.write(path, contents) do
      raise Error.not_written(argument, path, posix)
    end
  end
end
