defmodule ExPhil.Native.MixProject do
  use Mix.Project

  @version "0.1.0"

  def project do
    [
      app: :exphil_native,
      version: @version,
      elixir: "~> 1.14",
      description: "Real-time Mamba inference for Elixir: selective scans and policy steps on GPU and CPU",
      compilers: [:exphil_native] ++ Mix.compilers(),
      elixirc_paths: elixirc_paths(Mix.env()),
      start_permanent: Mix.env() == :prod,
      # PropEr comes from the system's Erlang, not from a dependency; Elixir 1.15 and newer would hide it.
      prune_code_paths: Mix.env() != :test,
      deps: deps(),
      package: package()
    ]
  end

  def application, do: [extra_applications: [:logger]]

  defp elixirc_paths(:test), do: ["lib", "test/support"]
  defp elixirc_paths(_), do: ["lib"]

  # The project that this library is a dependency of, while Mix loads it as one.
  @user if Mix.Project.get(),
          do: {Path.dirname(Mix.Project.project_file()), Mix.Project.config()[:deps] || []}

  # What the library uses where it is there. Nx.block/4, which ExPhil.Native.Defn needs, is in Nx from 0.12.
  @optional [nx: "~> 0.12", telemetry: "~> 1.0"]
  # Only where the project that uses this library has them, too: it compiles implementations of EXLA's protocol.
  @protocols [exla: "~> 0.12", edifice: ">= 0.0.0"]

  # Each is declared, so that it is compiled before this library, which looks for its modules then. As a dependency: what that
  # project has, from where it has it, which needs neither Hex nor network. On its own: only where Hex is installed, so that
  # a machine without Hex fetches nothing and shows no prompt; EXPHIL_HEX=0 is for Hex without a network.
  defp deps do
    from_user =
      for {app, need} <- @optional ++ @protocols,
          place = place(app),
          do: {app, need, [optional: true] ++ place}

    from_hex =
      if hex?(),
        do: for({app, need} <- @optional, place(app) == nil, do: {app, need, optional: true}),
        else: []

    from_user ++ from_hex
  end

  defp hex?, do: Code.ensure_loaded?(Hex) and (@user != nil or System.get_env("EXPHIL_HEX") != "0")

  # Where the user's project has this application from, as options of a dependency; nil where it has not, or not always.
  @sources ~w(path git github branch tag ref submodules sparse subdir hex organization repo)a
  defp place(app) do
    with {folder, deps} <- @user,
         dep when dep != nil <- List.keyfind(deps, app, 0),
         options = dep |> Tuple.to_list() |> Enum.find([], &is_list/1),
         false <- Enum.any?([:only, :targets, :in_umbrella], &Keyword.has_key?(options, &1)) do
      options
      |> Keyword.take(@sources)
      |> Keyword.replace_lazy(:path, &Path.expand(&1, folder))
    else
      _ -> nil
    end
  end

  defp package do
    [
      licenses: ["Apache-2.0"],
      links: %{},
      files: ~w(c_src kernels lib .ci/setup Makefile mix.exs README.md CHANGELOG.md LICENSE .formatter.exs)
    ]
  end
end

defmodule Mix.Tasks.Compile.ExphilNative do
  @moduledoc false
  # Builds the NIF and installs the kernels with `make native`, before the Elixir files are compiled. It is
  # in this file because lib/ is not compiled yet when the compilers run. The make variables of the
  # Makefile (BUILD, CXX, CXXFLAGS, CUDA_HOME) are taken from the environment. EXPHIL_SKIP_NATIVE=1 compiles the
  # only the Elixir files: every native call then returns an error.
  use Mix.Task.Compiler

  @impl true
  def run(_args) do
    if System.get_env("EXPHIL_SKIP_NATIVE") == "1", do: {:noop, []}, else: build()
  end

  defp build do
    make = System.get_env("MAKE") || "make"
    if System.find_executable(make) == nil, do: Mix.raise("make was not found; " <> advice())

    case make(make, ["native"]) do
      0 ->
        # priv/ may be new: link it into the build folder.
        Mix.Project.build_structure()
        {:ok, []}

      status ->
        Mix.raise("building the NIF failed (make: status #{status}); see the lines above. " <> advice())
    end
  end

  defp advice do
    "`make setup` (or .ci/setup) in exphil_native's folder installs or names the packages that it needs, and " <>
      "`EXPHIL_SKIP_NATIVE=1 mix exphil.doctor` says what this machine has"
  end

  @impl true
  def clean do
    make(System.get_env("MAKE") || "make", ["clean_native"])
    :ok
  end

  defp make(make, targets) do
    {_, status} =
      System.cmd(make, ["-s" | targets],
        cd: File.cwd!(),
        env: make_env(),
        into: IO.stream(:stdio, :line),
        stderr_to_stdout: true
      )

    status
  end

  # MAKEFLAGS of an outer make names file descriptors that this one does not inherit. Erlang's headers are located
  # here because make would have to start another Erlang VM to find them.
  defp make_env do
    erts = "erts-#{:erlang.system_info(:version)}"
    include = Path.join([to_string(:code.root_dir()), erts, "include"])
    [{"MAKEFLAGS", nil}, {"MFLAGS", nil}, {"MAKELEVEL", nil}, {"ERL_INCLUDE", include}]
  end
end
