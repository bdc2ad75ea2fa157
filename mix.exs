Code.require_file("mix/package.exs", __DIR__)

defmodule ExPhil.Native.MixProject do
  use Mix.Project

  @version "0.1.0"
  # The address of this project on a forge, as a string, where it has one; `make badges` then writes the links to Livebook.
  @source_url nil

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
      source_url: @source_url,
      package: package(),
      docs: docs()
    ] ++ if(published?(), do: precompiler(), else: [])
  end

  def application, do: [extra_applications: [:logger]]

  defp elixirc_paths(:test), do: ["lib", "test/support"]
  defp elixirc_paths(_), do: ["lib"]

  # The project that this library is a dependency of, while Mix loads it as one.
  @user if Mix.Project.get(),
          do: {Path.dirname(Mix.Project.project_file()), Mix.Project.config()[:deps] || []}

  @folder (case @user do
             {folder, _deps} -> folder
             nil -> __DIR__
           end)

  # What the library uses where it is there. Nx.block/4, which ExPhil.Native.Defn needs, is in Nx from 0.12.
  @optional [nx: "~> 0.12", telemetry: "~> 1.0"]
  # Only where the project that uses this library has them, too: it compiles implementations of EXLA's protocol.
  @protocols [exla: "~> 0.12", edifice: ">= 0.0.0"]

  # Where the release workflow wrote the checksums of the published packages and where they are (.ci/publish), as in the package on
  # Hex: elixir_make downloads the one for the machine, and builds where there is none.
  @precompiler [elixir_make: "~> 0.8", cc_precompiler: "~> 0.1"]
  @published Enum.all?(["checksum.exs", "packages.url"], &File.exists?(Path.join(__DIR__, &1)))

  # For `mix docs`.
  @ex_doc {:ex_doc, "~> 0.34", only: :dev, runtime: false}

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

    precompiler =
      if published?(),
        do: for({app, need} <- @precompiler, do: {app, need, [runtime: false] ++ (place(app) || [])}),
        else: []

    from_user ++ from_hex ++ precompiler ++ if(hex?() and @user == nil, do: [@ex_doc], else: [])
  end

  defp published?, do: @published and (hex?() or Enum.all?(@precompiler, &place(elem(&1, 0))))

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
      links: if(@source_url, do: %{"Source" => @source_url}, else: %{}),
      files:
        ~w(c_src kernels lib mix .ci/setup .ci/package Makefile mix.exs README.md CHANGELOG.md LICENSE .formatter.exs) ++
          if(@published, do: ~w(checksum.exs packages.url), else: [])
    ]
  end

  # elixir_make's: how `mix compile` gets the library where packages are published.
  defp precompiler do
    [
      make_precompiler: {:nif, CCPrecompiler},
      make_precompiler_url: __DIR__ |> Path.join("packages.url") |> File.read!() |> String.trim(),
      make_precompiler_filename: "exphil_native",
      # A library for an older interface loads in a newer VM: that of OTP 25 serves every later one.
      make_precompiler_nif_versions: [versions: ["2.16"]],
      make_targets: ["native"],
      make_env: %{"MAKEFLAGS" => "", "MAKELEVEL" => "0"},
      cc_precompiler: [
        only_listed_targets: false,
        compilers: %{{:unix, :linux} => Map.new(~w(x86_64 aarch64), &{"#{&1}-linux-gnu", "#{&1}-linux-gnu-"})}
      ]
    ]
  end

  # For `mix docs`, where Hex and with it ex_doc is installed. ExDoc follows a link to a page by the last part of its path alone, and
  # the last page of a name is the one: docs/training.md before bench/results/training.md. The names of the pages written are other
  # ones, because docs/fleet.md and docs/guides/fleet.livemd would have one.
  defp docs do
    results = for path <- Path.wildcard("bench/results/*.md"), do: page(path, "results-")
    guides = for path <- Path.wildcard("docs/guides/*.livemd"), do: page(path, "guide-")
    more = ~w(CHANGELOG.md SECURITY.md LICENSE)

    [
      main: "readme",
      extras: ["README.md"] ++ guides ++ results ++ Path.wildcard("docs/*.md") ++ more,
      groups_for_extras: [Guides: ~r"docs/guides/", Reference: ~r"docs/[^/]+$", Results: ~r"bench/results/"],
      assets: %{"docs" => "docs"},
      groups_for_modules: [
        Playing: [ExPhil.Native.Policy, ExPhil.Native.Clock, ExPhil.Native.Fleet, ~r/^ExPhil.Native.Policy\./],
        Training: [~r/^ExPhil.Native.(Trainer|Loss|AdamW)/],
        Operators: [
          ~r/^ExPhil.Native.(SelectiveScan|StateSpaceDuality|AssociativeScan|RecurrentScan|SemiseparableLayer)/
        ],
        "Nx and XLA": [~r/^ExPhil.Native.(Defn|Edifice|Block|Expression)/],
        "This machine": [ExPhil.Native, ~r/^ExPhil.Native.(Doctor|Telemetry|Error|Safetensors|SharedMemory)/]
      ]
    ]
  end

  # An atom: ExDoc of before 0.35 takes no string with options.
  defp page(path, prefix),
    do: {String.to_atom(path), filename: prefix <> (path |> Path.basename() |> Path.rootname())}

  @doc false
  # Paths in the settings are relative to the project that uses this library.
  def folder, do: @folder
