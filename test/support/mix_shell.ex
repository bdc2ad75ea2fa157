defmodule ExPhil.Native.TestSupport.MixShell do
  @moduledoc false
  # The output of a Mix task, sent to the test instead of the terminal. There is one shell for all of Mix, so tests
  # that use it cannot be async.

  @doc "A setup that installs the process shell until the test is over."
  def capture(_context \\ %{}) do
    shell = Mix.shell()
    Mix.shell(Mix.Shell.Process)
    ExUnit.Callbacks.on_exit(fn -> Mix.shell(shell) end)
    :ok
  end

  @doc "Every line of output since the last call, as one text."
  def output(lines \\ []) do
    receive do
      {:mix_shell, :info, [line]} -> output([line | lines])
    after
      0 -> lines |> Enum.reverse() |> Enum.join("\n")
    end
  end
end
