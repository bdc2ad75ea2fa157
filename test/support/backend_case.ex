defmodule ExPhil.Native.TestSupport.BackendCase do
  @moduledoc false
  # A test case whose tests run once on each backend. `backend_test` defines two tests: one on the host, and one on
  # CUDA that carries @tag :gpu. The backend is in the context.

  use ExUnit.CaseTemplate

  using options do
    quote do
      use ExUnit.Case, unquote(options)
      import ExPhil.Native.TestSupport.{BackendCase, Numbers}
      alias ExPhil.Native.{Error, Policy, SelectiveScan}
      alias ExPhil.Native.TestSupport.{Policies, Shared}
    end
  end

  defmacro backend_test(name, context \\ quote(do: _), do: body) do
    quote do
      # The first test consumes the tags set before it: set them again for the second.
      tags = Module.get_attribute(__MODULE__, :tag)
      @tag backend: :host
      test(unquote(name) <> " (host)", unquote(context), do: unquote(body))

      for tag <- tags, do: Module.put_attribute(__MODULE__, :tag, tag)
      @tag :gpu
      @tag backend: :cuda
      test(unquote(name) <> " (cuda)", unquote(context), do: unquote(body))
    end
  end
end
