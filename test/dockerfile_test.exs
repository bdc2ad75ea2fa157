defmodule ExPhil.Native.DockerfileTest do
  # The steps of the Dockerfile, but for what they install.
  use ExUnit.Case, async: true

  alias ExPhil.Native.TestSupport.WithoutTools

  @moduletag :tmp_dir

  test "the first image makes a package where the second one looks for it" do
    assert [packages] =
             Regex.run(~r"^RUN \.ci/setup --run && make package PACKAGES=(\S+)$"m, File.read!("Dockerfile"),
               capture: :all_but_first
             )

    assert File.read!("Dockerfile") =~ "COPY --from=build #{packages} packages\n"
    env = for name <- ~w(MAKEFLAGS MFLAGS MAKELEVEL), do: {name, nil}

    {output, 0} =
      System.cmd("make", ["-n", "package", "PACKAGES=#{packages}"], env: env, stderr_to_stdout: true)

    assert output =~ ~r"^CXX='.*' \.ci/package priv #{packages}$"m
  end

  # What the last image of the Dockerfile does, but that Elixir is there already and that it plays one second.
  test "the Dockerfile's steps compile and play without make and compiler", %{tmp_dir: folder} do
    [_, image] =
      "Dockerfile" |> File.read!() |> String.replace("\\\n", "") |> String.split(~r/^FROM \$RUN\n/m)

    path = WithoutTools.package()
    work = Path.join(folder, "work")
    File.mkdir_p!(work)
    # The tests' own settings are not the image's.
    clean =
      for name <-
            ~w(MIX_BUILD_PATH MIX_EXS EXPHIL_SKIP_NATIVE EXPHIL_NATIVE_NIF EXPHIL_NATIVE_PRECOMPILED_SHA256 MAKE CXX),
          do: {name, nil}

    env = [{"PATH", WithoutTools.path(Path.join(folder, "bin"))}, {"EXPHIL_HEX", "0"} | clean]

    {_env, output} =
      for line <- String.split(image, "\n", trim: true), reduce: {env, ""} do
        {env, output} ->
          case String.split(line, " ", parts: 2) do
            ["COPY", "--from=build /packages " <> to] ->
              File.cp_r!(Path.dirname(path), Path.join(work, to))
              {env, output}

            ["COPY", from_to] ->
              [from, to] = String.split(from_to)
              File.cp_r!(from, Path.expand(if(to == ".", do: from, else: to), work))
              {env, output}

            ["ENV", settings] ->
              {env ++
                 for(setting <- String.split(settings), do: setting |> String.split("=") |> List.to_tuple()),
               output}

            ["RUN", "apt-get " <> install] ->
              assert install =~ ~r/ install -y --no-install-recommends elixir$/
              {env, output}

            ["RUN", command] ->
              {env, output <> step(String.split(command), work, env)}

            ["CMD", command] ->
              {["mix", "exphil.play", "--seconds", "10"], _} = Code.eval_string(command)
              {env, output <> step(~w(mix exphil.play --backend host --seconds 1), work, env)}

            ["WORKDIR", _] ->
              {env, output}
          end
      end

    assert output =~ "exphil_native: installed the package"
    assert output =~ "all 60 answers match"
  end

  defp step([program | arguments], work, env) do
    program = env |> List.keyfind!("PATH", 0) |> elem(1) |> Path.join(program)
    {output, status} = System.cmd(program, arguments, cd: work, env: env, stderr_to_stdout: true)
    assert {status, output} == {0, output}
    output
  end
end
