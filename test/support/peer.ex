defmodule ExPhil.Native.TestSupport.Peer do
  @moduledoc false
  # Runs code in a separate VM with this build's modules, where it would disturb or end the VM of the tests.

  @doc "The code's output, both streams, and the VM's exit status. Options are those of `elixir`."
  def peer(code, env, options \\ []), do: elixir(options ++ ["-e", code], env)

  @doc "The same for a script's file with its arguments."
  def peer_script(path, arguments, env), do: elixir([path | arguments], env)

  defp elixir(arguments, env) do
    paths = ["-pa", Path.join(:code.lib_dir(:exphil_native), "ebin")]
    System.cmd("elixir", paths ++ arguments, env: env, stderr_to_stdout: true)
  end

  @doc "The environment in which the peer loads the library that this VM loaded."
  def library, do: [{"EXPHIL_NATIVE_NIF", ExPhil.Native.info().nif.path}]

  @doc "Where make builds."
  def build, do: Path.expand(System.get_env("BUILD", "build"))

  @doc """
  The environment in which the peer takes a while to end after everything is destroyed (slow_exit.cpp); where make has not built that,
  it ends at once.
  """
  def slow_exit do
    library = Path.join(build(), "libslow_exit.so")
    if File.exists?(library), do: [{"LD_PRELOAD", library}], else: []
  end
end
