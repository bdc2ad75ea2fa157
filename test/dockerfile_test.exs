defmodule ExPhil.Native.DockerfileTest do
  # The steps of the Dockerfile's two images, each in a folder of its own, but for what they install. The objects of the first one
  # are those of this build, and the second one plays a second.
  use ExUnit.Case, async: true

  alias ExPhil.Native.TestSupport.WithoutTools

  @moduletag :tmp_dir
  @moduletag :either

  # The tests' own settings are not the images'.
  @clean for name <-
               ~w(MIX_BUILD_PATH MIX_EXS EXPHIL_SKIP_NATIVE EXPHIL_NATIVE_NIF EXPHIL_NATIVE_PRECOMPILED
                  EXPHIL_NATIVE_PRECOMPILED_SHA256 MAKE MAKEFLAGS MFLAGS MAKELEVEL PRIV),
             do: {name, nil}

  test "the images make a package, and compile and play with it without make and compiler", %{tmp_dir: folder} do
    folder = Path.expand(folder)
    [build, run] = images()

    built = System.get_env("BUILD", "build")

    output =
      walk(build, "/", Path.join(folder, "build_image"), [
        {"BUILD", Path.expand(built)},
        {"BUILD_CUDA", Path.expand(System.get_env("BUILD_CUDA", built))} | @clean
      ])

    assert [_, name] = Regex.run(~r"^/packages/(exphil_native-nif-\S+\.tar\.gz)$"m, output)
    # Nothing was missing that would have been compiled anew.
    refute output =~ "CXX  "
    packages = Path.join(folder, "build_image/packages")
    assert Enum.sort(File.ls!(packages)) == [name, name <> ".sha256"]
    # The files that the image has are all that `make package` of this checkout takes.
    assert File.read!(Path.join(packages, name)) ==
             File.read!(WithoutTools.package(Path.join(folder, "here")))

    path = WithoutTools.path(Path.join(folder, "bin"))
    env = [{"PATH", path}, {"CXX", nil}, {"EXPHIL_HEX", "0"} | @clean]
    output = walk(run, Path.join(folder, "build_image"), Path.join(folder, "run_image"), env)
    assert output =~ "exphil_native: installed the package"
    assert output =~ "all 60 answers match"
  end

  # The lines of each image.
  defp images do
    [_arguments | images] =
      "Dockerfile" |> File.read!() |> String.replace("\\\n", "") |> String.split(~r/^FROM .*\n/m)

    for image <- images,
        do: for(line <- String.split(image, "\n", trim: true), not String.starts_with?(line, "#"), do: line)
  end

  # Runs an image's lines in the folder `root`; `from` is the folder of the image that it copies from. Returns what they printed.
  defp walk(lines, from, root, env) do
    File.mkdir_p!(root)

    {_work, _env, output} =
      for line <- lines, reduce: {root, env, ""} do
        {work, env, output} ->
          [word, rest] = String.split(line, " ", parts: 2)

          case {word, rest} do
            {"WORKDIR", path} -> {tap(Path.join(root, path), &File.mkdir_p!/1), env, output}
            {"ENV", settings} -> {work, env ++ Enum.map(String.split(settings), &setting/1), output}
            {"COPY", what} -> {work, env, output <> copy(String.split(what), from, work)}
            {"RUN", command} -> {work, env, output <> command(command, root, work, env)}
            {"CMD", command} -> {work, env, output <> command(short(command), root, work, env)}
          end
      end

    output
  end

  defp setting(text), do: text |> String.split("=", parts: 2) |> List.to_tuple()

  defp copy(["--from=build", path, to], from, work), do: cp([Path.join(from, path)], Path.join(work, to))
  defp copy([".", "."], _from, work), do: cp(File.ls!(".") -- String.split(File.read!(".dockerignore")), work)
  defp copy([path, "."], _from, work), do: cp([path], work)
  defp copy([path, to], _from, work), do: cp([path], Path.join(work, to))

  # With the times of the files, by which make knows what is built.
  defp cp(paths, to) do
    {"", 0} = System.cmd("cp", ["-a" | paths] ++ [to], stderr_to_stdout: true)
    ""
  end

  # Ten seconds of play are one here, on the CPU.
  defp short(command) do
    {["mix", "exphil.play", "--seconds", "10"], _} = Code.eval_string(command)
    "mix exphil.play --backend host --seconds 1"
  end

  defp command(
         "apt-get update && apt-get install -y --no-install-recommends " <> packages,
         _root,
         _work,
         _env
       ) do
    assert packages == "elixir" or
             packages =~ ~r/^python3-pip && +pip install --break-system-packages nvidia-\S+ nvidia-\S+$/

    ""
  end

  # The only path outside of the work folder is the packages'.
  defp command(command, root, work, env) do
    {output, status} =
      System.cmd("sh", ["-c", String.replace(command, "=/packages", "=#{root}/packages")],
        cd: work,
        env: env,
        stderr_to_stdout: true
      )

    assert {status, output} == {0, output}
    String.replace(output, root, "")
  end
end
