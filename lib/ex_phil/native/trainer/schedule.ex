defmodule ExPhil.Native.Trainer.Schedule do
  @moduledoc false
  # The learning rate of each step of ExPhil.Native.Trainer; the options are documented there. A rate depends
  # on the step's number alone, so that a run that goes on has the rates that it would have had.

  alias ExPhil.Native.Options

  @doc "Reads `:learning_rate`, `:schedule`, `:warm_up` and `:least_rate`."
  @spec read!(keyword()) :: map()
  def read!(options) do
    rate = Options.positive_float(options, :learning_rate, 1.0e-3)
    schedule = schedule!(Keyword.get(options, :schedule, :constant))
    warm_up = warm_up!(Keyword.get(options, :warm_up, 0))
    %{rate: rate, schedule: schedule, warm_up: warm_up, least: least!(options[:least_rate], schedule, rate)}
  end

  defp schedule!(:constant), do: :constant
  defp schedule!({:cosine, steps} = schedule) when is_integer(steps) and steps > 0, do: schedule

  defp schedule!(other),
    do: Options.invalid(":schedule", ":constant or {:cosine, steps} with a positive number of steps", other)

  defp warm_up!(steps) when is_integer(steps) and steps >= 0, do: steps
  defp warm_up!(other), do: Options.invalid(":warm_up", "a number of steps", other)

  defp least!(nil, _schedule, _rate), do: 0.0

  defp least!(least, :constant, _rate),
    do: Options.invalid(":least_rate", "given with {:cosine, steps}", least)

  defp least!(least, _cosine, rate) when is_number(least) and least >= 0 and least <= rate, do: least * 1.0
  defp least!(least, _cosine, _rate), do: Options.invalid(":least_rate", "from 0 to :learning_rate", least)

  @doc "The rate of a step, which count from 1. Above 0, because AdamW takes no other."
  @spec rate(map(), pos_integer()) :: float()
  def rate(%{warm_up: warm_up} = schedule, step) do
    rate = planned(schedule, step)
    max(if(step < warm_up, do: rate * step / warm_up, else: rate), 1.0e-30)
  end

  defp planned(%{schedule: :constant, rate: rate}, _step), do: rate

  # The first step has nearly the whole rate, the last one and all after it the least.
  defp planned(%{schedule: {:cosine, steps}, rate: rate, least: least}, step) do
    done = min(step, steps) / steps
    least + (rate - least) * 0.5 * (1 + :math.cos(:math.pi() * done))
  end
end
