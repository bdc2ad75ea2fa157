# This project with the libraries of EXPHIL_REAL (NAME=FOLDER, separated by colons) as dependencies; test/real/run starts it.

defmodule ExPhil.Native.RealFolders do
  @moduledoc false
  # The libraries name their dependencies by version, which Mix would look for in Hex. Here each name is replaced by a folder.
  # A name without a folder is of a dependency that is optional, or for another environment: Mix drops it.
  @behaviour Mix.SCM

  def folders do
    for entry <- String.split(System.fetch_env!("EXPHIL_REAL"), ":"), into: %{} do
      [name, folder] = String.split(entry, "=", parts: 2)
      {String.to_atom(name), folder}
    end
  end

  @impl true
  def accepts_options(app, options) do
    folder = Map.get(folders(), app, Path.join(Mix.Project.deps_path(), "no folder for #{app}"))
    Mix.SCM.Path.accepts_options(app, Keyword.put(options, :path, folder))
  end

  @impl true
  defdelegate fetchable?, to: Mix.SCM.Path
  @impl true
  defdelegate format(options), to: Mix.SCM.Path
  @impl true
  defdelegate format_lock(options), to: Mix.SCM.Path
  @impl true
  defdelegate checked_out?(options), to: Mix.SCM.Path
  @impl true
  defdelegate checkout(options), to: Mix.SCM.Path
  @impl true
  defdelegate update(options), to: Mix.SCM.Path
  @impl true
  defdelegate lock_status(options), to: Mix.SCM.Path
  @impl true
  defdelegate equal?(options, others), to: Mix.SCM.Path
  @impl true
  defdelegate managers(options), to: Mix.SCM.Path
end

Mix.SCM.prepend(ExPhil.Native.RealFolders)
Code.require_file("../../mix.exs", __DIR__)
# Mix takes the first project that is defined for the one to build.
Mix.Project.pop()

defmodule ExPhil.Native.RealProject do
  use Mix.Project

  # A build folder for each choice of libraries.
  @build Path.join(
           "build/real",
           to_string(:erlang.phash2({System.fetch_env!("EXPHIL_REAL"), System.version()}))
         )

  def project do
    Keyword.merge(ExPhil.Native.MixProject.project(),
      build_path: @build,
      deps_path: Path.join(@build, "deps"),
      lockfile: Path.join(@build, "mix.lock"),
      deps: for({app, _} <- ExPhil.Native.RealFolders.folders(), do: {app, ">= 0.0.0", override: true})
    )
  end

  def application, do: ExPhil.Native.MixProject.application()
end

# Tests start Mix in other projects.
System.delete_env("MIX_EXS")
