defmodule ExPhil.Native.TestSupport.BackendCase do
  @moduledoc false
  # A test case whose tests run once on each backend. `backend_test` defines two tests: one on the host, and one on
  # CUDA that carries @tag :gpu. The backend is in the context.

  use ExUnit.CaseTemplate

  import ExUnit.Assertions
  import ExPhil.Native.TestSupport.Numbers, only: [row: 2]

  alias ExPhil.Native.Policy

  using options do
    quote do
      use ExUnit.Case, unquote(options)
      import ExPhil.Native.TestSupport.{BackendCase, Numbers}
      alias ExPhil.Native.{Error, Policy, SelectiveScan}
      alias ExPhil.Native.TestSupport.{Policies, Shared}
    end
  end

  @doc """
  Steps a new session through the frames, `{:f32, {count, d_input}, binary}`, and asserts that a prefill, a batch of three agents and a window have
  the bits of these steps. Returns the session and the answers of its steps.
  """
  def same_bits_in_every_call(policy, {:f32, {count, d_input}, all} = frames, session_options \\ []) do
    session = Policy.new_session!(policy, session_options)
    stepped = for i <- 0..(count - 1), do: Policy.step!(session, row(frames, i))
    assert Policy.prefill!(Policy.new_session!(policy), all) == IO.iodata_to_binary(stepped)

    sessions = for _ <- 1..3, do: Policy.new_session!(policy)
    assert Policy.step_batch!(sessions, :binary.copy(row(frames, 0), 3)) == :binary.copy(hd(stepped), 3)
    assert elem(Policy.window!(policy, {:f32, {1, count, d_input}, all}), 2) == List.last(stepped)
    {session, stepped}
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
