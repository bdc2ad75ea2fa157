defmodule ExPhil.Native.Tools.BenchmarkTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Error
  alias ExPhil.Native.Tools.Benchmark
  alias ExPhil.Native.Tools.Benchmark.Case
  import ExPhil.Native.TestSupport.Numbers

  @few [quick: true, warmup: 0, runs: 3, backend: :host]

  test "every suite measures every case and describes it" do
    parent = self()
    {:ok, report} = Benchmark.run(@few ++ [progress: &send(parent, &1)])

    assert Enum.uniq(Enum.map(report.cases, & &1.suite)) == Benchmark.suites()
    assert report.backend == :host
    assert report.copy_bytes_per_second.memory > 0
    assert {:ok, _, 0} = DateTime.from_iso8601(report.date)

    for result <- report.cases do
      assert result.runs == 3
      assert result.min_us <= result.p50_us and result.p50_us <= result.p99_us
      assert result.p99_us == result.max_us
      assert result.mean_us >= result.min_us and result.mean_us <= result.max_us
      assert result.relative_error <= result.tolerance
      assert result.operations > 0 and result.bytes.in > 0 and result.bytes.out > 0
      assert_in_delta result.speed_up, result.reference_us / result.p50_us, 1.0e-9 * result.speed_up
      bytes = result.bytes.in + result.bytes.out + result.bytes.resident
      ceiling_us = 1.0e6 * bytes / report.copy_bytes_per_second.memory
      assert_in_delta result.ceiling_share, ceiling_us / result.p50_us, 1.0e-9 * result.ceiling_share
      assert result.meets_60_fps == result.p99_us < 1.0e6 / 60
      assert_received {:result, ^result}
    end

    total = length(report.cases)
    assert_received {:case, 1, ^total, "scan: small"}
    assert_received {:case, ^total, ^total, "policy: " <> _}
    assert_received {:run, 3, 3}
  end

  test "the bytes and operations of a scan are those of its shape" do
    {:ok, %{cases: [small | _]}} = Benchmark.run(@few ++ [suites: ["scan"]])
    # batch 1, dim 4, seq 16, state 4: x, dt and y are 64 numbers, b and c too, A is 16.
    assert %{name: "small", shape: [1, 4, 16, 4]} = small
    assert small.bytes == %{in: 4 * (2 * 64 + 2 * 64 + 16), out: 4 * 64, resident: 0}
    assert small.operations == 64 * (1 + 7 * 4)
  end

  test "16-bit types, and the suites that have them" do
    for dtype <- [:f16, :bf16] do
      {:ok, report} = Benchmark.run(@few ++ [dtype: dtype])
      assert report.suites == Benchmark.suites() -- ["policy"]
      small = hd(report.cases)
      assert small.bytes == %{in: 2 * (2 * 64 + 2 * 64) + 4 * 16, out: 2 * 64, resident: 0}
    end
  end

  test "suites run in a fixed order, and only the requested ones" do
    {:ok, report} = Benchmark.run(@few ++ [suites: ["transfer", "step"]])
    assert report.suites == ["step", "transfer"]
    assert Enum.uniq(Enum.map(report.cases, & &1.suite)) == ["step", "transfer"]
  end

  test "a wrong result is not timed" do
    one = wrong_case(f32([1.0, 2.0], {2}), f32([1.0, 2.1], {2}))
    error = assert_raise Error, fn -> Benchmark.measure(one, %{}) end

    assert error.message =~
             ~r/^made up: wrong is wrong: .* the relative error is 0\.04.*, and 0\.001 is allowed/

    not_a_number = {:f32, {1}, <<0x7FC00000::32-little>>}
    error = assert_raise Error, fn -> Benchmark.measure(wrong_case(not_a_number, f32([1.0], {1})), %{}) end
    assert error.message =~ "the relative error is invalid"
    refute_received :called
  end

  defp wrong_case(ours, theirs) do
    parent = self()

    %Case{
      suite: "made up",
      name: "wrong",
      axes: ["n"],
      shape: [2],
      operations: 1,
      bytes: %{in: 1, out: 1, resident: 0},
      inputs: & &1,
      call: fn _ -> send(parent, :called) end,
      check: fn _ -> %{ours: ours, theirs: theirs, nanoseconds: 1, fraction: 1.0} end,
      tolerance: 1.0e-3
    }
  end

  test "bad options are errors that name them" do
    for {options, argument, expected} <- [
          {[fast: true], ":fast", ~r/unknown option :fast; known: :suites/},
          {[suites: ["scan", "speed"]], ":suites", ~r/some of scan, step/},
          {[suites: ["scan", "scan"]], ":suites", ~r/each once/},
          {[suites: []], ":suites", ~r/a list of some/},
          {[runs: 0], ":runs", ~r/from 1 to 1000000, got 0/},
          {[warmup: -1], ":warmup", ~r/from 0 to 1000000, got -1/},
          {[dtype: :f64], ":dtype", ~r/one of :f32, :f16, :bf16, got :f64/},
          {[dtype: :f16, suites: ["policy"]], ":dtype", ~r/f32 for the suite policy/},
          {[quick: 1], ":quick", ~r/true or false/},
          {[backend: :abacus], ":backend", ~r/:auto, :cuda or :host/}
        ] do
      assert {:error, %Error{} = error} = Benchmark.run(options)
      assert error.argument == argument
      assert error.message =~ expected
    end
  end
end
