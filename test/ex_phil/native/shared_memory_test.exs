defmodule ExPhil.Native.SharedMemoryTest do
  # config :exphil_native, share_memory: true, over the fake driver, whose kernels do nothing, with substitutes for Nx and EXLA's
  # backend. That the device reads these tensors is tested in test/c_src/cuda/device/shared_memory_test.cpp.
  use ExUnit.Case, async: true

  alias ExPhil.Native.{AssociativeScan, Error}
  alias ExPhil.Native.TestSupport.FakeCuda

  @block 0x600000000000
  @bytes 0xC00000

  # x, dt, a, b and c of a scan of this seq in one block, each behind the other.
  @prelude """
  Code.put_compiler_option(:ignore_module_conflict, true)  # where the real Nx is there, too
  for file <- ["fake_nx", "fake_exla"], do: Code.compile_file("test/support/" <> file <> ".exs")
  alias ExPhil.Native.{AssociativeScan, Error, SelectiveScan}
  block = #{@block}
  at = fn address, bytes -> %{kind: :local, address: address, data_size: bytes, handle: nil} end
  f32 = fn offset, shape ->
    EXLA.Backend.tensor(at.(block + offset, 4 * Tuple.product(shape)), {:f, 32}, shape)
  end
  operands = fn seq -> [f32.(0, {2, seq, 64}), f32.(64, {2, seq, 64}), f32.(0, {64, 16}), f32.(4, {2, seq, 16}), f32.(8, {2, seq, 16})] end
  share = &Application.put_env(:exphil_native, :share_memory, &1)
  attempt = fn call ->
    try do
      call.()
      IO.puts("done")
    rescue
      error in Error -> IO.puts("\#{error.kind} \#{error.argument}: \#{error.message}")
    end
  end
  """

  defp run(code) do
    variables = [{"FAKE_CUDA_BLOCK", "#{Integer.to_string(@block, 16)}:#{Integer.to_string(@bytes, 16)}"}]
    {output, status} = FakeCuda.run(@prelude <> code, variables)
    assert status == 0, output
    String.split(output, "\n", trim: true)
  end

  @tag :fake_cuda
  test "every scan reads the tensors where they are, and answers in host memory" do
    output =
      run("""
      share.(true)
      [x, dt, a, b, c] = operands.(40)
      shapes = fn tensors -> Enum.map(tensors, &{&1.shape, byte_size(Nx.to_binary(&1))}) end
      {y, state} = SelectiveScan.scan(x, dt, a, b, c, d: f32.(0, {64}), return_state: true)
      IO.inspect(shapes.([y, state]))
      gradients = SelectiveScan.grad(x, x, dt, a, b, c, backend: :cuda)
      IO.inspect(shapes.(Enum.map([:x, :a, :b], &gradients[&1])))
      IO.inspect(shapes.([AssociativeScan.cumsum(x), AssociativeScan.linear_recurrence(x, dt)]))
      one = f32.(0, {2, 64})
      {y, _} = SelectiveScan.step(f32.(0, {2, 64, 16}), one, one, a, f32.(0, {2, 16}), f32.(0, {2, 16}))
      IO.inspect(shapes.([y]))
      # On a background thread.
      [x | rest] = operands.(20_000)
      IO.inspect(shapes.([apply(SelectiveScan, :scan, [x | rest])]))
      """)

    assert output == [
             "[{{2, 40, 64}, 20480}, {{2, 64, 16}, 8192}]",
             "[{{2, 40, 64}, 20480}, {{64, 16}, 4096}, {{2, 40, 16}, 5120}]",
             "[{{2, 40, 64}, 20480}, {{2, 40, 64}, 20480}]",
             "[{{2, 64}, 512}]",
             "[{{2, 20000, 64}, 10240000}]"
           ]
  end

  @tag :fake_cuda
  test "tensors are copied where sharing is off, on the host, of other clients, and for gradients on the CPU" do
    output =
      run("""
      x = f32.(0, {3, 8})
      AssociativeScan.cumsum(x)
      share.(true)
      IO.puts("on")
      AssociativeScan.cumsum(x)
      IO.puts("off")
      AssociativeScan.cumsum(x, backend: :host)
      AssociativeScan.cumsum(EXLA.Backend.tensor(at.(block, 96), {:f, 32}, {3, 8}, :host))
      AssociativeScan.grad(:cumsum, x, {:f32, {3, 8}, :binary.copy(<<0>>, 96)})
      """)

    assert output == ["copied", "on", "off", "copied", "copied", "copied"]
  end

  @tag :fake_cuda
  test "memory that cannot be read is an error, and later calls work" do
    output =
      run("""
      share.(true)
      sum = fn pointer -> attempt.(fn -> AssociativeScan.cumsum(EXLA.Backend.tensor(pointer, {:f, 32}, {3, 8})) end) end
      sum.(at.(block + #{@bytes} - 96, 96))
      sum.(at.(block + #{@bytes} - 92, 96))
      sum.(at.(block + #{@bytes}, 96))
      sum.(at.(4096, 96))
      sum.(at.(block, 95))
      sum.(at.(-1, 96))
      sum.(at.(Integer.pow(2, 70), 96))
      sum.(%{kind: :ipc, address: nil, data_size: 96, handle: "name"})
      sum.({:raise, "the buffer was deallocated"})
      share.(:yes)
      sum.(at.(block, 96))
      share.(true)
      sum.(at.(block, 96))
      """)

    assert [
             "done",
             "invalid_argument x: x needs 96 bytes of device memory, and its allocation has 92" <> _,
             "invalid_argument x: x is said to be in device memory" <> _,
             "invalid_argument x: x is said to be in device memory" <> _,
             "invalid_argument x: x needs 96 bytes, and its device memory has 95",
             "invalid_argument x: x must be a tensor whose backend gives a local address" <> _,
             "invalid_argument x: x must be a tensor whose backend gives a local address" <> _,
             "invalid_argument x: x must be a tensor whose backend gives a local address" <> _,
             "invalid_argument x: x cannot be read in device memory: the buffer was deallocated",
             "invalid_argument config :exphil_native, :share_memory: " <> _,
             "done"
           ] = output
  end

  test "the library refuses elements on a device where it computes on the host" do
    x = {:f32, {3, 8}, {:device, 4096, 96, nil}}
    error = assert_raise Error, fn -> AssociativeScan.cumsum(x, backend: :host) end
    assert {error.kind, error.argument} == {:unsupported, "x"}
    error = assert_raise Error, fn -> AssociativeScan.grad(:cumsum, x, x, backend: :host) end
    assert {error.kind, error.argument} == {:invalid_argument, "dy"}
  end
end
