defmodule ExPhil.Native.Tools.Player.ReportTest do
  use ExUnit.Case, async: true
  doctest ExPhil.Native.Tools.Player.Report

  alias ExPhil.Native.Tools.Player.{Report, Verify}

  @result %{
    frames: 200,
    sessions: 1,
    fps: 50.0,
    missed: 3,
    rollbacks: 0,
    latencies: Enum.map(200..1//-1, &(&1 * 1.0)),
    answers: []
  }

  test "percentiles, the mean and the share of the budget" do
    summary = Report.summarise(@result)
    assert %{p50_us: 100.0, p90_us: 180.0, p99_us: 198.0, max_us: 200.0, mean_us: 100.5} = summary
    assert summary.budget_ms == 20.0
    assert_in_delta summary.budget_share, 198 / 20_000, 1.0e-12
  end

  test "the table reports what was played and whether it was right" do
    summary = Report.summarise(@result)
    table = Report.table(summary, %Verify{against: :logits, frames: 200, worst: 7.0e-7})
    assert table =~ ~r/missed deadlines\s+3/
    assert table =~ ~r/p99 of the 20.00 ms budget\s+0.99 %/
    assert table =~ "all 200 answers match the recorded logits, worst relative error 7.0e-7"
    refute table =~ "rollbacks"

    wrong = %Verify{against: :prefill, frames: 200, failed: 2, worst: :invalid, worst_frame: 17}
    table = Report.table(%{summary | rollbacks: 4}, wrong)
    assert table =~ "2 of 200 answers do NOT match"
    assert table =~ "frame 17"
    assert table =~ ~r/rollbacks\s+4/
  end
end
