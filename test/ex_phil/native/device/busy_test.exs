defmodule ExPhil.Native.Device.BusyTest do
  # Many callers of a device at once, and many results kept. What bounds pinned memory makes no call fail; the fake
  # driver shows the same in test/c_src/cuda/backend_test.cpp.
  use ExPhil.Native.TestSupport.BackendCase

  @moduletag :gpu

  defp scan_arguments(batch, seq, dim, state) do
    shape = {batch, seq, dim}
    b = uniform(2, {batch, seq, state}, -1.0, 1.0)
    [uniform(1, shape, -1.0, 1.0), uniform(3, shape, 0.1, 0.2), uniform(4, {dim, state}, -1.0, -0.1), b, b]
  end

  defp scan(arguments), do: apply(SelectiveScan, :scan, arguments ++ [[backend: :cuda]])

  test "256 processes that scan 8x1024x512x16 at once all get their result" do
    arguments = scan_arguments(8, 1024, 512, 16)
    expected = scan(arguments)

    same =
      1..256
      |> Enum.map(fn _ ->
        Task.async(fn -> for(_ <- 1..4, do: scan(arguments) == expected) |> Enum.all?() end)
      end)
      |> Task.await_many(:infinity)

    assert Enum.all?(same)
  end

  test "a process keeps 10,000 results of 256 KB" do
    arguments = scan_arguments(2, 64, 512, 16)
    expected = scan(arguments)
    kept = for _ <- 1..10_000, do: scan(arguments)
    assert Enum.all?(kept, &(&1 == expected))
  end
end
