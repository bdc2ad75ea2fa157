defmodule ExPhil.Native.ExamplesTest do
  # Every program in examples/ runs unchanged.
  use ExUnit.Case
  import ExUnit.CaptureIO

  defp run(name), do: capture_io(fn -> Code.eval_file(Path.join([File.cwd!(), "examples", name])) end)

  test "scan.exs: scan and step agree" do
    assert [_, difference] = Regex.run(~r/scan and step agree to (\S+)/, run("scan.exs"))
    assert String.to_float(difference) < 1.0e-5
  end

  test "rollback.exs: the replay gives the same bits" do
    assert run("rollback.exs") =~ "the replayed answers are the same bits"
  end

  test "real_time_loop.exs: every frame is answered" do
    assert run("real_time_loop.exs") =~ ~r/120 frames, median step \d+ us/
  end

  test "udp_play.exs: frames of another process are played once each, whatever the network does" do
    output = run("udp_play.exs")
    # Of 120 frames 6 are lost, 4 are late and 8 arrive twice.
    assert output =~ ~r/agent: \d+ frames played, \d+ repeated, \d+ late, \d+ lost/
    numbers = Regex.run(~r/agent: (\d+) frames played, (\d+) repeated, (\d+) late, (\d+) lost/, output)
    [played, repeated, late, lost] = numbers |> tl() |> Enum.map(&String.to_integer/1)
    assert {played + late + lost, repeated} == {120, 8}
    assert lost >= 6 and late <= 4
    assert output =~ ~r/game: 120 frames, \d+ actions/
  end

  test "every example has a test here" do
    assert Enum.sort(Path.wildcard("examples/*.exs") |> Enum.map(&Path.basename/1)) == [
             "imitate.exs",
             "real_time_loop.exs",
             "rollback.exs",
             "scan.exs",
             "udp_play.exs"
           ]
  end
end
