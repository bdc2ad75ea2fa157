defmodule ExPhil.Native.Options do
  @moduledoc false
  # Checked option lists: an unknown name is an error that lists the known ones, and each value has a reader
  # function. Every reader returns the value or raises ExPhil.Native.Error. Calls that return errors use
  # read/3, the others read!/3.

  import Bitwise

  alias ExPhil.Native.{Device, Error}

  @doc "Checks the names, then lets `reader` read the values. Raises the error of the first bad one."
  @spec read!(term(), [atom()], (keyword() -> value)) :: value when value: term()
  def read!(options, known, reader), do: reader.(names(options, known))

  @doc "As `read!/3`, but returns the error."
  @spec read(term(), [atom()], (keyword() -> value)) :: {:ok, value} | {:error, Error.t()} when value: term()
  def read(options, known, reader) do
    {:ok, read!(options, known, reader)}
  rescue
    error in Error -> {:error, error}
  end

  defp names(options, known) do
    if not Keyword.keyword?(options), do: invalid("options", "a keyword list", options)

    case Enum.find(options, fn {name, _} -> name not in known end) do
      nil -> options
      {name, _} -> unknown(name, known)
    end
  end

  defp unknown(name, known) do
    list = Enum.map_join(known, ", ", &inspect/1)
    raise Error.new(:invalid_argument, inspect(name), "unknown option #{inspect(name)}; known: #{list}")
  end

  @doc "One of `choices`."
  def one_of(options, name, choices) do
    value = Keyword.get(options, name, hd(choices))

    if value in choices,
      do: value,
      else: invalid(inspect(name), "one of #{Enum.map_join(choices, ", ", &inspect/1)}", value)
  end

  def boolean(options, name, default) do
    case Keyword.get(options, name, default) do
      value when is_boolean(value) -> value
      value -> invalid(inspect(name), "true or false", value)
    end
  end

  def positive_integer(options, name, default) do
    case Keyword.get(options, name, default) do
      value when is_integer(value) and value > 0 and value < 0x8000000000000000 -> value
      value -> invalid(inspect(name), "a positive integer", value)
    end
  end

  @doc "As `positive_integer/3`, but `nil` where it is not given."
  def optional_positive_integer(options, name) do
    case Keyword.get(options, name) do
      nil -> nil
      value when is_integer(value) and value > 0 and value < 0x8000000000000000 -> value
      value -> invalid(inspect(name), "a positive integer", value)
    end
  end

  @doc "As a float; `nil` where it is not given and the default is `nil`."
  def positive_float(options, name, default) do
    case Keyword.get(options, name, default) do
      nil when default == nil -> nil
      value when is_number(value) and value > 0 -> float(name, value)
      value -> invalid(inspect(name), "a positive number", value)
    end
  end

  @doc "`nil`, or {min, max} with min <= max, as floats."
  def range(options, name) do
    case Keyword.get(options, name) do
      nil -> nil
      {min, max} when is_number(min) and is_number(max) and min <= max -> {float(name, min), float(name, max)}
      value -> invalid(inspect(name), "{min, max} with min <= max", value)
    end
  end

  @doc "The backend and the index of its device that `:backend` and `:device` choose; see `ExPhil.Native.Device`."
  @spec place(keyword()) :: {Device.backend(), non_neg_integer()}
  def place(options) do
    case Device.choose(options[:backend], options[:device]) do
      {:ok, place} -> place
      {:error, error} -> raise error
    end
  end

  @doc "The same of a call that takes several devices: `:all`, or their indices."
  @spec places(keyword()) :: {Device.backend(), :all | [non_neg_integer()]}
  def places(options) do
    case Device.choose_several(options[:backend], options[:device]) do
      {:ok, places} -> places
      {:error, error} -> raise error
    end
  end

  @doc "An integer, 0 where it is not given: its low 64 bits."
  def seed(options, name \\ :seed) do
    case Keyword.get(options, name, 0) do
      value when is_integer(value) -> value &&& 0xFFFFFFFFFFFFFFFF
      value -> invalid(inspect(name), "an integer", value)
    end
  end

  def invalid(argument, expected, got), do: raise(Error.invalid(argument, expected, got))

  # An integer beyond the largest float raises an ArithmeticError.
  defp float(name, value) do
    value * 1.0
  rescue
    ArithmeticError -> invalid(inspect(name), "within the range of a float", value)
  end
end
