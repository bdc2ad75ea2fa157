defmodule ExPhil.Native.Tools.PlayerTest do
  # Not beside others: it loads a module that they would call.
  use ExUnit.Case, async: false

  import ExPhil.Native.TestSupport.Telemetry, only: [with_events: 1]

  alias ExPhil.Native.Policy
  alias ExPhil.Native.Tools.{Demo, Player}
  alias ExPhil.Native.Tools.Player.{Recording, Verify}
  alias ExPhil.Native.TestSupport.{Shared, Waiting}

  setup_all do
    folder = Path.join(System.tmp_dir!(), "exphil_player_test_#{System.pid()}")
    {policy, _} = Demo.write(folder, frames: 1)
    on_exit(fn -> File.rm_rf!(folder) end)
    %{model: Policy.load!(policy, backend: :host)}
  end

  # clock_test.exs tests the clock; here frames come as fast as they can be answered.
  @fast 10_000.0

  defp play!(model, recording, options \\ []) do
    {:ok, result} = Player.play(model, recording, Keyword.merge([fps: @fast], options))
    result
  end

  test "frames arrive at the given rate, also where a frame is not a multiple of a millisecond", %{
    model: model
  } do
    began = Waiting.now()
    result = play!(model, Recording.generated(91), fps: 300)

    # 90 frame times of 3.33 ms; rounded to milliseconds they would take 360 ms or more, and never less than 300.
    assert Waiting.now() - began >= 300_000_000
    assert result.frames == 91
  end

  test "a rate outside the limits is an error", %{model: model} do
    assert {:error, %ExPhil.Native.Error{argument: ":fps"}} =
             Player.play(model, Recording.generated(1), fps: 20_000)
  end

  defp numbered(recording, numbers), do: %{recording | numbers: numbers, depth: depth(numbers)}
  defp depth(numbers), do: Enum.max(numbers) - Enum.min(numbers) + 1

  defp stepped(model, observations) do
    session = Policy.new_session!(model)
    Enum.map(observations, &Policy.step!(session, &1))
  end

  test "answers are those of a session stepped frame by frame, and match a prefill", %{model: model} do
    recording = Recording.generated(40)
    result = play!(model, recording)
    assert result.frames == 40 and result.rollbacks == 0
    assert length(result.latencies) == 40 and Enum.all?(result.latencies, &(&1 > 0))
    assert result.answers == stepped(model, Enum.map(Recording.frames(recording), &elem(&1, 1)))

    assert %Verify{against: :prefill, frames: 40, failed: 0} =
             verify = Player.verify(result, model, recording)

    assert verify.worst <= 1.0e-5
  end

  # The answer to the last frame of each history, the frames given by their index in the recording.
  defp answers_after(model, recording, histories) do
    obs = recording |> Recording.frames() |> Enum.map(&elem(&1, 1)) |> List.to_tuple()
    for history <- histories, do: model |> stepped(Enum.map(history, &elem(obs, &1))) |> List.last()
  end

  test "a repeated frame number restores the state from before its first play", %{model: model} do
    recording = Recording.generated(9) |> numbered([0, 1, 2, 3, 1, 2, 2, 3, 4])
    result = play!(model, recording)
    # 3 to 1, and 2 to 2.
    assert result.rollbacks == 2

    histories = [
      [0],
      [0, 1],
      [0, 1, 2],
      [0, 1, 2, 3],
      [0, 4],
      [0, 1, 5],
      [0, 1, 6],
      [0, 1, 2, 7],
      [0, 1, 2, 7, 8]
    ]

    assert result.answers == answers_after(model, recording, histories)
  end

  test "a number that the recording skips does not confuse a rollback", %{model: model} do
    recording = Recording.generated(5) |> numbered([5, 7, 5, 6, 8])
    result = play!(model, recording)
    assert result.answers == answers_after(model, recording, [[0], [0, 1], [2], [2, 3], [2, 3, 4]])
  end

  test "several sessions give one answer each, the same bits", %{model: model} do
    recording = Recording.generated(6) |> numbered([0, 1, 2, 1, 2, 3])
    one = play!(model, recording)
    three = play!(model, recording, sessions: 3)
    assert three.answers == Enum.map(one.answers, &:binary.copy(&1, 3))
    assert three.rollbacks == 1
  end

  @tag :shared
  test "the recorded netplay match: every answer, through every rollback" do
    {:ok, recording} = Recording.load(Shared.file("melee/rollback.safetensors"))
    model = Policy.load!(Shared.policy(), backend: :host)
    result = play!(model, recording)
    assert result.rollbacks == 531
    assert %Verify{against: :logits, frames: 3000, failed: 0} = Player.verify(result, model, recording)
  end

  test "a frame whose answer comes late is missed", %{model: model} do
    late = fn {done, _, _} -> if done == 1, do: Process.sleep(60), else: :ok end
    {:ok, result} = Player.play(model, Recording.generated(4), fps: 50.0, on_frame: late)
    # Frames 1 and 2 arrived, and had to be answered, during the 60 ms after frame 0.
    assert result.missed >= 2
  end

  test "frames are telemetry events where telemetry is available", %{model: model} do
    recording = numbered(Recording.generated(3), [4, 5, 6])

    with_events(fn -> play!(model, recording) end)

    assert_received {[:exphil_native, :tools, :player, :frame], %{latency: latency, missed: _},
                     %{index: 2, number: 6}}

    assert latency > 0
  end

  test "an observation of another width is the library's error", %{model: model} do
    recording = %{Recording.generated(2) | d_input: 7, obs: <<0::size(2 * 7 * 32)>>}
    assert {:error, %ExPhil.Native.Error{}} = Player.play(model, recording, fps: @fast)
  end
end
