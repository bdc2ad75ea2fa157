# From nothing to a bot that wins: a policy that learns to chase a target which it sees for 3 frames in 45.
#
#     mix run examples/chaser.exs                       # with a memory, then without one: some minutes on two cores
#     mix run examples/chaser.exs --trunk gru           # mamba1 (the default), gru, lstm, min_gru, min_lstm or gated_deltanet
#     mix run examples/chaser.exs --rounds 4 --steps 50 --no-compare --no-live
#     mix run examples/chaser.exs --backend cuda --out /tmp/chaser
#     mix run examples/chaser.exs --play tmp/chaser/policy.safetensors
#     mix run examples/chaser.exs --table               # every trunk, trained and played in two ways: an hour
#     mix run examples/chaser.exs --table --trunk gru,lstm --batch 4 --episodes 96
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
# --table says how well each trunk plays when its state is carried from frame to frame and when each answer is that to its last
# 60 frames, and what it gains where it was trained for what it is played as: on windows of 60 frames, each as a new agent, or
# on excerpts of 60 frames that begin with the state in which the frames before them ended (truncated back-propagation).
#
# Writes policy.safetensors, loss.csv, score.csv and, where gnuplot is installed, loss.svg and chaser.svg into --out.

for file <- ["world.exs", "games.exs", "report.exs"],
    do: Code.require_file(Path.join("chaser", file), __DIR__)

