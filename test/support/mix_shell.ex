defmodule ExPhil.Native.TestSupport.MixShell do
  @moduledoc false
  # What a Mix task says, sent to the test instead of the terminal. The shell is one for all of Mix: not for tests
  # that are async.

  @doc "The setup that puts the process shell in place until the test is over."
  def capture(_context \\ %{}) do
    shell = Mix.shell()
    Mix.shell(Mix.Shell.Process)
    ExUnit.Callbacks.on_exit(fn -> Mix.shell(shell) end)
    :ok
  end

  @doc "Every line said since the last time, as one text."
  def output(lines \\ []) do
    receive do
      {:mix_shell, :info, [line]} -> output([line | lines])
    after
      0 -> lines |> Enum.reverse() |> Enum.join("\n")
    end
  end
end
