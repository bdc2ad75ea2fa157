defmodule ExPhil.Native.QueueTest do
  # Large calls run on the library's own threads: what the caller sees, callers that die, and steps beside them.
  use ExPhil.Native.TestSupport.BackendCase

  import ExPhil.Native.TestSupport.Peer
  alias ExPhil.Native.{NIF, Queue, Safetensors}

  defp scan_arguments(batch, seq, dim, state \\ 4) do
    shape = {batch, seq, dim}
    b = uniform(2, {batch, seq, state}, -1.0, 1.0)
    [uniform(1, shape, -1.0, 1.0), uniform(3, shape, 0.1, 0.2), uniform(4, {dim, state}, -1.0, -0.1), b, b]
  end

  # What SelectiveScan passes for options that were left out.
  defp nif_scan([x, dt, a, b, c], ref) do
    request = %{
      discretization: :zoh,
      dt_softplus: false,
      dt_range: nil,
      direction: :forward,
      algorithm: :auto
    }

    NIF.scan(:host, 0, x, dt, a, b, c, nil, nil, nil, nil, request, ref)
  end

  test "a large call is queued and answers with one message, a small one answers at once" do
    ref = make_ref()
    assert nif_scan(scan_arguments(16, 60, 512, 16), ref) == :queued
    assert_receive {^ref, {:ok, {{:f32, {16, 60, 512}, _}, nil, nil, nil}}}
    assert {:ok, _} = nif_scan(scan_arguments(1, 4, 8), make_ref())
    refute_received _
  end

  test "an error of a large call is the caller's, and other messages stay" do
    send(self(), :before)
    [x, dt, a, _b, c] = scan_arguments(16, 60, 512, 16)
    wrong = uniform(5, {16, 59, 16}, -1.0, 1.0)

    assert_raise Error, ~r/b/, fn -> SelectiveScan.scan(x, dt, a, wrong, c, backend: :host) end
    assert {:error, %Error{kind: :file_error}} = Policy.load("/nowhere/policy.safetensors")
    assert Process.info(self(), :messages) == {:messages, [:before]}
  end

  test "the receive looks only at messages that came after its reference was made" do
    {:beam_file, _, _, _, _, functions} = :beam_disasm.file(:code.which(Queue))
    code = Enum.find_value(functions, fn f -> if elem(f, 1) == :run, do: elem(f, 4) end)
    assert Enum.any?(code, &match?({:recv_marker_use, _}, &1))
  end

  test "a large call gives the bits of the same work in small calls" do
    arguments = [x, dt, a, b, c] = scan_arguments(24, 40, 300, 16)
    {:f32, _, whole} = apply(SelectiveScan, :scan, arguments ++ [[backend: :host]])

    parts =
      for i <- 0..23, into: <<>> do
        [x, dt, b, c] = for t <- [x, dt, b, c], do: part(t, i)
        {:f32, _, y} = SelectiveScan.scan(x, dt, a, b, c, backend: :host)
        y
      end

    assert whole == parts
  end

  defp part({type, {batch, seq, n}, binary}, i) do
    bytes = div(byte_size(binary), batch)
    {type, {1, seq, n}, binary_part(binary, i * bytes, bytes)}
  end

  backend_test "callers that die leave nothing behind", %{backend: backend} do
    arguments = scan_arguments(16, 60, 512, 16)
    expected = apply(SelectiveScan, :scan, arguments ++ [[backend: backend]])

    for round <- 1..20 do
      pids =
        for _ <- 1..16, do: spawn(fn -> apply(SelectiveScan, :scan, arguments ++ [[backend: backend]]) end)

      Process.sleep(rem(round, 5))
      for pid <- pids, do: Process.exit(pid, :kill)
    end

    assert apply(SelectiveScan, :scan, arguments ++ [[backend: backend]]) == expected
  end

  @moduletag :tmp_dir
  @nominal 2_147_483_648

  # Two jobs read files at once. Without an end of theirs the third read would come after one of two gigabytes.
  test "a file is not read to its end for a caller that has ended", %{tmp_dir: folder} do
    path = sparse(Path.join(folder, "sparse.safetensors"))
    small = Path.join(folder, "small.safetensors")
    :ok = Safetensors.write(small, %{"x" => {:f32, {1}, <<0::32>>}})
    before = bytes_read()

    callers =
      for _ <- 1..2 do
        spawn_monitor(fn ->
          :queued = NIF.read_safetensors(path, make_ref())
          await_more_than(before + 4_194_304)
        end)
      end

    for {pid, ref} <- callers, do: assert_receive({:DOWN, ^ref, :process, ^pid, :normal}, 60_000)
    assert {:ok, _} = Safetensors.read(small)
    assert bytes_read() - before < @nominal
  end

  # Zeros that take no room on the disk.
  defp sparse(path) do
    header = ~s({"x":{"dtype":"U8","shape":[#{@nominal}],"data_offsets":[0,#{@nominal}]}})
    size = 8 + byte_size(header) + @nominal
    File.write!(path, <<byte_size(header)::64-little, header::binary>>)
    {:ok, file} = :file.open(path, [:read, :write, :raw])
    {:ok, ^size} = :file.position(file, size)
    :ok = :file.truncate(file)
    :ok = :file.close(file)
    path
  end

  # By this VM, as Linux counts.
  defp bytes_read do
    [_, bytes] = Regex.run(~r/rchar: (\d+)/, File.read!("/proc/self/io"))
    String.to_integer(bytes)
  end

  defp await_more_than(bytes) do
    if bytes_read() <= bytes do
      Process.sleep(1)
      await_more_than(bytes)
    end
  end

  test "1,000 processes that queue at once all get their own result" do
    arguments = scan_arguments(4, 60, 256, 16)
    expected = apply(SelectiveScan, :scan, arguments ++ [[backend: :host]])

    same =
      1..1000
      |> Enum.map(fn _ ->
        Task.async(fn -> apply(SelectiveScan, :scan, arguments ++ [[backend: :host]]) end)
      end)
      |> Task.await_many(:infinity)
      |> Enum.all?(&(&1 == expected))

    assert same
  end

  # Everything that a call of hundreds of milliseconds does on its caller's scheduler is to be queued, and to wait in a
  # receive. latency_test.exs measures the steps beside such calls.
  test "calls of hundreds of milliseconds hold no normal scheduler" do
    model = Policy.load!(Policies.checkpoint(), backend: :host)
    {:f32, _, obs} = Policies.frames(1)
    %{d_input: d_input} = Policy.info!(model)
    frames = :binary.copy(obs, 40_000)
    windows = {:f32, {250, 60, d_input}, :binary.copy(obs, 250 * 60)}
    [x, dt, a, b, c] = scan_arguments(8, 1024, 512, 128)
    session = Policy.new_session!(model)

    for {function, call} <- [
          prefill: fn -> Policy.prefill!(session, frames) end,
          window: fn -> Policy.window!(model, windows) end,
          scan: fn -> SelectiveScan.scan(x, dt, a, b, c, backend: :host) end,
          scan_grad: fn -> SelectiveScan.grad(x, x, dt, a, b, c, backend: :host) end,
          load_policy: fn -> Policy.load!(Policies.checkpoint(), backend: :host) end
        ] do
      assert {function, returned(function, call)} == {function, [:queued]}
    end
  end

  # What the function of the library returned to the process that makes the call, each time.
  defp returned(function, call) do
    caller = Task.async(fn -> receive(do: (:go -> call.())) && :done end)
    1 = :erlang.trace(caller.pid, true, [:call])
    assert :erlang.trace_pattern({NIF, function, :_}, [{:_, [], [{:return_trace}]}], [:local]) > 0
    send(caller.pid, :go)
    assert Task.await(caller, :infinity) == :done
    :erlang.trace_pattern({NIF, function, :_}, false, [:local])
    delivered = :erlang.trace_delivered(:all)
    receive do: ({:trace_delivered, :all, ^delivered} -> :ok)
    results(function)
  end

  defp results(function) do
    receive do
      {:trace, _pid, :return_from, {NIF, ^function, _arity}, result} -> [result | results(function)]
      {:trace, _pid, :call, _call} -> results(function)
    after
      0 -> []
    end
  end

  test "the module is loaded again, and purged, while large calls run" do
    code = """
    alias ExPhil.Native.{Error, Policy, NIF, SelectiveScan}
    x = {:f32, {8, 1024, 512}, :binary.copy(<<0.1::float-32-little>>, 8 * 1024 * 512)}
    b = {:f32, {8, 1024, 16}, :binary.copy(<<0.1::float-32-little>>, 8 * 1024 * 16)}
    a = {:f32, {512, 16}, :binary.copy(<<-1.0::float-32-little>>, 512 * 16)}
    scan = fn -> SelectiveScan.scan(x, x, a, b, b, backend: :host) end
    expected = scan.()
    load = fn -> Policy.load!(#{inspect(Policies.checkpoint())}, backend: :host) end
    {NIF, beam, file} = :code.get_object_code(NIF)
    # Purging ends processes that are inside the old code, which small calls are for a moment. Large ones are not.
    purge = fn purge -> :code.soft_purge(NIF) || purge.(purge) end
    for _ <- 1..5 do
      scans = for _ <- 1..6, do: Task.async(scan)
      loads = for _ <- 1..6, do: Task.async(load)
      Process.sleep(10)
      {:module, NIF} = :code.load_binary(NIF, file, beam)
      purge.(purge)
      true = Enum.all?(Task.await_many(scans, :infinity), &(&1 == expected))
      for model <- Task.await_many(loads, :infinity), do: {:ok, _} = Policy.new_session(model)
    end
    expected = :erlang.phash2(expected)
    scans = for _ <- 1..4, do: Task.async(fn -> :erlang.phash2(scan.()) end)
    # A load that ends after the module is gone, and used after it is back, has a model of the library before.
    loads = for _ <- 1..4, do: Task.async(fn -> try(do: load.(), rescue: (_ in Error -> :refused)) && :ended end)
    Process.sleep(20)
    :code.delete(NIF)
    purge.(purge)
    :erlang.garbage_collect()
    true = Enum.all?(Task.await_many(scans, :infinity), &(&1 == expected))
    true = Enum.all?(Task.await_many(loads, :infinity), &(&1 == :ended))
    :erlang.garbage_collect()
    IO.puts("SOUND")
    """

    {output, status} = peer(code, library())
    assert {status, output} == {0, output}
    assert output =~ "SOUND"
  end

  test "the VM stops cleanly while large calls wait and run" do
    code = """
    alias ExPhil.Native.{Policy, SelectiveScan}
    x = {:f32, {8, 1024, 512}, :binary.copy(<<0.1::float-32-little>>, 8 * 1024 * 512)}
    b = {:f32, {8, 1024, 16}, :binary.copy(<<0.1::float-32-little>>, 8 * 1024 * 16)}
    a = {:f32, {512, 16}, :binary.copy(<<-1.0::float-32-little>>, 512 * 16)}
    main = self()
    for _ <- 1..8, do: spawn(fn ->
      Stream.repeatedly(fn -> SelectiveScan.scan(x, x, a, b, b, backend: :host) && send(main, :called) end) |> Stream.run()
    end)
    for _ <- 1..4, do: spawn(fn ->
      Stream.repeatedly(fn -> Policy.load!(#{inspect(Policies.checkpoint())}, backend: :host) && send(main, :called) end) |> Stream.run()
    end)
    for _ <- 1..20, do: receive(do: (:called -> :ok))
    System.halt(0)
    """

    for _ <- 1..3 do
      {output, status} = peer(code, library())
      assert {status, output} == {0, ""}
    end
  end
end
