defmodule ExPhil.Native.Tools.Arguments do
  @moduledoc false
  # The command lines of the Mix tasks: switches only. Called by mix exphil.play and mix exphil.bench.

  @doc "The options of `args`, or a `Mix.Error` that names the problem and the help to read."
  @spec parse!([String.t()], keyword, String.t()) :: keyword
  def parse!(args, switches, task) do
    case OptionParser.parse(args, strict: switches) do
      {options, [], []} ->
        options

      {_, [extra | _], _} ->
        Mix.raise("unexpected argument #{inspect(extra)}; see mix help #{task}")

      {_, _, [{name, nil} | _]} ->
        Mix.raise("#{name} is not an option, or lacks its value; see mix help #{task}")

      {_, _, [{name, value} | _]} ->
        Mix.raise("#{name} does not take #{inspect(value)}; see mix help #{task}")
    end
  end
end
