defmodule ExPhil.Native.DeviceTest do
  # Not async: the environment is shared by the entire VM.
  use ExUnit.Case

  alias ExPhil.Native.{Device, Error, Policy}
  alias ExPhil.Native.TestSupport.Policies

  doctest ExPhil.Native.Device

  setup do
    before = System.get_env("EXPHIL_NATIVE_BACKEND")

    on_exit(fn ->
      Application.delete_env(:exphil_native, :backend)
      Application.delete_env(:exphil_native, :device)

      if before,
        do: System.put_env("EXPHIL_NATIVE_BACKEND", before),
        else: System.delete_env("EXPHIL_NATIVE_BACKEND")
    end)

    System.delete_env("EXPHIL_NATIVE_BACKEND")
  end

  test "the host is always in the list, and every device can be fetched" do
    {:ok, devices} = Device.list()
    assert Enum.any?(devices, &(&1.backend == :host))

    for device <- devices do
      assert Device.fetch(backend: device.backend, device: device.index) == {:ok, device}
    end
  end

  test "a named backend takes precedence over the environment, the environment over the config" do
    System.put_env("EXPHIL_NATIVE_BACKEND", "cuda")
    assert {:ok, %Device{backend: :host}} = Device.fetch(backend: :host)
    Application.put_env(:exphil_native, :backend, :cuda)
    System.put_env("EXPHIL_NATIVE_BACKEND", "host")
    assert {:ok, %Device{backend: :host}} = Device.fetch()
    assert {:ok, %Device{backend: :host}} = Device.fetch(backend: :auto)
    Application.put_env(:exphil_native, :device, 5)
    config = "config :exphil_native, :device"
    assert {:error, %Error{kind: :backend_unavailable, argument: ^config} = error} = Device.fetch()
    assert error.message =~ "#{config}: the host backend has only device 0, not 5"
    assert {:error, %Error{argument: ^config}} = Policy.load(Policies.checkpoint())
    # The call's own takes precedence.
    assert {:ok, %Device{index: 0}} = Device.fetch(device: 0)
    assert {:error, %Error{argument: ":device"}} = Device.fetch(device: 6)
    Application.put_env(:exphil_native, :device, :first)
    assert {:error, %Error{argument: ^config, message: message}} = Device.fetch()
    assert message =~ "must be the index of a device, got :first"
  end

  test "a requested backend that is unavailable is an error, never a fallback" do
    unless ExPhil.Native.cuda_available?() do
      expected = ExPhil.Native.info().backends.cuda.reason
      assert {:error, %Error{kind: :backend_unavailable, message: message}} = Device.fetch(backend: :cuda)
      assert message =~ expected
      System.put_env("EXPHIL_NATIVE_BACKEND", "cuda")
      assert {:error, %Error{kind: :backend_unavailable}} = Policy.load(Policies.checkpoint())
    end
  end

  test "bad choices are errors that name the choice" do
    assert {:error, %Error{argument: ":backend", message: message}} = Device.fetch(backend: :gpu)
    assert message =~ ":gpu"
    assert {:error, %Error{argument: ":device"}} = Device.fetch(device: -1)
    assert {:error, %Error{argument: ":device"}} = Device.fetch(backend: :host, device: 1)
    assert {:error, %Error{argument: ":device"}} = Device.fetch(device: :first)
    assert {:error, %Error{kind: :backend_unavailable}} = Device.fetch(backend: :cuda, device: 999)
    System.put_env("EXPHIL_NATIVE_BACKEND", "tpu")
    assert {:error, %Error{argument: "EXPHIL_NATIVE_BACKEND"}} = Device.fetch()
    System.delete_env("EXPHIL_NATIVE_BACKEND")
    Application.put_env(:exphil_native, :backend, "host")
    assert {:error, %Error{argument: "config :exphil_native, :backend"}} = Device.fetch()
  end
end
