defmodule Mix.Tasks.Exphil.Doctor do
  @shortdoc "Reports what this machine has for ExPhil.Native, and the cost of each missing part"
  @moduledoc """
  Prints the page of `ExPhil.Native.Doctor`: the build tools, the settings that calls refuse, the loaded library, the backends,
  and for each missing part its cost and how to get it.

      mix exphil.doctor

  If the build itself fails, `EXPHIL_SKIP_NATIVE=1 mix exphil.doctor` skips it. The exit status is 1 where an
  environment variable or a config key has a value that calls refuse, and else 0 whenever the page was written: a
  machine without a GPU is not an error.
  """

  use Mix.Task

  @requirements ["app.config"]

  @impl true
  def run(_args) do
    if ExPhil.Native.Doctor.report(&Mix.shell().info/1) == :refused, do: exit({:shutdown, 1})
  end
end
