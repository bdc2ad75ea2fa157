defmodule ExPhil.Native.LatencyTest do
  # The latencies that users see, printed, and their ratios within one run. `make test_latency` runs it when nothing else of the
  # tests runs; where the machine has other work nothing is judged (test/support/latency.ex). Numbers are for bench/.
  use ExPhil.Native.TestSupport.BackendCase

  alias ExPhil.Native.Policy
  alias ExPhil.Native.TestSupport.{Latency, PlayBeside}

  @moduletag :latency

  defp line(name, times) do
    [p50, p99] = for share <- [0.5, 0.99], do: Float.round(Latency.percentile(times, share), 1)
    "#{name} p50 #{p50} us, p99 #{p99} us"
  end

  defp p50(times), do: Latency.percentile(times, 0.5)

  # rules: {what should hold, whether it does by the medians}.
  defp check(name, calls, rounds, rules) do
    wrong =
      Latency.judge(name, fn ->
        times = Latency.measure(calls, rounds)
        medians = Map.new(times, fn {call, list} -> {call, p50(list)} end)
        broken = for {what, holds?} <- rules, not holds?.(medians), do: what
        {for({call, _} <- calls, do: line(call, times[call])), if(broken != [], do: Enum.join(broken, "; "))}
      end)

    assert wrong == nil
  end

  test "scan, step and window" do
    model = Policy.load!(Policies.checkpoint(d_model: 128, d_inner: 256, d_state: 16), backend: :host)
    [session, other] = for _ <- 1..2, do: Policy.new_session!(model)
    obs = PlayBeside.floats(model.info.d_input + 1) |> binary_part(0, 4 * model.info.d_input)
    window = {:f32, {1, 60, model.info.d_input}, :binary.copy(obs, 60)}

    check(
      "latency",
      [
        scan: PlayBeside.scan(4, 60, 512, 16, :host),
        step: fn -> Policy.step!(session, obs) end,
        steps: fn -> for _ <- 1..60, do: Policy.step!(other, obs) end,
        window: fn -> Policy.window!(model, window) end
      ],
      100,
      [
        {"a step of two layers takes longer than a scan of 60 frames of four sequences",
         &(&1.step < &1.scan)},
        {"a window of 60 frames takes longer than 60 steps", &(&1.window < &1.steps)}
      ]
    )
  end

  @tag :shared
  test "act" do
    policy = Policy.load!(Shared.file("exphil/exphil_policy/policy.bin"), backend: :host)
    [acting, stepped] = for _ <- 1..2, do: Policy.new_session!(policy, window: :none, seed: 1)
    obs = :binary.copy(<<0.1::float-32-little>>, Policy.info!(policy).d_input)

    check(
      "latency",
      [act: fn -> Policy.act!(acting, obs) end, logits: fn -> Policy.step!(stepped, obs) end],
      500,
      [{"sampling takes longer than the frame", &(&1.act < 2 * &1.logits + 20)}]
    )
  end

  # Sixteen agents at 60 FPS beside processes that scan without a pause. Before scans had threads of their own nine
  # frames of ten were late here, the hundredth of the steps that took longest 148 ms. Without other work no frame
  # is late (bench/results/play_beside_scans.md).
  test "beside scans most frames are on time" do
    path = Policies.checkpoint(d_model: 128, d_inner: 256, d_state: 16, n_layer: 4)
    model = Policy.load!(path, backend: :host)
    %{d_input: d_input} = Policy.info!(model)
    obs = PlayBeside.floats(d_input + 1) |> binary_part(0, 4 * d_input)

    wrong =
      Latency.judge("beside scans", fn ->
        loops = PlayBeside.start(PlayBeside.scan(8, 1024, 512, 16, :host), 4)
        frames = PlayBeside.play(model, 16, 10, obs)
        scans = PlayBeside.stop(loops)
        assert length(frames) == 16 * 600

        steps = frames |> Enum.map(&elem(&1, 0)) |> Enum.map(&(&1 * 1.0)) |> Enum.sort()
        late = Enum.count(frames, fn {_, _, answered} -> answered > PlayBeside.frame() end)

        wrong =
          cond do
            scans == 0.0 -> "no scan ended while the agents played"
            Latency.percentile(steps, 0.9) < PlayBeside.frame() and late <= div(length(frames), 10) -> nil
            true -> "#{late} of #{length(frames)} frames are late"
          end

        {[line("step", steps)], wrong}
      end)

    assert wrong == nil
  end
end