end

defmodule Mix.Tasks.Compile.ExphilNative do
  @moduledoc false
  # Installs the NIF and the kernels in priv/ before the Elixir files are compiled: those of a package, where one is named
  # (EXPHIL_NATIVE_PRECOMPILED or `config :exphil_native, precompiled:`) or published, and else built with `make native`. It is
  # in this file because lib/ is not compiled yet when the compilers run. The make variables of the
  # Makefile (BUILD, CXX, CXXFLAGS, CUDA_HOME) are taken from the environment. EXPHIL_SKIP_NATIVE=1 compiles
  # only the Elixir files: every native call then returns an error.
  use Mix.Task.Compiler
  alias ExPhil.Native.Package

  @impl true
  def run(args) do
    cond do
      System.get_env("EXPHIL_SKIP_NATIVE") == "1" -> {:noop, []}
      from = setting("PRECOMPILED", :precompiled) -> take(from)
      Mix.Project.config()[:make_precompiler] -> download(args)
      # Of an earlier compilation that named a package, on a machine that could build nothing.
      System.find_executable(make()) == nil and Package.installed?("priv", here()) -> {:noop, []}
      true -> build()
    end
  end

  defp here, do: Package.here(Mix.Project.config()[:version])

  # The environment takes precedence.
  defp setting(variable, key) do
    case System.get_env("EXPHIL_NATIVE_" <> variable) do
      empty when empty in [nil, ""] -> Application.get_env(:exphil_native, key)
      value -> value
    end
  end

  defp take(from) do
    from = if from =~ ~r"^https?://", do: from, else: Path.expand(from, ExPhil.Native.MixProject.folder())

    case Package.install!(from, "priv", here(), setting("PRECOMPILED_SHA256", :precompiled_sha256)) do
      :installed -> Mix.shell().info("exphil_native: installed the package #{from}")
      :unchanged -> :ok
    end

    linked()
  end

  # elixir_make unpacks into the build folder, and builds into priv/ where it cannot download.
  defp download(args) do
    Mix.Task.run("compile.elixir_make", args)
    if File.dir?("priv"), do: linked(), else: {:ok, []}
  end

  # priv/ may be new: link it into the build folder.
  defp linked do
    Mix.Project.build_structure()
    {:ok, []}
  end

  defp build do
    if System.find_executable(make()) == nil, do: Mix.raise("make was not found; " <> advice())

    case make(make(), ["native"]) do
      0 ->
        linked()

      status ->
        Mix.raise("building the NIF failed (make: status #{status}); see the lines above. " <> advice())
    end
  end

  defp advice do
    "`make setup` (or .ci/setup) in exphil_native's folder installs or names the packages that it needs, and " <>
      "`EXPHIL_SKIP_NATIVE=1 mix exphil.doctor` says what this machine has. EXPHIL_NATIVE_PRECOMPILED names a package " <>
      "of `make package` to use instead of a build"
  end

  @impl true
  def clean do
    if System.find_executable(make()), do: make(make(), ["clean_native"]), else: File.rm_rf!("priv")
    :ok
  end

  defp make, do: System.get_env("MAKE") || "make"

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
