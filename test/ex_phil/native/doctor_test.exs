defmodule ExPhil.Native.DoctorTest do
  # Also of mix exphil.doctor.
  # Not async: there is one Mix shell.
  use ExUnit.Case

  import ExPhil.Native.TestSupport.Peer

  alias ExPhil.Native.{Doctor, Error}
  alias ExPhil.Native.TestSupport.MixShell

  @host %{available: true, name: "AVX2", details: %{}}
  @bare %{
    info: %{
      version: "0.1.0",
      nif: %{loaded: true, path: "priv/exphil_native.so", reason: nil},
      backends: %{host: @host, cuda: %{available: false, reason: "libcuda.so.1 was not found", devices: []}},
      default_backend: :host,
      threads: 2,
      nx: nil,
      xla: %{registered: false, reason: "not loaded"}
    },
    refused: [],
    packages: [{"g++", true}, {"catch2", false}],
    compiler: "g++ 12.2.0",
    make: "GNU Make 4.3",
    cuda_headers: [],
    schedulers: {16, :unbound, true},
    system: "Elixir 1.14.0, Erlang/OTP 25"
  }

  test "each missing thing has a cost and a remedy" do
    page = Doctor.page(@bare)
    assert page =~ ~r/\[ok\] compiler\s+g\+\+ 12.2.0/
    assert page =~ ~r/\[--\] catch2.*\n.*costs: .*tests.*\n.*apt-get install .*catch2/
    assert page =~ ~r/\[--\] CUDA headers.*\n.*only the CPU backend is built\n.*CUDA_HOME/
    assert page =~ ~r/\[--\] CUDA\s+libcuda.so.1 was not found\n.*costs: everything runs on the CPU/
    assert page =~ ~r/\[--\] Nx/
    assert page =~ ~r/\[ok\] default backend\s+:host/
    missing = page |> String.split("[--]") |> length()
    assert page |> String.split("costs: ") |> length() == missing
    assert page |> String.split("get it: ") |> length() == missing
  end

  test "Nx, with and without the custom calls" do
    with_nx = put_in(@bare.info.nx, "0.13.1")
    assert Doctor.page(with_nx) =~ ~r/\[ok\] Nx\s+0.13.1\n.*\[--\] XLA\s+not loaded\n.*costs: .*host memory/
    registered = put_in(with_nx.info.xla, %{registered: true, reason: nil})
    assert Doctor.page(registered) =~ ~r/\[ok\] XLA\s+the custom calls are registered/
  end

  test "few schedulers that are not bound to cores" do
    assert Doctor.page(@bare) =~ ~r/\[ok\] schedulers\s+16, unbound/

    assert Doctor.page(%{@bare | schedulers: {2, :default_bind, true}}) =~
             ~r/\[ok\] schedulers\s+2, default_bind/

    page = Doctor.page(%{@bare | schedulers: {2, :unbound, true}})
    assert page =~ ~r/\[--\] schedulers\s+2, not bound.*\n.*costs: .*\n.*get it: .*\+sbt db/
  end

  test "schedulers that the VM cannot bind" do
    page = Doctor.page(%{@bare | schedulers: {2, :unbound, false}})
    assert page =~ ~r/\[ok\] schedulers\s+2, unbound: .*cannot bind them/
    refute page =~ "+sbt"
  end

  test "whether the VM can bind its schedulers, where it knows its cores and where it does not" do
    asked = "IO.inspect(ExPhil.Native.Tools.Machine.can_bind?())"
    bound = "IO.inspect(:erlang.system_info(:scheduler_bind_type) != :unbound)"

    # +ssrct leaves the cores unknown, as a machine without /sys does.
    for unknown <- ["", "+ssrct "] do
      {answer, 0} = peer(asked, library(), ["--erl", unknown])
      {found, status} = peer(bound, library(), ["--erl", unknown <> "+sbt db"])
      assert String.trim(answer) == to_string(status == 0 and found == "true\n")
    end

    assert {"false\n", 0} = peer(asked, library(), ["--erl", "+ssrct"])
  end

  test "a setting that calls refuse: its name, its value, and what it may be; nothing sends to the build" do
    threads = ~s(EXPHIL_NATIVE_THREADS must be a number from 0 to 1024, got "abc")
    nif = %{loaded: false, path: "priv/exphil_native.so", reason: threads}
    backends = %{@bare.info.backends | host: %{@host | available: false}}
    error = Error.new(:invalid_argument, "EXPHIL_NATIVE_THREADS", threads)
    page = Doctor.page(%{@bare | info: %{@bare.info | nif: nif, backends: backends}, refused: [error]})
    assert page =~ ~r/\[!!\] #{threads}\n.*costs: .*\n.*mend it: .*EXPHIL_NATIVE_THREADS/
    assert page =~ ~r/\[ok\] NIF/
    assert page =~ ~r/\[--\] host\s+not known: a setting is refused\n.*\n.*see Settings/
    refute page =~ "make native"
    refute page =~ "default backend"
  end

  @settings """
  for error <- ExPhil.Native.Tools.Machine.refused(), do: IO.puts(error.argument <> ": " <> error.message)
  """

  test "every variable of the environment with a value that calls refuse is found" do
    env = [{"EXPHIL_NATIVE_BACKEND", "gpu"}, {"EXPHIL_NATIVE_THREADS", "abc"} | library()]
    assert {output, 0} = peer(@settings, env)
    assert output =~ ~s(EXPHIL_NATIVE_BACKEND: EXPHIL_NATIVE_BACKEND must be auto, cuda or host, got "gpu"\n)

    assert output =~
             ~s(EXPHIL_NATIVE_THREADS: EXPHIL_NATIVE_THREADS must be a number from 0 to 1024, got "abc"\n)

    config = "Application.put_env(:exphil_native, :threads, -1)\n"
    assert {":threads: :threads must be" <> _, 0} = peer(config <> @settings, library())
    assert {"", 0} = peer(@settings, library())
  end

  test "a backend that the environment names and that is not here" do
    env = [{"EXPHIL_NATIVE_BACKEND", "cuda"}, {"EXPHIL_NATIVE_LIBCUDA", "/nowhere/libcuda.so"} | library()]
    assert {output, 0} = peer(@settings, env)

    assert output ==
             ~s(EXPHIL_NATIVE_BACKEND: EXPHIL_NATIVE_BACKEND must be a backend that is available here, got "cuda"\n)
  end

  test "the task's status is 1 where calls refuse a setting" do
    MixShell.capture()
    before = System.get_env("EXPHIL_NATIVE_BACKEND")

    on_exit(fn ->
      if before,
        do: System.put_env("EXPHIL_NATIVE_BACKEND", before),
        else: System.delete_env("EXPHIL_NATIVE_BACKEND")
    end)

    System.put_env("EXPHIL_NATIVE_BACKEND", "gpu")
    assert catch_exit(Mix.Tasks.Exphil.Doctor.run([])) == {:shutdown, 1}
    page = MixShell.output()
    assert page =~ ~r/\[!!\] EXPHIL_NATIVE_BACKEND must be auto, cuda or host, got "gpu"/
    refute page =~ "default backend"
  end

  test "a GPU without NVRTC, and one with it" do
    details = %{
      driver: "libcuda.so.1",
      driver_version: "13.0",
      compute_capability: "9.0",
      total_memory: "150000000000",
      reason: "libnvrtc was not found"
    }

    cuda = %{
      available: false,
      reason: "libnvrtc was not found",
      devices: [%{index: 0, name: "NVIDIA H200", details: details}]
    }

    page = Doctor.page(put_in(@bare.info.backends.cuda, cuda))
    assert page =~ ~r/\[ok\] CUDA driver\s+CUDA 13.0/
    assert page =~ ~r/\[--\] NVRTC\s+libnvrtc was not found/
    assert page =~ ~r/\[ok\] GPU 0\s+NVIDIA H200, compute capability 9.0, 139 GiB/

    found = Map.merge(details, %{nvrtc: "libnvrtc.so.13", nvrtc_version: "13.0"})
    full = put_in(cuda.devices, [%{index: 0, name: "NVIDIA H200", details: found}])
    page = Doctor.page(put_in(@bare.info.backends.cuda, %{full | available: true, reason: nil}))
    assert page =~ ~r/\[ok\] NVRTC\s+13.0 \(libnvrtc.so.13\)/
  end

  test "where nothing is built the page has no line about a build" do
    bare = %{@bare | packages: nil, compiler: nil, make: nil, cuda_headers: nil}
    page = Doctor.page(bare)
    assert page =~ ~r/\AMachine\n  \[ok\] system\s+Elixir 1.14.0/
    refute page =~ "Build" or page =~ "compiler" or page =~ "gnuplot" or page =~ "CUDA headers"
  end

  test "a library that did not load is reported as missing" do
    info = %{
      @bare.info
      | nif: %{loaded: false, path: "priv/exphil_native.so", reason: "no such file"},
        backends: %{
          host: %{available: false, name: nil, details: %{}},
          cuda: %{available: false, reason: "the NIF is not loaded", devices: []}
        }
    }

    page = Doctor.page(%{@bare | info: info, compiler: nil})
    assert page =~ ~r/\[--\] NIF\s+no such file/
    assert page =~ ~r/\[--\] compiler\s+not found/
    assert page =~ ~r/\[--\] host/
  end

  test "the page of this machine lists what this test run uses" do
    MixShell.capture()
    Mix.Tasks.Exphil.Doctor.run([])
    page = MixShell.output()
    assert page =~ "Elixir #{System.version()}"
    assert page =~ ~r/\[ok\] NIF/
    assert page =~ ~r/\[ok\] host/
    assert page =~ ~r/\[ok\] packages\s+.*g\+\+/
  end
end
