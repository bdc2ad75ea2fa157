defmodule ExPhil.Native.Raising do
  @moduledoc false
  # The versions of functions that raise. In a module with load/2, which returns `{:ok, model} | {:error, error}`,
  #
  #     raising load(path :: Path.t(), options :: keyword()) :: model(), "the model"
  #
  # defines load!/2, which returns the model or raises the error, with its documentation and its @spec. A last
  # argument `options` is `[]` by default.

  defmacro raising({:"::", _, [{name, _, arguments}, returned]}, value) do
    names = for {:"::", _, [{argument, _, _}, _type]} <- arguments, do: Macro.var(argument, nil)
    types = for {:"::", _, [_argument, type]} <- arguments, do: type
    parameters = Enum.map(names, &parameter/1)
    bang = :"#{name}!"

    quote do
      @doc unquote("As `#{name}/#{length(arguments)}`, but returns #{value} and raises the error.")
      @spec unquote(bang)(unquote_splicing(types)) :: unquote(returned)
      def unquote(bang)(unquote_splicing(parameters)),
        do: unquote(__MODULE__).ok!(unquote(name)(unquote_splicing(names)))
    end
  end

  defp parameter({:options, _, _} = options), do: quote(do: unquote(options) \\ [])
  defp parameter(other), do: other

  @doc "The value, or the error raised."
  def ok!({:ok, value}), do: value
  def ok!({:error, error}), do: raise(error)
end
