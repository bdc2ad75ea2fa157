# From nothing to a bot that wins: a policy that learns to chase a target which it sees for 3 frames in 45.
#
#     mix run examples/chaser.exs                       # with a memory, then without one: some minutes on two cores
#     mix run examples/chaser.exs --rounds 4 --steps 50 --no-compare --no-live
#     mix run examples/chaser.exs --backend cuda --out /tmp/chaser
#     mix run examples/chaser.exs --play tmp/chaser/policy.safetensors
#
# The world: a target moves in straight lines in a square and bounces off its walls. The chaser chooses one of seven velocities
# an axis, 60 times a second. Its radar shows the target for 3 frames of every 45: most of the time it must know from
# memory where the target went.
#
# It learns by imitation of an expert that sees everything. Offline, that says nothing about the game: a policy whose loss is
# small on the expert's frames still comes into places where the expert never was, and has not learned what to do there. So
# each round plays the policy as it is now, asks the expert what it would have done in those places, and adds that to the data
# (DAgger: Ross, Gordon and Bagnell, 2011). What counts is the closed loop: the share of frames within 0.15 of the target.
#
# Writes policy.safetensors, loss.csv, score.csv and, where gnuplot is installed, loss.svg and score.svg into --out.

defmodule Chaser.World do
  # Positions from -1 to 1, velocities in units a second.
  @dt 1 / 60
  @reload 45
  @seen 3
  @fastest 1.2
  @bins 7

  def bins, do: @bins

  def new do
    place = fn -> {1.6 * :rand.uniform() - 0.8, 1.6 * :rand.uniform() - 0.8} end
    angle = 2 * :math.pi() * :rand.uniform()
    speed = 0.4 + 0.4 * :rand.uniform()
    velocity = {speed * :math.cos(angle), speed * :math.sin(angle)}
    %{chaser: place.(), target: place.(), velocity: velocity, frame: :rand.uniform(@reload) - 1}
  end

  # Where the chaser is, whether the radar sees the target, and then where it is from the chaser.
  def observe(%{chaser: {x, y}, target: {tx, ty}, frame: frame}) do
    seen = if rem(frame, @reload) < @seen, do: 1.0, else: 0.0
    for v <- [x, y, seen, seen * (tx - x), seen * (ty - y)], into: <<>>, do: <<v::float-32-little>>
  end

  # The velocity of the target, and towards it.
  def expert(%{chaser: {x, y}, target: {tx, ty}, velocity: {vx, vy}}),
    do: [bin(vx + 5 * (tx - x)), bin(vy + 5 * (ty - y))]

  defp bin(v), do: round((max(-@fastest, min(@fastest, v)) + @fastest) / (2 * @fastest) * (@bins - 1))
  defp velocity(bin), do: 2 * @fastest * bin / (@bins - 1) - @fastest

  def step(%{chaser: {x, y}, target: {tx, ty}, velocity: {vx, vy}} = world, [bin_x, bin_y]) do
    {tx, vx} = bounce(tx + vx * @dt, vx)
    {ty, vy} = bounce(ty + vy * @dt, vy)
    chaser = {x + velocity(bin_x) * @dt, y + velocity(bin_y) * @dt}
    %{world | chaser: chaser, target: {tx, ty}, velocity: {vx, vy}, frame: world.frame + 1}
  end

  defp bounce(at, v) when at > 1, do: {2 - at, -v}
  defp bounce(at, v) when at < -1, do: {-2 - at, -v}
  defp bounce(at, v), do: {at, v}

  def distance(%{chaser: {x, y}, target: {tx, ty}}), do: :math.sqrt((x - tx) ** 2 + (y - ty) ** 2)
end

