defmodule ExPhil.Native.ExamplesTest do
  # Every program in examples/ runs unchanged.
  use ExUnit.Case
  import ExUnit.CaptureIO

  defp run(name, argv \\ []) do
    given = System.argv()

    try do
      System.argv(argv)
      capture_io(fn -> Code.eval_file(Path.join([File.cwd!(), "examples", name])) end)
    after
      System.argv(given)
    end
  end

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

  @tag :either
  @tag :tmp_dir
  test "chaser.exs: a short training runs, learns, and gives a policy that plays from its file", %{
    tmp_dir: folder
  } do
    short = ~w(--rounds 1 --steps 160 --episodes 48 --batch 8 --no-live --seed 1 --out) ++ [folder]
    output = run("chaser.exs", short)
    assert output =~ "saved and loaded again: the same bits: true"

    # With a memory, then without. It takes a thousand steps until a policy wins the game, but not until its loss shows
    # that it remembers.
    losses =
      for [_ | losses] <- Regex.scan(~r/first step (\S+), mean of the last 20 (\S+)/, output),
          do: Enum.map(losses, &String.to_float/1)

    assert [[first, last], [first_without, last_without]] = losses
    assert last < 0.8 * first and last_without < first_without
    assert last < last_without - 0.2

    policy = ExPhil.Native.Policy.load!(Path.join(folder, "policy.safetensors"), backend: :host)
    assert ExPhil.Native.Policy.info!(policy).groups == [x: 0..6, y: 7..13]
    lines = fn file -> folder |> Path.join(file) |> File.read!() |> String.split("\n", trim: true) end
    assert ["policy,step,on_target" | [_, _, _, _]] = lines.("score.csv")
    assert length(lines.("loss.csv")) == 161
  end

  @tag :tmp_dir
  @tag :gnuplot
  test "chaser.exs draws its curves and a game", %{tmp_dir: folder} do
    Code.require_file("examples/chaser/report.exs")
    world = fn x -> %{target: {x, 0.5}, chaser: {0.5, x}} end
    curves = [{"with a memory", [{0, 0.0}, {250, 40.0}]}, {"without", [{0, 0.0}, {250, 2.0}]}]
    # The module is there at run time only.
    apply(Chaser.Report, :picture, [curves, Enum.map(1..60, &world.(&1 / 60)), folder])
    svg = File.read!(Path.join(folder, "chaser.svg"))
    for word <- ["with a memory", "without", "target", "chaser"], do: assert(svg =~ ">#{word}<")
  end

  @tag :either
  @tag :tmp_dir
  test "chaser.exs --table: each trunk is trained and played in two ways", %{tmp_dir: folder} do
    small = ~w(--rounds 2 --steps 2 --episodes 2 --batch 1 --worlds 2 --no-live --out) ++ [folder]
    output = run("chaser.exs", ~w(--table --trunk gru,min_lstm,gated_deltanet) ++ small)
    cell = "(\\*\\*\\d+\\.\\d\\*\\*|\\d+\\.\\d)"
    rows = Regex.scan(~r/^\| `(\w+)` \| (.*) \| #{cell} \| #{cell} \|$/m, output, capture: :all_but_first)

    assert [
             ["gru", "carried states", windowed, "**" <> _],
             ["gru", "windows", "**" <> _, carried],
             ["min_lstm", "carried states" | _],
             ["min_lstm", "windows" | _],
             ["gated_deltanet", "carried states" | _],
             ["gated_deltanet", "windows" | _]
           ] = rows

    refute windowed =~ "*" or carried =~ "*"
    lines = fn file -> folder |> Path.join(file) |> File.read!() |> String.split("\n", trim: true) end
    assert ["trunk,trained,played,on_target" | shares] = lines.("trunks.csv")
    assert length(shares) == 12
    # A curve for each trunk that learned from carried states, and for the one without a memory.
    assert length(lines.("score.csv")) == 1 + 4 * 3
    policy = ExPhil.Native.Policy.load!(Path.join(folder, "gru_windowed/policy.safetensors"), backend: :host)
    assert %{trunk: :gru, groups: [x: 0..6, y: 7..13]} = ExPhil.Native.Policy.info!(policy)

    # And one alone.
    output = run("chaser.exs", ~w(--trunk lstm --no-compare) ++ small)
    assert output =~ "saved and loaded again: the same bits: true"
    path = Path.join(folder, "policy.safetensors")
    assert ExPhil.Native.Policy.info!(ExPhil.Native.Policy.load!(path, backend: :host)).trunk == :lstm
    assert_raise ArgumentError, ~r/--trunk must be/, fn -> run("chaser.exs", ~w(--trunk rwkv)) end
  end

  test "every example has a test here" do
    assert Enum.sort(Path.wildcard("examples/*.exs") |> Enum.map(&Path.basename/1)) == [
             "chaser.exs",
             "imitate.exs",
             "real_time_loop.exs",
             "rollback.exs",
             "scan.exs",
             "udp_play.exs"
           ]
  end
end
