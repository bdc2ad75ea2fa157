defmodule ExPhil.Native.TestSupport.Properties do
  @moduledoc false
  # PropEr from Elixir: its generators and its runner are called as functions, because its macros are Erlang macros.
  # Tests that use it have @tag :property.

  def available?, do: Code.ensure_loaded?(:proper)

  @doc "An integer from `low` to `high`."
  def integer(low, high), do: apply(:proper_types, :integer, [low, high])

  @doc "A list whose elements come from `type`."
  def list(type), do: apply(:proper_types, :list, [type])

  @doc "One of these types."
  def one_of(types), do: apply(:proper_types, :oneof, [types])

  @doc "A tuple of these types."
  def tuple(types), do: apply(:proper_types, :tuple, [types])

  @doc """
  Raises unless `check` holds (is true, and raises nothing) for `runs` values of `type`; the message has the smallest
  value for which it does not.
  """
  def assert_property(type, runs, check) do
    property = apply(:proper, :forall, [type, &holds?(&1, check)])

    case apply(:proper, :quickcheck, [property, [:quiet, :long_result, {:numtests, runs}]]) do
      true ->
        true

      [counterexample] ->
        # Runs the check once more, outside PropEr, to get the failure.
        result = check.(counterexample)
        raise "does not hold for #{inspect(counterexample, limit: 50)}: got #{inspect(result)}"
    end
  end

  # Catches exceptions before PropEr does: its handler calls a function that Erlang no longer has.
  defp holds?(value, check) do
    check.(value) == true
  rescue
    _ -> false
  end
end