defmodule Chaser do
  alias Chaser.World
  alias ExPhil.Native.{Clock, Gnuplot, Loss, Policy, Tensor, Trainer}

  @worlds 64
  @episode 240
  # A game of eight seconds; the first two are to find the target.
  @game 480
  @judged 360
  @close 0.15
  @heads [x: World.bins(), y: World.bins()]

  def run(argv) do
    switches =
      [rounds: :integer, steps: :integer, seed: :integer, backend: :string, out: :string] ++
        [compare: :boolean, play: :string, live: :boolean, episodes: :integer, batch: :integer]

    {given, _, _} = OptionParser.parse(argv, strict: switches)

    defaults =
      [rounds: 12, steps: 250, episodes: 256, batch: 16, seed: 1, backend: "host"] ++
        [out: "tmp/chaser", compare: true, live: true, play: nil]

    options = Map.new(defaults ++ given)
    references(options)
    if options.play, do: play_saved(options.play, options), else: train_both(options)
  end

  defp train_both(options) do
    with_memory = train(options, true)

    without = if options.compare, do: train(%{options | out: Path.join(options.out, "no_memory")}, false)

    scores(with_memory, without, options)
    path = Path.join(options.out, "policy.safetensors")
    loaded = Policy.load!(path, backend: backend(options))
    IO.puts("saved and loaded again: the same bits: #{same_bits?(with_memory.policy, loaded)}")
    play_saved(path, options)
  end

  defp play_saved(path, options) do
    policy = Policy.load!(path, backend: backend(options))
    IO.puts("#{path}: #{told(score(policy, true))}")
    if options.live, do: live(policy)
  end

  defp backend(%{backend: name}) when name in ["host", "cuda", "auto"], do: String.to_atom(name)

  defp backend(%{backend: name}),
    do: raise(ArgumentError, "--backend must be host, cuda or auto, got #{name}")

  defp references(options) do
    :rand.seed(:exsss, options.seed)
    expert = play(fn worlds, _obs -> Enum.map(worlds, &World.expert/1) end)
    still = play(fn worlds, _obs -> Enum.map(worlds, fn _ -> [3, 3] end) end)
    IO.puts("the expert, who sees everything: #{told(expert)}\nstanding still: #{told(still)}")
  end

  # ---- training --------------------------------------------------------------------------------------------------

  defp train(options, memory?) do
    :rand.seed(:exsss, options.seed)
    IO.puts(if memory?, do: "\nwith a memory", else: "\nwithout a memory: every frame from a zero state")
    File.mkdir_p!(options.out)
    trainer = trainer(options, memory?)
    # Experts who err in a quarter of the frames, so that there is something to correct.
    data = episodes(options.episodes, fn _obs, experts -> Enum.map(experts, &noisy/1) end)
    first = score(trainer.policy, memory?)
    IO.puts("round 0: #{told(first)}")

    {trainer, _data, scores} =
      Enum.reduce(1..options.rounds//1, {trainer, data, [{0, first}]}, fn round, {trainer, data, scores} ->
        {trainer, score} = round(trainer, data, options, memory?)
        IO.puts("round #{round}: #{Trainer.steps(trainer)} steps, #{told(score)}")
        more = if round < options.rounds, do: corrections(trainer.policy, options, memory?, round), else: []
        {trainer, data ++ more, [{Trainer.steps(trainer), score} | scores]}
      end)

    :ok = Policy.save(trainer.policy, Path.join(options.out, "policy.safetensors"))
    losses = for {_step, loss, _rate, _norm} <- trainer.history, do: loss
    last = Enum.sum(Enum.take(losses, 20)) / length(Enum.take(losses, 20))
    IO.puts("loss of the first step #{number(List.last(losses))}, mean of the last 20 #{number(last)}")
    %{policy: trainer.policy, scores: Enum.reverse(scores)}
  end

  defp trainer(%{seed: seed} = options, memory?) do
    sizes = [d_input: 5, heads: @heads, d_model: 48, layers: 2]
    policy = Policy.init!(:mamba1, sizes ++ [seed: seed, backend: backend(options)])
    # Without a memory a step has as many frames, each a sequence of its own.
    shape = if memory?, do: [batch: options.batch], else: [batch: options.batch * @episode, seq: 1]
    schedule = [schedule: {:cosine, options.rounds * options.steps}, least_rate: 1.0e-5]
    Trainer.new!(policy, shape ++ schedule ++ [learning_rate: 3.0e-3, clip_norm: 1.0, seed: seed])
  end

  defp round(trainer, data, options, memory?) do
    svg = if Gnuplot.available?(), do: [svg: Path.join(options.out, "loss.svg")], else: []

    trainer =
      Trainer.fit!(trainer, data, [steps: options.steps, csv: Path.join(options.out, "loss.csv")] ++ svg)

    {trainer, score(trainer.policy, memory?)}
  end

  defp noisy(expert) do
    if :rand.uniform() < 0.25,
      do: [:rand.uniform(World.bins()) - 1, :rand.uniform(World.bins()) - 1],
      else: expert
  end

  # The places where the policy comes, with what the expert does there. In early rounds the expert also plays some frames.
  defp corrections(policy, options, memory?, round) do
    count = max(div(options.episodes, 2), 1)
    act = player(policy, count, memory?)
    share = max(0.5 * (1 - 2 * round / options.rounds), 0.0)

    episodes(count, fn obs, experts ->
      Enum.zip_with(act.(obs), experts, fn own, expert ->
        if :rand.uniform() < share, do: expert, else: own
      end)
    end)
  end

  # Sequences for the trainer: what was seen, and what the expert does. `act` decides what is played.
  defp episodes(count, act) do
    worlds = for _ <- 1..count, do: World.new()

    {_worlds, frames} =
      Enum.reduce(1..@episode, {worlds, []}, fn _, {worlds, frames} ->
        obs = Enum.map(worlds, &World.observe/1)
        experts = Enum.map(worlds, &World.expert/1)
        actions = act.(obs, experts)
        {Enum.zip_with(worlds, actions, &World.step/2), [Enum.zip(obs, experts) | frames]}
      end)

    for episode <- frames |> Enum.reverse() |> Enum.zip_with(& &1) do
      {obs, experts} = Enum.unzip(episode)
      {{:f32, {@episode, 5}, IO.iodata_to_binary(obs)}, Tensor.from_list(experts, :s32)}
    end
  end

  # ---- the closed loop -------------------------------------------------------------------------------------------

  # Observations of `count` worlds to their actions: agents with a state each, or each frame from a zero state.
  defp player(policy, count, true) do
    sessions = for _ <- 1..count, do: Policy.new_session!(policy)
    fn obs -> choose(policy, Policy.step_batch!(sessions, {:f32, {count, 5}, IO.iodata_to_binary(obs)})) end
  end

  defp player(policy, count, false),
    do: fn obs -> choose(policy, Policy.window!(policy, {:f32, {count, 1, 5}, IO.iodata_to_binary(obs)})) end

  defp choose(policy, outs), do: outs |> Loss.argmax(Policy.info!(policy).groups) |> Tensor.to_list()

  defp score(policy, memory?) do
    act = player(policy, @worlds, memory?)
    play(fn _worlds, obs -> act.(obs) end)
  end

  # Plays games of all worlds: the share of judged frames near the target, and the mean distance.
  defp play(act) do
    {_worlds, distances} =
      Enum.reduce(1..@game, {for(_ <- 1..@worlds, do: World.new()), []}, fn _, {worlds, distances} ->
        worlds = Enum.zip_with(worlds, act.(worlds, Enum.map(worlds, &World.observe/1)), &World.step/2)
        {worlds, [Enum.map(worlds, &World.distance/1) | distances]}
      end)

    distances |> Enum.take(@judged) |> List.flatten() |> judge()
  end

  defp judge(distances) do
    near = Enum.count(distances, &(&1 < @close))
    %{on_target: 100 * near / length(distances), distance: Enum.sum(distances) / length(distances)}
  end

  # One game in real time, one agent.
  defp live(policy) do
    session = Policy.new_session!(policy, fps: 60)
    clock = Clock.start!(session)

    {_world, distances, times} =
      Enum.reduce(1..@game, {World.new(), [], []}, fn _, {world, distances, times} ->
        Clock.wait(clock)
        {time, out} = :timer.tc(fn -> Policy.step!(session, {:f32, {5}, World.observe(world)}) end)
        world = World.step(world, choose(policy, out))
        {world, [World.distance(world) | distances], [time | times]}
      end)

    Clock.stop(clock)
    median = times |> Enum.sort() |> Enum.at(div(@game, 2))

    IO.puts(
      "live, 8 s at 60 FPS: #{distances |> Enum.take(@judged) |> judge() |> told()}, median step #{median} us"
    )
  end

  defp same_bits?(policy, loaded) do
    frames = {:f32, {1, 60, 5}, for(i <- 1..300, into: <<>>, do: <<:math.sin(i)::float-32-little>>)}
    Policy.forward!(policy, frames) == Policy.forward!(loaded, frames)
  end

  # ---- what comes out --------------------------------------------------------------------------------------------

  defp scores(with_memory, without, options) do
    lines =
      [{"with a memory", points(with_memory)}] ++ if(without, do: [{"without", points(without)}], else: [])

    csv = for {name, points} <- lines, {step, score} <- points, do: "#{name},#{step},#{score}\n"
    File.write!(Path.join(options.out, "score.csv"), ["policy,step,on_target\n", csv])
    IO.puts("")
    for {name, points} <- lines, {step, score} <- points, do: IO.puts(bar(name, step, score))

    if Gnuplot.available?() do
      {:ok, svg} = Gnuplot.lines(lines, "training steps", "% of frames on target")
      File.write!(Path.join(options.out, "score.svg"), svg)
    end
  end

  defp points(%{scores: scores}), do: for({step, score} <- scores, do: {step, score.on_target})

  defp bar(name, step, score) do
    String.pad_trailing(name, 14) <>
      String.pad_leading("#{step}", 6) <>
      String.pad_leading(number(score), 7) <>
      "% " <>
      String.duplicate("#", round(score / 2))
  end

  defp told(%{on_target: share, distance: distance}),
    do: "on target in #{number(share)}% of frames, mean distance #{number(distance)}"

  defp number(v), do: :erlang.float_to_binary(v / 1, decimals: 2)
end

Chaser.run(System.argv())
