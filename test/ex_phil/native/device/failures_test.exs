defmodule ExPhil.Native.Device.FailuresTest do
  # Failures on a GPU: a kernel that does not compile, and memory that is exhausted. Other calls still work.
  use ExPhil.Native.TestSupport.BackendCase

  import ExPhil.Native.TestSupport.Peer

  @moduletag :gpu
  @moduletag :tmp_dir

  test "a kernel that NVRTC refuses: its log is in the error, and the host still works", %{tmp_dir: folder} do
    kernels = Path.join(folder, "kernels")
    File.cp_r!("kernels", kernels)

    for file <- Path.wildcard(Path.join(kernels, "**/*.cu")) do
      File.write!(file, File.read!(file) <> "\n#error broken on purpose\n")
    end

    code = """
    alias ExPhil.Native.{Error, Policy, SelectiveScan}
    one = {:f32, {1, 1, 1}, <<1.0::float-32-little>>}
    a = {:f32, {1, 1}, <<-1.0::float-32-little>>}
    for _ <- 1..2 do
      try do
        SelectiveScan.scan(one, one, a, one, one, backend: :cuda)
        IO.puts("IT COMPILED")
      rescue
        error in Error -> IO.puts("\#{error.kind}: \#{error.message}")
      end
    end
    {:error, %Error{kind: :compile_failed}} = Policy.load(#{inspect(Policies.checkpoint())}, backend: :cuda)
    {:f32, _, _} = SelectiveScan.scan(one, one, a, one, one, backend: :host)
    {:ok, _} = Policy.load(#{inspect(Policies.checkpoint())}, backend: :host)
    IO.puts("HOST IS SOUND")
    """

    {output, status} =
      peer(code, [
        {"EXPHIL_NATIVE_KERNELS", kernels},
        {"EXPHIL_NATIVE_CACHE", Path.join(folder, "cache")} | library()
      ])

    assert {status, output} == {0, output}
    assert output =~ ~r/compile_failed: .*broken on purpose/s
    assert output =~ "HOST IS SOUND"
    refute output =~ "IT COMPILED"
  end

  test "exhausted device memory: the error gives the requested and the free bytes" do
    # 2^24 states of about 140 KB: more than any GPU has.
    path = Policies.checkpoint(d_inner: 512, d_state: 64)
    before = Policy.load!(Policies.checkpoint(), backend: :cuda)
    session = Policy.new_session!(before)

    assert {:error, %Error{kind: :out_of_memory, message: message}} =
             Policy.load(path, backend: :cuda, max_sessions: Bitwise.bsl(1, 24))

    assert message =~ "free"
    assert message =~ ~r/\d/
    assert {:ok, _} = Policy.step(session, row(Policies.frames(1), 0))
    assert {:ok, _} = Policy.load(path, backend: :cuda)
  end
end
