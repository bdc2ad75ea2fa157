defmodule ExPhil.Native.NIFTest do
  # Loading: the library that is missing, is none, is of another version, is loaded twice. Each in a VM of its own.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Peer

  @moduletag :tmp_dir
  @moduletag timeout: 120_000

  @report """
  alias ExPhil.Native.{Error, Mamba, SelectiveScan}
  false = ExPhil.Native.available?()
  false = SelectiveScan.available?()
  false = SelectiveScan.cuda_available?()
  %{nif: %{loaded: false, reason: reason}, backends: %{host: %{available: false}, cuda: %{available: false}}} = ExPhil.Native.info()
  {:error, %Error{kind: :backend_unavailable}} = Mamba.load("policy.safetensors")
  {:error, %Error{kind: :backend_unavailable}} = ExPhil.Native.Device.list()
  {:error, %Error{kind: :backend_unavailable}} = ExPhil.Native.Safetensors.read("x")
  {:error, %Error{kind: :backend_unavailable}} = ExPhil.Native.set_threads(1)
  t = {:f32, {1, 1, 1}, <<0::32>>}
  try do
    SelectiveScan.scan(t, t, {:f32, {1, 1}, <<0::32>>}, t, t)
  rescue
    e in Error -> :backend_unavailable = e.kind
  end
  IO.puts("REASON " <> reason)
  """

  test "a missing library: every call says so and nothing crashes", %{tmp_dir: folder} do
    {output, status} = peer(@report, [{"EXPHIL_NATIVE_NIF", Path.join(folder, "absent.so")}])
    assert {status, output} == {0, output}
    assert output =~ ~r/REASON .*has not been built; run `make`/
  end

  test "a file that is no library", %{tmp_dir: folder} do
    path = Path.join(folder, "none.so")
    File.write!(path, "this is not a library")
    {output, status} = peer(@report, [{"EXPHIL_NATIVE_NIF", path}])
    assert {status, output} == {0, output}
    assert output =~ "REASON it cannot be opened"
  end

  # A library of another version: one with a function that the module lacks, and one that refuses the interface.
  @other_version """
  #include <erl_nif.h>
  static ERL_NIF_TERM f(ErlNifEnv* env, int argc, const ERL_NIF_TERM argv[]) { (void)argc; return argv[0]; }
  static int load(ErlNifEnv* env, void** data, ERL_NIF_TERM info) { (void)env; (void)data; (void)info; return RESULT; }
  static ErlNifFunc functions[] = {{NAME, 1, f, 0}};
  ERL_NIF_INIT(Elixir.ExPhil.Native.NIF, functions, load, NULL, NULL, NULL)
  """

  @tag :cc
  test "a library of another version", %{tmp_dir: folder} do
    include = Path.join([:code.root_dir(), "erts-#{:erlang.system_info(:version)}", "include"])
    source = Path.join(folder, "other.c")
    File.write!(source, @other_version)

    for {name, result} <- [{"of_another_version", 0}, {"set_threads", 1}] do
      path = Path.join(folder, "#{name}.so")

      flags = [
        "-shared",
        "-fPIC",
        "-DNAME=\"#{name}\"",
        "-DRESULT=#{result}",
        "-I#{include}",
        source,
        "-o",
        path
      ]

      assert {_, 0} = System.cmd("cc", flags, stderr_to_stdout: true)
      {output, status} = peer(@report, [{"EXPHIL_NATIVE_NIF", path}])
      assert {status, output} == {0, output}
      assert output =~ "REASON it belongs to another version of this project; run `make clean` and `make`"
    end
  end

  test "settings that make no sense are told" do
    {output, 0} =
      peer("IO.inspect(ExPhil.Native.info().nif.reason)", [{"EXPHIL_NATIVE_THREADS", "many"} | library()])

    assert output =~ "refused the settings"

    {output, 0} =
      peer("IO.inspect(ExPhil.Native.info().threads)", [{"EXPHIL_NATIVE_THREADS", "1"} | library()])

    assert output == "1\n"
  end

  test "config that is known only after the module was loaded, as in a release" do
    code = """
    true = ExPhil.Native.available?()
    :ok = Application.load(:exphil_native)
    Application.put_env(:exphil_native, :threads, 1)
    IO.inspect(ExPhil.Native.info().threads)
    """

    assert {"1\n", 0} = peer(code, library())
  end

  backend_test "the module loaded again keeps sessions and their types", %{backend: backend} do
    policy = ExPhil.Native.TestSupport.Policies.checkpoint()

    code = """
    alias ExPhil.Native.{Mamba, NIF}
    session = Mamba.new_session!(Mamba.load!(#{inspect(policy)}, backend: #{inspect(backend)}))
    obs = :binary.copy(<<1.0::float-32-little>>, 13)
    first = Mamba.step!(session, obs)
    snapshot = Mamba.snapshot!(session)
    {NIF, beam, file} = :code.get_object_code(NIF)
    for _ <- 1..3 do
      :code.purge(NIF)
      {:module, NIF} = :code.load_binary(NIF, file, beam)
      true = ExPhil.Native.available?()
      Mamba.restore!(session, snapshot)
      Mamba.step!(session, obs)
      Mamba.snapshot!(session)
      :erlang.garbage_collect()
    end
    :code.purge(NIF)
    other = Mamba.new_session!(session.model)
    true = Mamba.step!(other, obs) == first
    :code.delete(NIF)
    :code.purge(NIF)
    :erlang.garbage_collect()
    IO.puts("SOUND")
    """

    {output, status} = peer(code, library())
    assert {status, output} == {0, output}
    assert output =~ "SOUND"
  end

  backend_test "the VM stops cleanly while calls run", %{backend: backend} do
    policy = ExPhil.Native.TestSupport.Policies.checkpoint()

    code = """
    alias ExPhil.Native.Mamba
    model = Mamba.load!(#{inspect(policy)}, backend: #{inspect(backend)})
    frames = :binary.copy(<<1.0::float-32-little>>, 13 * 5000)
    for _ <- 1..6, do: spawn(fn ->
      session = Mamba.new_session!(model)
      Stream.repeatedly(fn -> Mamba.prefill!(session, frames) end) |> Stream.run()
    end)
    Process.sleep(100)
    System.halt(0)
    """

    for _ <- 1..5 do
      {output, status} = peer(code, library())
      assert {status, output} == {0, ""}
    end
  end
end
