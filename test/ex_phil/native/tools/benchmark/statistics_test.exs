defmodule ExPhil.Native.Tools.Benchmark.StatisticsTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Tools.Benchmark.{Inputs, Report, Statistics}
  import ExPhil.Native.TestSupport.Numbers

  doctest ExPhil.Native.Tools.Benchmark.Statistics
  doctest ExPhil.Native.Tools.Benchmark.Report

  test "mean, deviation and percentiles of known times" do
    summary = Statistics.summarise(Enum.map([9, 2, 4, 4, 5, 4, 7, 5], &(&1 * 1000)))
    assert summary.mean_us == 5.0
    assert_in_delta summary.stddev_us, :math.sqrt(32 / 7), 1.0e-12
    assert {summary.min_us, summary.p50_us, summary.max_us} == {2.0, 4.0, 9.0}

    hundred = Statistics.summarise(Enum.map(Enum.shuffle(1..100), &(&1 * 1000)))
    assert {hundred.p50_us, hundred.p90_us, hundred.p99_us, hundred.max_us} == {50.0, 90.0, 99.0, 100.0}
    assert hundred.mean_us == 50.5
    assert_in_delta hundred.stddev_us, :math.sqrt(100 * 101 / 12), 1.0e-12
  end

  test "one run is its own percentile with deviation 0" do
    one = Statistics.summarise([1500])
    assert {one.runs, one.mean_us, one.stddev_us, one.p50_us, one.p99_us} == {1, 1.5, 0.0, 1.5, 1.5}
  end

  test "the relative error is that of the norm, in any type" do
    assert Statistics.relative_error(f32([3.0, 4.5], {2}), f32([3.0, 4.0], {2})) == 0.1
    assert Statistics.relative_error(f16([3.0, 4.5], {2}), f32([3.0, 4.0], {2})) == 0.1
    assert Statistics.relative_error(bf16([3.0, 4.5], {2}), f16([3.0, 4.0], {2})) == 0.1
    assert Statistics.relative_error(f32([0.5], {1}), f32([0.0], {1})) == 0.5
    # Elements after the reference's part are not compared.
    assert Statistics.relative_error(f32([1.0, 9.0], {2}), f32([1.0], {1})) == 0.0
  end

  test "NaN, infinity and missing elements are never right" do
    one = f32([1.0], {1})
    for bits <- [0x7FC00000, 0x7F800000], do: assert(invalid?({:f32, {1}, <<bits::32-little>>}, one))
    for bits <- [0x7E00, 0x7C00], do: assert(invalid?({:f16, {1}, <<bits::16-little>>}, one))
    for bits <- [0x7FC0, 0x7F80], do: assert(invalid?({:bf16, {1}, <<bits::16-little>>}, one))
    assert invalid?(one, f32([1.0, 1.0], {2}))
  end

  defp invalid?(ours, theirs), do: Statistics.relative_error(ours, theirs) == :invalid

  test "a large tensor's error is found in samples" do
    right = uniform(1, {100_000}, -1.0, 1.0)
    wrong = f32(Enum.map(floats(right), &(&1 * 1.01)), {100_000})
    assert_in_delta Statistics.relative_error(wrong, right), 0.01, 1.0e-5
  end

  test "inputs are in their range, different for each seed and reproducible" do
    for type <- [:f32, :f16, :bf16] do
      {^type, {40, 50}, _} = tensor = Inputs.uniform(type, {40, 50}, 7, {-2.0, 3.0})
      values = floats(tensor)
      assert length(values) == 2000
      assert Enum.all?(values, &(&1 >= -2.0 and &1 <= 3.0))
      # The mean of 2000 draws with a standard deviation of 1.44 is within 0.2 of 0.5.
      assert_in_delta Enum.sum(values) / 2000, 0.5, 0.2
      assert length(Enum.uniq(values)) > 400
      assert Inputs.uniform(type, {40, 50}, 7, {-2.0, 3.0}) == tensor
      assert Inputs.uniform(type, {40, 50}, 8, {-2.0, 3.0}) != tensor
    end
  end

  test "numbers have three digits and a unit" do
    assert Report.rate(18.04e9) == "18.0 GB/s"
    assert Report.rate(999.0) == "999 B/s"
    assert Report.rate(4.2e12) == "4.20 TB/s"
    assert Report.time(0.5) == "0.50 us"
  end
end
