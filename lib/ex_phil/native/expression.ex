defmodule ExPhil.Native.Expression do
  @moduledoc false
  # Expressions: the tensors of a computation that Nx is compiling (defn, Axon layers). They have no elements
  # yet, so an eager call with one becomes an operation of that computation (ExPhil.Native.Defn).

  alias ExPhil.Native.{Defn, Error}

  @compile {:no_warn_undefined, Defn}

  @doc "Whether one of these arguments or options is an expression."
  @spec any?([term()], term()) :: boolean()
  def any?(arguments, options \\ []) do
    # The call that is given other options refuses them.
    given = if Keyword.keyword?(options), do: Keyword.values(options), else: []
    Enum.any?(arguments, &expression?/1) or Enum.any?(given, &expression?/1)
  end

  defp expression?(%{__struct__: Nx.Tensor, data: %{__struct__: Nx.Defn.Expr}}), do: true
  defp expression?(_term), do: false

  @doc "The operation of `ExPhil.Native.Defn`. An error says why there is none, where the library was compiled without Nx."
  def call(operation, arguments) do
    if Code.ensure_loaded?(Defn),
      do: apply(Defn, operation, arguments),
      else: raise(Error.new(:unsupported, "", missing()))
  end

  defp missing do
    "an argument is an expression of Nx.Defn, and exphil_native was compiled without ExPhil.Native.Defn, which needs " <>
      "Nx 0.12 or later (here: #{Application.spec(:nx, :vsn) || "not loaded"}); list :nx in the dependencies of your " <>
      "project, then run: mix deps.compile exphil_native --force"
  end
end
