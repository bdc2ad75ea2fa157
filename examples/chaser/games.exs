# How the policies of examples/chaser.exs are played: many worlds at once, and one in real time.

defmodule Chaser.Games do
  alias Chaser.World
  alias ExPhil.Native.{Clock, Loss, Policy, Tensor}

  # A game of eight seconds; the first two are to find the target.
  @game 480
  @judged 360
  @close 0.15
  @window 60

  def window, do: @window

  # Observations of `count` worlds to their actions. :carried: agents with a state each; :windowed: each answer from the last 60
  # frames; :memoryless: each from one frame.
  def player(policy, count, :memoryless) do
    d_input = Policy.info!(policy).d_input

    fn worlds ->
      choose(policy, Policy.window!(policy, {:f32, {count, 1, d_input}, observations(worlds, d_input)}))
    end
  end

  def player(policy, count, way) when way in [:carried, :windowed] do
    options = if way == :windowed, do: [window: @window], else: []
    sessions = for _ <- 1..count, do: Policy.new_session!(policy, options)
    d_input = Policy.info!(policy).d_input

    fn worlds ->
      choose(policy, Policy.step_batch!(sessions, {:f32, {count, d_input}, observations(worlds, d_input)}))
    end
  end

  defp observations(worlds, d_input), do: for(world <- worlds, into: <<>>, do: World.observe(world, d_input))
  defp choose(policy, outs), do: outs |> Loss.argmax(Policy.info!(policy).groups) |> Tensor.to_list()

  # `count` episodes of `frames` frames as sequences for the trainer: what was seen, and what the expert does. `act` decides what is
  # played, from the worlds and what their experts do.
  def episodes(count, frames, d_input, act) do
    worlds = for _ <- 1..count, do: World.new()

    {_worlds, played} =
      Enum.reduce(1..frames, {worlds, []}, fn _, {worlds, played} ->
        obs = Enum.map(worlds, &World.observe(&1, d_input))
        experts = Enum.map(worlds, &World.expert/1)
        actions = act.(worlds, experts)
        {Enum.zip_with(worlds, actions, &World.step/2), [Enum.zip(obs, experts) | played]}
      end)

    for episode <- played |> Enum.reverse() |> Enum.zip_with(& &1) do
      {obs, experts} = Enum.unzip(episode)
      {{:f32, {frames, d_input}, IO.iodata_to_binary(obs)}, Tensor.from_list(experts, :s32)}
    end
  end

  # The policy in games of `count` worlds: the share of judged frames near the target, and the mean distance.
  def score(policy, way, count), do: policy |> player(count, way) |> play(count)

  def play(act, count) do
    {_worlds, distances} =
      Enum.reduce(1..@game, {for(_ <- 1..count, do: World.new()), []}, fn _, {worlds, distances} ->
        worlds = Enum.zip_with(worlds, act.(worlds), &World.step/2)
        {worlds, [Enum.map(worlds, &World.distance/1) | distances]}
      end)

    distances |> Enum.take(@judged) |> List.flatten() |> judge()
  end

  defp judge(distances) do
    near = Enum.count(distances, &(&1 < @close))
    %{on_target: 100 * near / length(distances), distance: Enum.sum(distances) / length(distances)}
  end

  # One game in real time, one agent: its score, the median of its steps in microseconds, and the worlds in order.
  def live(policy) do
    session = Policy.new_session!(policy, fps: 60)
    clock = Clock.start!(session)
    d_input = Policy.info!(policy).d_input

    {worlds, times} =
      Enum.reduce(1..@game, {[World.new()], []}, fn _, {[world | _] = worlds, times} ->
        Clock.wait(clock)

        {time, out} =
          :timer.tc(fn -> Policy.step!(session, {:f32, {d_input}, World.observe(world, d_input)}) end)

        {[World.step(world, choose(policy, out)) | worlds], [time | times]}
      end)

    Clock.stop(clock)
    score = worlds |> Enum.take(@judged) |> Enum.map(&World.distance/1) |> judge()
    %{score: score, median: times |> Enum.sort() |> Enum.at(div(@game, 2)), worlds: Enum.reverse(worlds)}
  end
end
