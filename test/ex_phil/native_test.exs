defmodule ExPhil.NativeTest do
  # Not async: the environment is shared by the entire VM.
  use ExUnit.Case

  alias ExPhil.Native
  alias ExPhil.Native.Error

  doctest ExPhil.Native

  setup do
    before = System.get_env("EXPHIL_NATIVE_BACKEND")

    on_exit(fn ->
      Native.set_threads(0)
      Application.delete_env(:exphil_native, :backend)

      if before,
        do: System.put_env("EXPHIL_NATIVE_BACKEND", before),
        else: System.delete_env("EXPHIL_NATIVE_BACKEND")
    end)

    System.delete_env("EXPHIL_NATIVE_BACKEND")
  end

  test "info reports what was found" do
    info = Native.info()
    assert info.version == Native.version()
    assert %{loaded: true, reason: nil} = info.nif
    assert File.exists?(info.nif.path)
    assert %{available: true, name: name, details: details} = info.backends.host
    assert is_binary(name) and name != ""
    assert Enum.all?(details, fn {key, value} -> is_atom(key) and is_binary(value) end)
    assert info.threads >= 1
    assert info.nx == nil or is_binary(info.nx)
  end

  test "CUDA is either available with devices, or unavailable with a reason" do
    cuda = Native.info().backends.cuda
    assert cuda.available == Native.cuda_available?()

    if cuda.available do
      assert cuda.reason == nil
      assert [%{index: 0, name: _, details: %{}} | _] = cuda.devices
    else
      assert is_binary(cuda.reason) and cuda.reason != ""
    end
  end

  test "the default backend is from the environment, then the config, then the machine" do
    assert Native.default_backend() == if(Native.cuda_available?(), do: :cuda, else: :host)
    Application.put_env(:exphil_native, :backend, :host)
    assert Native.default_backend() == :host
    System.put_env("EXPHIL_NATIVE_BACKEND", "cuda")
    assert Native.default_backend() == :cuda
    assert Native.info().default_backend == :cuda
  end

  test "threads are set for the entire VM, and invalid numbers are refused" do
    assert Native.set_threads(1) == :ok
    assert Native.info().threads == 1
    assert {:error, %Error{kind: :invalid_argument, argument: ":threads"}} = Native.set_threads(-1)
    assert {:error, %Error{kind: :invalid_argument}} = Native.set_threads(1_000_000)
    assert {:error, %Error{kind: :invalid_argument}} = Native.set_threads(:many)
    assert Native.info().threads == 1
    assert Native.set_threads(0) == :ok
  end
end
