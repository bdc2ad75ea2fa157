defmodule ExPhil.Native.Raising do
  @moduledoc false
  # Functions that can fail in use, and their versions that raise. In a module with
  # `use ExPhil.Native.Raising`
  #
  #     @doc "..."
  #     fallible load(path :: Path.t(), options :: keyword() \\ []) :: t()
  #     def load(path, options \\ []), do: ...
  #
  # is the @spec of load/2, and where no argument has a default its head, so that the documentation shows
  # those names whatever the clauses match. load/2 returns `{:ok, t()} | {:error, Error.t()}`, and defines
  # load!/2, with its documentation and its @spec, which returns the value or raises the error. A function
  # without a value, `:: :ok`, returns `:ok`. The documentation of load!/2 begins as load/2's does, up to its
  # paragraph "Returns ...", which every one has.

  defmacro __using__(_options) do
    quote do
      import ExPhil.Native.Raising, only: [fallible: 1]
      Module.register_attribute(__MODULE__, :fallible, accumulate: true)
      @before_compile ExPhil.Native.Raising
    end
  end

  defmacro fallible({:"::", _, [{name, _, arguments}, value]}) do
    {names, types, _parameters} = arguments |> Enum.map(&argument/1) |> unzip()
    # A head with defaults is the module's own.
    defaults? = Enum.any?(arguments, &match?({:\\, _, _}, &1))
    head = if not defaults?, do: quote(do: def(unquote(name)(unquote_splicing(names))))

    quote do
      # Before the head, which uses @doc up.
      @fallible {unquote(Macro.escape({name, arguments, value})), Module.get_attribute(__MODULE__, :doc)}
      @spec unquote(name)(unquote_splicing(types)) :: unquote(returned(value))
      unquote(head)
    end
  end

  defmacro __before_compile__(env) do
    env.module |> Module.get_attribute(:fallible) |> Enum.reverse() |> Enum.map(&raising/1)
  end

  defp raising({{name, arguments, value}, {_line, doc}}) do
    {names, types, parameters} = arguments |> Enum.map(&argument/1) |> unzip()
    bang = :"#{name}!"

    quote do
      @doc unquote(text(doc, "`#{name}/#{length(arguments)}`", value))
      @spec unquote(bang)(unquote_splicing(types)) :: unquote(value)
      def unquote(bang)(unquote_splicing(parameters)),
        do: unquote(__MODULE__).ok!(unquote(name)(unquote_splicing(names)))
    end
  end

  defp text(doc, call, value) do
    [does | _] = String.split(doc, "\n\nReturns ", parts: 2)
    type = value |> Macro.to_string() |> String.replace(~r/\s+/, " ")
    returned = if value == :ok, do: "`:ok`", else: "the value itself, `#{type}`"

    """
    #{String.trim(does)}

    Returns #{returned}, and raises the `ExPhil.Native.Error` that #{call} returns, whose arguments and options it has.
    """
  end

  # {the variable, `name :: type`, the parameter of a definition} of `name :: type` or
  # `name :: type \\ default`.
  defp argument({:\\, _, [typed, default]}) do
    {variable, typed, _} = argument(typed)
    {variable, typed, quote(do: unquote(variable) \\ unquote(default))}
  end

  defp argument({:"::", _, [{name, _, _}, _type]} = typed) do
    variable = Macro.var(name, nil)
    {variable, typed, variable}
  end

  defp unzip(triples),
    do: {Enum.map(triples, &elem(&1, 0)), Enum.map(triples, &elem(&1, 1)), Enum.map(triples, &elem(&1, 2))}

  defp returned(:ok), do: quote(do: :ok | {:error, ExPhil.Native.Error.t()})
  defp returned(value), do: quote(do: {:ok, unquote(value)} | {:error, ExPhil.Native.Error.t()})

  @doc "The value, or the error raised."
  def ok!({:ok, value}), do: value
  def ok!(:ok), do: :ok
  def ok!({:error, error}), do: raise(error)
end
