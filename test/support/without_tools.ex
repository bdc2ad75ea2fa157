defmodule ExPhil.Native.TestSupport.WithoutTools do
  @moduledoc """
  A package of the library that these tests use, and a PATH for a machine that can compile Elixir and nothing else: neither
  make nor a compiler.
  """

  @programs ~w(sh env sed cat grep awk tr cut uname dirname basename readlink expr id getconf rm mkdir od date) ++
              ~w(erl mix elixir)

  @doc "The path of a package of priv, made once in a run of the tests."
  def package do
    :global.trans({__MODULE__, self()}, fn ->
      with nil <- :persistent_term.get(__MODULE__, nil) do
        path = package("tmp/package")
        :persistent_term.put(__MODULE__, path)
        path
      end
    end)
  end

  @doc "Makes a package of priv in `folder`, and returns its path."
  def package(folder) do
    folder = Path.expand(folder)
    File.rm_rf!(folder)

    {output, status} =
      System.cmd(Path.expand(".ci/package"), ["priv", folder], stderr_to_stdout: true, env: [{"CXX", nil}])

    if status != 0, do: raise(output)
    output |> String.split("\n", trim: true) |> List.last()
  end

  @doc "Makes `folder` a PATH with links to the programs that Elixir and a release need."
  def path(folder) do
    File.mkdir_p!(folder)

    for program <- @programs,
        found = System.find_executable(program),
        do: File.ln_s!(found, Path.join(folder, program))

    for program <- ~w(make g++ gcc cc c++ ld), do: false = File.exists?(Path.join(folder, program))
    Path.expand(folder)
  end

  @doc "Copies the Elixir part of this project, without its native part, to `folder`."
  def project(folder) do
    File.mkdir_p!(folder)
    for name <- ~w(lib mix mix.exs), do: File.cp_r!(name, Path.join(folder, name))
    folder
  end
end
