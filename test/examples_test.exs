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

  test "every example has a test here" do
    assert Enum.sort(Path.wildcard("examples/*.exs") |> Enum.map(&Path.basename/1)) == [
             "imitate.exs",
             "real_time_loop.exs",
             "rollback.exs",
             "scan.exs"
           ]
  end
end
