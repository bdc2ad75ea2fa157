defmodule ExPhil.Native.MakefileTest do
  # What the Makefile finds and would do, without building anything.
  use ExUnit.Case, async: true

  @moduletag :tmp_dir

  # An outer make's variables are not for these; the usual places of XLA's header may have one on this machine.
  defp make(arguments, env) do
    clean = for name <- ~w(MAKEFLAGS MFLAGS MAKELEVEL XLA_INCLUDE VIRTUAL_ENV BUILD), do: {name, nil}
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
end