defmodule Chaser do
  alias Chaser.{Games, Report, World}
  alias ExPhil.Native.{Gnuplot, Policy, Trainer}

  @episode 240
  @heads [x: World.bins(), y: World.bins()]
  @trunks [:mamba1, :gru, :lstm, :min_gru, :min_lstm, :gated_deltanet]

  def run(argv) do
    numbers = for name <- [:rounds, :steps, :seed, :episodes, :batch, :worlds], do: {name, :integer}
    texts = for name <- [:backend, :out, :trunk, :play], do: {name, :string}
    flags = for name <- [:compare, :live, :table], do: {name, :boolean}
    {given, _, _} = OptionParser.parse(argv, strict: numbers ++ texts ++ flags)

    defaults =
      [rounds: 12, steps: 250, episodes: 256, batch: 16, worlds: 64, seed: 1, backend: "host", trunk: nil] ++
        [out: "tmp/chaser", compare: true, live: true, play: nil, table: false]

    options = Map.new(defaults ++ given)
    references(options)

    cond do
      options.play -> play_saved(options.play, options)
      options.table -> table(trunks(options.trunk || Enum.join(@trunks, ",")), options)
      true -> train_both(trunks(options.trunk || "mamba1"), options)
    end
  end

  defp trunks(names) do
    for name <- String.split(names, ",") do
      Enum.find(@trunks, &(to_string(&1) == name)) ||
        raise ArgumentError, "--trunk must be of #{Enum.join(@trunks, ", ")}, got #{name}"
    end
  end

  defp train_both([trunk], options) do
    with_memory = train(trunk, :whole, options)
    out = Path.join(options.out, "no_memory")

    without =
      if options.compare, do: [{"without", train(trunk, :memoryless, %{options | out: out}).scores}], else: []

    curves = Report.curves([{"with a memory", with_memory.scores} | without], options.out)
    path = Path.join(options.out, "policy.safetensors")
    loaded = Policy.load!(path, backend: backend(options))
    IO.puts("saved and loaded again: the same bits: #{same_bits?(with_memory.policy, loaded)}")
    play_saved(path, options, curves)
  end

  defp train_both(_trunks, _options), do: raise(ArgumentError, "--trunk must be one trunk without --table")

  defp play_saved(path, options, curves \\ []) do
    policy = Policy.load!(path, backend: backend(options))
    IO.puts("#{path}: #{Report.told(Games.score(policy, :carried, options.worlds))}")

    if options.live do
      game = Games.live(policy)
      IO.puts("live, 8 s at 60 FPS: #{Report.told(game.score)}, median step #{game.median} us")
      File.mkdir_p!(options.out)
      Report.picture(curves, game.worlds, options.out)
    end
  end

  defp backend(%{backend: name}) when name in ["host", "cuda", "auto"], do: String.to_atom(name)

  defp backend(%{backend: name}),
    do: raise(ArgumentError, "--backend must be host, cuda or auto, got #{name}")

  defp references(options) do
    :rand.seed(:exsss, options.seed)
    expert = Games.play(fn worlds -> Enum.map(worlds, &World.expert/1) end, options.worlds)
    still = Games.play(fn worlds -> Enum.map(worlds, fn _ -> [3, 3] end) end, options.worlds)
    IO.puts("the expert, who sees everything: #{Report.told(expert)}\nstanding still: #{Report.told(still)}")
  end

  # ---- every trunk -----------------------------------------------------------------------------------------------

  defp table(trunks, options) do
    trained =
      for trunk <- trunks, way <- [:carried, :windowed] do
        made = train(trunk, way, %{options | out: Path.join(options.out, "#{trunk}_#{way}")})
        played = Map.new([:windowed, :carried], &{&1, Games.score(made.policy, &1, options.worlds)})
        for {way, score} <- played, do: IO.puts("played #{way}: #{Report.told(score)}")
        {trunk, way, played, made.scores}
      end

    without =
      if options.compare do
        out = Path.join(options.out, "no_memory")
        [{"no memory", train(hd(trunks), :memoryless, %{options | out: out}).scores}]
      else
        []
      end

    Report.curves(
      for({trunk, :carried, _, scores} <- trained, do: {"#{trunk}", scores}) ++ without,
      options.out
    )

    Report.table(for({trunk, way, played, _} <- trained, do: {trunk, way, played}), options.out)
  end

  # ---- training --------------------------------------------------------------------------------------------------

  # `learns`: :whole, from whole episodes; :carried, from excerpts and the states in which those before them ended; :windowed, from
  # excerpts alone; :memoryless, from single frames.
  defp train(trunk, learns, options) do
    :rand.seed(:exsss, options.seed)
    IO.puts("\n#{trunk}, #{said(learns)}")
    File.mkdir_p!(options.out)
    way = if learns == :whole, do: :carried, else: learns
    trainer = trainer(trunk, learns, options)
    d_input = d_input(trunk)
    # Experts who err in a quarter of the frames, so that there is something to correct.
    data =
      Games.episodes(options.episodes, @episode, d_input, fn _, experts -> Enum.map(experts, &noisy/1) end)

    scores = [{0, told_score(trainer, way, options)}]

    {trainer, _data, scores} =
      Enum.reduce(1..options.rounds//1, {trainer, data, scores}, fn round, {trainer, data, scores} ->
        trainer = fit(trainer, data, options)
        score = told_score(trainer, way, options)
        more = if round < options.rounds, do: corrections(trainer.policy, options, way, round), else: []
        {trainer, data ++ more, [{Trainer.steps(trainer), score} | scores]}
      end)

    :ok = Policy.save(trainer.policy, Path.join(options.out, "policy.safetensors"))
    losses = for {_step, loss, _rate, _norm} <- trainer.history, do: loss
    last = Enum.sum(Enum.take(losses, 20)) / length(Enum.take(losses, 20))

    IO.puts(
      "loss of the first step #{Report.number(List.last(losses))}, mean of the last 20 #{Report.number(last)}"
    )

    %{policy: trainer.policy, scores: Enum.reverse(scores)}
  end

  defp said(:whole), do: "with a memory"
  defp said(:carried), do: "with a memory, from carried states"
  defp said(:windowed), do: "with a memory, from windows of #{Games.window()} frames"
  defp said(:memoryless), do: "without a memory: every frame from a zero state"

  # GRU and LSTM begin with a norm of the frame, which would lose its scale. Two constants, larger than the rest, keep it.
  defp d_input(trunk), do: if(trunk in [:gru, :lstm], do: 7, else: 5)

  defp trainer(trunk, learns, %{seed: seed, batch: batch} = options) do
    sizes = [d_input: d_input(trunk), heads: @heads, d_model: 48, layers: 2]
    policy = Policy.init!(trunk, sizes ++ [seed: seed, backend: backend(options)])
    # A step has as many frames, however it learns.
    excerpts = [batch: div(batch * @episode, Games.window()), seq: Games.window()]

    shape =
      case learns do
        :whole -> [batch: batch]
        :carried -> [carry: true] ++ excerpts
        :windowed -> excerpts
        :memoryless -> [batch: batch * @episode, seq: 1]
      end

    schedule = [schedule: {:cosine, options.rounds * options.steps}, least_rate: 1.0e-5]
    Trainer.new!(policy, shape ++ schedule ++ [learning_rate: 3.0e-3, clip_norm: 1.0, seed: seed])
  end

  defp fit(trainer, data, options) do
    svg = if Gnuplot.available?(), do: [svg: Path.join(options.out, "loss.svg")], else: []
    Trainer.fit!(trainer, data, [steps: options.steps, csv: Path.join(options.out, "loss.csv")] ++ svg)
  end

  # Windows take as long to play as to train on: those are played at the end alone.
  defp told_score(_trainer, :windowed, _options), do: nil

  defp told_score(trainer, way, options) do
    score = Games.score(trainer.policy, way, options.worlds)
    IO.puts("#{Trainer.steps(trainer)} steps: #{Report.told(score)}")
    score
  end

  defp noisy(expert) do
    if :rand.uniform() < 0.25,
      do: [:rand.uniform(World.bins()) - 1, :rand.uniform(World.bins()) - 1],
      else: expert
  end

  # The places where the policy comes, with what the expert does there. In early rounds the expert also plays some frames.
  defp corrections(policy, options, way, round) do
    count = max(div(options.episodes, 2), 1)
    act = Games.player(policy, count, way)
    share = max(0.5 * (1 - 2 * round / options.rounds), 0.0)

    Games.episodes(count, @episode, Policy.info!(policy).d_input, fn worlds, experts ->
      Enum.zip_with(act.(worlds), experts, fn own, expert ->
        if :rand.uniform() < share, do: expert, else: own
      end)
    end)
  end

  defp same_bits?(policy, loaded) do
    d_input = Policy.info!(policy).d_input

    frames =
      {:f32, {1, 60, d_input}, for(i <- 1..(60 * d_input), into: <<>>, do: <<:math.sin(i)::float-32-little>>)}

    Policy.forward!(policy, frames) == Policy.forward!(loaded, frames)
  end
end

Chaser.run(System.argv())
