defmodule ExPhil.Native.NIFTest do
  # Loading: a library that is missing, invalid, of another version, or loaded twice. Each in a separate VM.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Peer
  alias ExPhil.Native.TestSupport.{FakeCuda, Policies}

  @moduletag :tmp_dir

  @report """
  alias ExPhil.Native.{Error, Policy, SelectiveScan}
  false = ExPhil.Native.available?()
  false = SelectiveScan.available?()
  false = SelectiveScan.cuda_available?()
  %{nif: %{loaded: false, reason: reason}, backends: %{host: %{available: false}, cuda: %{available: false}}} = ExPhil.Native.info()
  {:error, %Error{kind: :backend_unavailable}} = Policy.load("policy.safetensors")
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

  test "a missing library: every call returns the reason and nothing crashes", %{tmp_dir: folder} do
    {output, status} = peer(@report, [{"EXPHIL_NATIVE_NIF", Path.join(folder, "absent.so")}])
    assert {status, output} == {0, output}
    assert output =~ ~r/REASON .*has not been built; run `make`/
  end

  test "a file that is not a library", %{tmp_dir: folder} do
    path = Path.join(folder, "none.so")
    File.write!(path, "this is not a library")
    {output, status} = peer(@report, [{"EXPHIL_NATIVE_NIF", path}])
    assert {status, output} == {0, output}
    assert output =~ "REASON it cannot be opened"
  end

  test "a kernel cache that others can write is refused, with one warning", %{tmp_dir: folder} do
    cache = Path.join(folder, "cache")
    File.mkdir!(cache)
    File.chmod!(cache, 0o777)

    code = """
    for _ <- 1..3, do: ExPhil.Native.info()
    :ok = ExPhil.Native.set_threads(1)
    """

    {output, 0} = peer(code, [{"EXPHIL_NATIVE_CACHE", cache} | library()])

    if (ExPhil.Native.info().backends.cuda.reason || "") =~ "has no CUDA backend" do
      assert output == ""
    else
      assert [_, warning] = String.split(output, "exphil_native: the kernel cache")
      assert warning =~ cache and warning =~ "chmod go-w"
    end

    File.chmod!(cache, 0o700)
    assert {"", 0} = peer(code, [{"EXPHIL_NATIVE_CACHE", cache} | library()])
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
      assert output =~ "REASON it was built from another version of this project; run `make clean` and `make`"
    end
  end

  @refused """
  alias ExPhil.Native.{Error, SelectiveScan}
  false = ExPhil.Native.available?()
  %{nif: %{loaded: false, reason: reason}, backends: %{host: %{available: false}}} = ExPhil.Native.info()
  {:error, %Error{kind: :invalid_argument, argument: name} = error} = ExPhil.Native.Device.fetch()
  {:error, ^error} = ExPhil.Native.Policy.load("policy.safetensors")
  {:error, ^error} = ExPhil.Native.set_threads(1)
  t = {:f32, {1, 1, 1}, <<0::32>>}
  ^error =
    try do
      SelectiveScan.scan(t, t, {:f32, {1, 1}, <<0::32>>}, t, t)
    rescue
      raised in Error -> raised
    end
  ^reason = error.message
  IO.puts("REFUSED " <> name <> ": " <> reason)
  """

  test "an environment variable with a bad value is refused with its name" do
    for {name, value, words} <- [
          {"EXPHIL_NATIVE_THREADS", "many", "from 0 to 1024"},
          {"EXPHIL_NATIVE_THREADS", "1025", "from 0 to 1024"},
          {"EXPHIL_NATIVE_PINNED_LIMIT", "512M", "from 0 to"}
        ] do
      {output, status} = peer(@refused, [{name, value} | library()])
      assert {status, output} == {0, output}
      assert output =~ "REFUSED #{name}: #{name} must be a number #{words}"
      assert output =~ ~s(got "#{value}")
    end
  end

  test "config with a bad value is refused with its key" do
    for {key, value} <- [threads: "many", threads: -1, pinned_limit: 1.5, cache: :here] do
      code = "Application.put_env(:exphil_native, #{inspect(key)}, #{inspect(value)})\n" <> @refused
      {output, status} = peer(code, library())
      assert {status, output} == {0, output}
      assert output =~ "REFUSED #{inspect(key)}: #{inspect(key)} must be"
    end
  end

  test "threads from the environment, set again later" do
    code = """
    IO.inspect(ExPhil.Native.info().threads)
    :ok = ExPhil.Native.set_threads(2)
    :code.purge(ExPhil.Native.NIF)
    {:module, _} = :code.load_file(ExPhil.Native.NIF)
    IO.inspect(ExPhil.Native.info().threads)
    """

    assert peer(code, [{"EXPHIL_NATIVE_THREADS", "1"} | library()]) == {"1\n2\n", 0}
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
    policy = Policies.checkpoint()

    code = """
    alias ExPhil.Native.{Policy, NIF}
    session = Policy.new_session!(Policy.load!(#{inspect(policy)}, backend: #{inspect(backend)}))
    obs = :binary.copy(<<1.0::float-32-little>>, 13)
    first = Policy.step!(session, obs)
    snapshot = Policy.snapshot!(session)
    {NIF, beam, file} = :code.get_object_code(NIF)
    for _ <- 1..3 do
      :code.purge(NIF)
      {:module, NIF} = :code.load_binary(NIF, file, beam)
      true = ExPhil.Native.available?()
      Policy.restore!(session, snapshot)
      Policy.step!(session, obs)
      Policy.snapshot!(session)
      :erlang.garbage_collect()
    end
    :code.purge(NIF)
    other = Policy.new_session!(session.policy)
    true = Policy.step!(other, obs) == first
    :code.delete(NIF)
    :code.purge(NIF)
    :erlang.garbage_collect()
    IO.puts("SOUND")
    """

    {output, status} = peer(code, library())
    assert {status, output} == {0, output}
    assert output =~ "SOUND"
  end

  # Calls of six processes, for which the library's threads copy frames or compute, while the VM halts.
  defp halting(backend, frames) do
    """
    alias ExPhil.Native.Policy
    model = Policy.load!(#{inspect(Policies.checkpoint())}, backend: #{inspect(backend)})
    frames = :binary.copy(<<1.0::float-32-little>>, 13 * #{frames})
    main = self()
    for _ <- 1..6, do: spawn(fn ->
      session = Policy.new_session!(model)
      Stream.repeatedly(fn -> Policy.prefill!(session, frames) && send(main, :called) end) |> Stream.run()
    end)
    for _ <- 1..12, do: receive(do: (:called -> :ok))
    System.halt(0)
    """
  end

  backend_test "the VM stops cleanly while calls run", %{backend: backend} do
    for _ <- 1..5 do
      {output, status} = peer(halting(backend, 5000), slow_exit() ++ library())
      assert {status, output} == {0, ""}
    end
  end

  @tag :fake_cuda
  test "the VM stops cleanly while calls run over the fake driver" do
    {output, status} = FakeCuda.run(halting(:cuda, 200_000), slow_exit())
    assert {status, output} == {0, ""}
  end
end
