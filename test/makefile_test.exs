defmodule ExPhil.Native.MakefileTest do
  # What the Makefile finds and would do, without building anything.
  use ExUnit.Case, async: true

  @moduletag :tmp_dir

  # An outer make's variables are not for these; the usual places of XLA's header may have one on this machine.
  defp make(arguments, env) do
    clean =
      for name <- ~w(MAKEFLAGS MFLAGS MAKELEVEL XLA_INCLUDE VIRTUAL_ENV BUILD BUILD_CUDA PRIV CUDA_INCLUDE),
          do: {name, nil}

    System.cmd("make", arguments, env: Map.to_list(Map.merge(Map.new(clean), env)), stderr_to_stdout: true)
  end

  defp jaxlib(folder) do
    header = Path.join(folder, "jaxlib/include/xla/ffi/api/c_api.h")
    File.mkdir_p!(Path.dirname(header))
    File.write!(header, "")
    File.write!(Path.join(folder, "jaxlib/__init__.py"), "raise RuntimeError('imported')")
    Path.join(folder, "jaxlib/include")
  end

  @tag skip: System.find_executable("python3") == nil
  test "the header of XLA is where the Python on the PATH has JAX", %{tmp_dir: folder} do
    include = jaxlib(folder)
    find = ["-s", "xla_headers", "XLA_PLACES="]
    assert make(find, %{"PYTHONPATH" => folder}) == {include <> "\n", 0}
    assert make(find, %{"PYTHONPATH" => folder, "XLA_INCLUDE" => "/elsewhere"}) == {"/elsewhere\n", 0}
    File.rm!(Path.join(include, "xla/ffi/api/c_api.h"))
    assert make(find, %{"PYTHONPATH" => folder}) == {"\n", 0}
  end

  test "without a Python there is no header and no failure", %{tmp_dir: folder} do
    for program <- ~w(sh make g++ echo), path = System.find_executable(program) do
      File.ln_s!(path, Path.join(folder, program))
    end

    make = ["-s", "xla_headers", "XLA_PLACES=", "CXX=g++"]
    assert make(make, %{"PATH" => Path.expand(folder)}) == {"\n", 0}
  end

  test "make jax builds the library", %{tmp_dir: folder} do
    variables = ["BUILD=#{folder}", "PRIV=#{folder}/priv", "XLA_INCLUDE=/elsewhere", "ERL_INCLUDE=/elsewhere"]
    {output, status} = make(["-n", "jax" | variables], %{})
    assert {status, output} == {0, output}
    assert output =~ ~r"-isystem /elsewhere [^\n]*-c c_src/xla/"
    assert output =~ "#{folder}/priv/exphil_native_xla.so"

    {output, 0} =
      make(["-n", "native", "XLA_INCLUDE=" | List.delete(variables, "XLA_INCLUDE=/elsewhere")], %{})

    refute output =~ "exphil_native_xla"
  end

  # g++ takes what a system's header includes for the system's, and Highway's include a file again for each kind of processor. An
  # object that was not built again after such a header had changed ended the VM.
  test "what is compiled for several processors depends on the headers it has for each" do
    for file <- Path.wildcard("c_src/**/*.cpp"), text = File.read!(file), text =~ "<hwy/foreach_target.h>" do
      headers = ~r/^#include "(.*-inl\.hpp)"$/m |> Regex.scan(text, capture: :all_but_first) |> List.flatten()
      {commands, 0} = make(["-n", "-W", file, String.replace("build/#{file}", ".cpp", ".o")], %{})
      assert {file, true} == {file, commands =~ " -MD "}
      dependencies = File.read(String.replace("build/#{file}", ".cpp", ".d"))

      # Where it was built here, and since the Makefile asks for them.
      with {:ok, list} <- dependencies, true <- list =~ "foreach_target.h" do
        for header <- headers, do: assert({file, header, true} == {file, header, list =~ header})
      end
    end
  end

  # Writes the files that g++ would.
  @compiler """
  #!/bin/sh
  while [ $# -gt 0 ]; do
    case $1 in -dumpmachine) echo x86_64-linux-gnu ;; -o) shift; echo >"$1" ;; esac
    shift
  done
  """

  test "a build says how many files it compiles and which this is", %{tmp_dir: folder} do
    compiler = Path.expand("compiler", folder)
    File.write!(compiler, @compiler)
    File.chmod!(compiler, 0o755)
    build = Path.expand("build", folder)

    variables = [
      "CXX=#{compiler} -O2",
      "BUILD=#{build}",
      "PRIV=#{folder}/priv",
      "XLA_INCLUDE=",
      "ERL_INCLUDE=/elsewhere"
    ]

    steps = fn arguments ->
      {output, status} = make(["-j4", "native" | arguments ++ variables], %{})
      assert {status, output} == {0, output}

      for [_, n, of, file] <- Regex.scan(~r"^\[(\d+)/(\d+)\] CXX  (\S.*)$"m, output),
          do: {String.to_integer(n), of, file}
    end

    all = steps.([])
    count = length(all)
    assert count > 40 and Enum.map(all, &elem(&1, 0)) |> Enum.sort() == Enum.to_list(1..count)
    assert Enum.all?(all, &(elem(&1, 1) == "#{count}"))
    assert steps.([]) == []

    for folder <- ~w(session policy), do: File.touch!("#{build}/c_src/core/#{folder}/group_1.o", 0)
    assert [{1, "2", _}, {2, "2", _}] = Enum.sort(steps.([]))
    # Other flags: everything again.
    assert [{_, _, _} | _] = again = steps.(["CXXFLAGS=-O1 -g1"])
    assert length(again) == count and Enum.all?(again, &(elem(&1, 1) == "#{count}"))
  end

  test "a build of the library begins with the files that take longest and has none of a test", %{
    tmp_dir: folder
  } do
    variables = ["BUILD=#{folder}/build", "PRIV=#{folder}/priv", "XLA_INCLUDE=", "ERL_INCLUDE=/elsewhere"]
    {output, 0} = make(["-n", "native" | variables], %{})
    files = for [_, file] <- Regex.scan(~r"CXX  ([\w/]+\.cpp)", output), do: file

    [_, names] =
      Regex.run(~r/^LONGEST := \$\(wildcard \$\(addprefix c_src\/host\/,(.*)\)\)$/m, File.read!("Makefile"))

    longest = for name <- String.split(names), do: "c_src/host/#{name}"
    assert longest != [] and Enum.take(files, length(longest)) == longest

    assert Enum.all?(
             files,
             &String.starts_with?(&1, ["c_src/core/", "c_src/host/", "c_src/nif/", "c_src/cuda/"])
           )

    refute output =~ "fake_" or output =~ "c_src_tests"
  end

  # .ci/setup on a PATH without any of what it looks for, nor apt-get: it lists what is missing.
  test "make demo needs less than make test", %{tmp_dir: folder} do
    for program <- ~w(sh ls id cat),
        do: File.ln_s!(System.find_executable(program), Path.join(folder, program))

    bare = [{"PATH", Path.expand(folder)}, {"CXX", "no-such-compiler"}]

    missing = fn arguments ->
      {output, 1} = System.cmd(Path.expand(".ci/setup"), arguments, env: bare, stderr_to_stdout: true)
      [_, names] = Regex.run(~r/are missing \(named as Debian packages\): (.*)/, output)
      String.split(names)
    end

    for_play = missing.(["--run"])
    assert "g++" in for_play and "make" in for_play
    for test <- ~w(gnuplot-nox clang-format), do: refute(test in for_play)
    assert missing.(["--test"]) == missing.([])
    assert "gnuplot-nox" in missing.([])
    {demo, 0} = make(["-n", "demo"], %{})
    assert demo =~ ~r"^\.ci/setup --run$"m
    assert {:ok, script} = File.read(".ci/setup")
    [for_tests] = Regex.run(~r/--run\) ;;\n  \*\)\n(.*?)esac/s, script, capture: :all_but_first)
    for test <- ~w(erlang-proper catch2), do: assert(for_tests =~ "need #{test} ")
  end
end
