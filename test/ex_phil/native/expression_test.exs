defmodule ExPhil.Native.ExpressionTest do
  # Terms with the form of Nx's expressions; defn_test.exs uses Nx's own.
  use ExUnit.Case, async: true

  alias ExPhil.Native.Expression

  @expression %{__struct__: Nx.Tensor, data: %{__struct__: Nx.Defn.Expr}}
  @plain {:f32, {1, 1, 1}, <<0::32>>}

  test "expressions among arguments and options" do
    assert Expression.any?([@plain, @expression])
    assert Expression.any?([@plain], dt_softplus: true, z: @expression)
    refute Expression.any?([@plain, %{@expression | data: %{__struct__: Nx.BinaryBackend}}], d: @plain)
    refute Expression.any?([@plain], [:no_option | :list])
    refute Expression.any?([@plain], %{d: @plain})
  end

  unless Code.ensure_loaded?(ExPhil.Native.Defn) do
    alias ExPhil.Native.{Error, SelectiveScan}

    test "a scan of an expression says what the library was compiled without" do
      for call <- [
            fn -> SelectiveScan.scan(@expression, @plain, @plain, @plain, @plain) end,
            fn -> SelectiveScan.scan(@plain, @plain, @plain, @plain, @plain, d: @expression) end
          ] do
        error = assert_raise Error, ~r/compiled without ExPhil.Native.Defn, which needs Nx 0.12/, call
        assert error.kind == :unsupported
      end
    end
  end
end
