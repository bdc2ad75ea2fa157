defmodule ExPhil.Native.ReleaseTest do
  # An application with this library as a dependency, built with `mix release` and started from its folder: the release
  # has to carry the library and the kernels, and its config has to arrive. There is neither make nor a compiler: the library's native
  # part is that of a package.
  use ExUnit.Case, async: true

  alias ExPhil.Native.TestSupport.{Policies, WithoutTools}

  @moduletag :tmp_dir

  @project """
  defmodule Bot.MixProject do
    use Mix.Project

    def project do
      [
        app: :bot,
        version: "1.0.0",
        deps: [{:exphil_native, path: PATH}],
        releases: [bot: [include_erts: false, include_executables_for: [:unix]]]
      ]
    end

    def application, do: [mod: {Bot, []}]
  end
  """

  @bot """
  defmodule Bot do
    use Application
    alias ExPhil.Native.Policy

    def start(_type, _arguments), do: Supervisor.start_link([], strategy: :one_for_one)

    def play(path) do
      session = path |> Policy.load!(backend: :host) |> Policy.new_session!()
      outs = for i <- 1..60, do: Policy.step!(session, for(k <- 1..13, into: "", do: <<i / k::float-32-little>>))
      info = ExPhil.Native.info()
      IO.puts("PLAYED \#{:erlang.crc32(outs)} \#{info.threads} \#{info.nif.path}")
      mapped = for line <- File.stream!("/proc/self/maps"), [path] <- [Regex.run(~r"/.*\\.so.*", line)], do: path
      for path <- Enum.uniq(mapped), do: IO.puts("MAPPED \#{path}")
    end
  end
  """

  # What the same frames give here.
  defp expected(path) do
    session = path |> ExPhil.Native.Policy.load!(backend: :host) |> ExPhil.Native.Policy.new_session!()

    outs =
      for i <- 1..60,
          do: ExPhil.Native.Policy.step!(session, for(k <- 1..13, into: "", do: <<i / k::float-32-little>>))

    :erlang.crc32(outs)
  end

  test "a release of an application plays from a folder of its own", %{tmp_dir: folder} do
    source = Path.join(folder, "bot")
    File.mkdir_p!(Path.join(source, "lib"))
    File.mkdir_p!(Path.join(source, "config"))
    library = WithoutTools.project(Path.join(folder, "exphil_native"))
    File.write!(Path.join(source, "mix.exs"), String.replace(@project, "PATH", inspect(Path.expand(library))))
    File.write!(Path.join(source, "lib/bot.ex"), @bot)

    File.write!(
      Path.join(source, "config/runtime.exs"),
      "import Config\nconfig :exphil_native, threads: 1\n"
    )

    release = Path.join(folder, "installed")
    path = WithoutTools.path(Path.join(folder, "bin"))
    File.ln_s!(Path.dirname(WithoutTools.package()), Path.join(source, "packages"))

    # Relative to the project that uses the library.
    env = [
      {"MIX_ENV", "prod"},
      {"EXPHIL_NATIVE_PRECOMPILED", "packages"},
      {"EXPHIL_NATIVE_PRECOMPILED_SHA256", nil},
      {"EXPHIL_SKIP_NATIVE", nil},
      {"EXPHIL_HEX", "0"},
      {"MIX_BUILD_PATH", nil},
      {"MAKE", nil},
      {"PATH", path}
    ]

    {output, status} =
      System.cmd(Path.join(path, "mix"), ["release", "bot", "--path", release],
        cd: source,
        env: env,
        stderr_to_stdout: true
      )

    assert {status, output} == {0, output}
    [libraries] = Path.wildcard(Path.join(release, "lib/exphil_native-*/priv"))
    assert File.exists?(Path.join(libraries, "exphil_native.so"))
    assert Path.wildcard(Path.join(libraries, "kernels/**/*.cu")) != []
    File.rm_rf!(source)

    checkpoint = Policies.checkpoint()

    output =
      eval(
        release,
        path,
        "Application.load(:exphil_native); Bot.play(#{inspect(checkpoint)}); ExPhil.Native.Doctor.run"
      )

    assert [_, sum, "1", library] = Regex.run(~r/^PLAYED (\d+) (\d+) (.+)$/m, output)
    assert String.to_integer(sum) == expected(checkpoint)
    assert String.starts_with?(library, Path.expand(release))
    # Those of the package, not the system's.
    for name <- ~w(libtbb.so libhwy.so),
        do: assert(output =~ ~r/^MAPPED #{Path.expand(libraries)}\/lib\/#{name}/m)

    # The doctor, where there is no Mix.
    assert output =~ ~r/^Machine\n  \[ok\] system +Elixir #{System.version()}/m
    assert output =~ ~r/^  \[ok\] NIF +#{library}$/m
    assert output =~ ~r/^  \[ok\] host +.*threads: 1$/m
    refute output =~ "costs: the library cannot be built"
  end

  defp eval(release, path, code) do
    env = [{"EXPHIL_NATIVE_NIF", nil}, {"EXPHIL_NATIVE_THREADS", nil}, {"PATH", path}]

    {output, status} =
      System.cmd(Path.join(release, "bin/bot"), ["eval", code], env: env, stderr_to_stdout: true)

    assert {status, output} == {0, output}
    output
  end
end
