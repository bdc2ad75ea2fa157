# Trains a small policy by imitation: from each frame of a recorded match it predicts the controller of the next one.
#
#     mix run examples/imitate.exs
#     mix run examples/imitate.exs --steps 300 --seed 2 --out /tmp/imitate
#     mix run examples/imitate.exs --backend cuda   # forward passes and gradients on a GPU
#     mix run examples/imitate.exs --reference      # in float64, by the scalar references: minutes instead of seconds
#
# Reads the match in ../shared (or where EXPHIL_SHARED points); without it, generated frames. Writes policy.safetensors and
# loss.svg into --out, and then plays the policy with `mix exphil.play` for --play seconds.
defmodule Imitate do
  alias ExPhil.Native.{AdamW, Loss, Policy, Safetensors}
  alias ExPhil.Native.Tools.{Demo, Reference}

  @seq 60
  @batch 16
  @held_out 600
  # The last numbers of an observation: two sticks from -1 to 1, the trigger from 0 to 1, four buttons.
  @controller [main_x: {17, -1.0}, main_y: {17, -1.0}, c_x: {9, -1.0}, c_y: {9, -1.0}, trigger: {5, 0.0}]
  @buttons 4
  @heads [main_x: 17, main_y: 17, c_x: 9, c_y: 9, trigger: 5, buttons: {@buttons, :binary}]

  def run(argv) do
    switches = [
      steps: :integer,
      seed: :integer,
      out: :string,
      play: :float,
      backend: :string,
      reference: :boolean
    ]

    {given, _, _} = OptionParser.parse(argv, switches: switches)

    options =
      Map.merge(
        %{steps: 150, seed: 1, out: "tmp/imitate", play: 5.0, backend: "host", reference: false},
        Map.new(given)
      )

    File.mkdir_p!(options.out)
    :rand.seed(:exsss, options.seed)
    data = data()
    path = Path.join(options.out, "policy.safetensors")
    sizes = [d_input: data.d_input, heads: @heads, d_model: 32, d_state: 8, layers: 2]
    policy = Policy.init!(:mamba1, sizes ++ [seed: options.seed, backend: backend(options.backend)])

    started = System.monotonic_time(:millisecond)
    {policy, weights, losses} = train(policy, data, options)
    seconds = (System.monotonic_time(:millisecond) - started) / 1000

    held_out =
      Loss.cross_entropy(
        forward(policy, weights, data.held_out, options),
        data.held_out_targets,
        groups(policy)
      )

    report(losses, held_out, seconds, options)
    save(policy, weights, data, path, options)
    File.write!(Path.join(options.out, "loss.svg"), svg(losses))
    if options.play > 0, do: play(path, options)
  end

  defp backend("host"), do: :host
  defp backend("cuda"), do: :cuda
  defp backend("auto"), do: :auto
  defp backend(other), do: Mix.raise("--backend must be host, cuda or auto, got #{other}")

  # ---- data ----------------------------------------------------------------------------------------------------

  defp data do
    file = Path.join([System.get_env("EXPHIL_SHARED") || "../shared", "melee", "match.safetensors"])
    tensors = if File.exists?(file), do: Safetensors.read!(file), else: Demo.frames(2400)
    IO.puts("frames: #{if File.exists?(file), do: file, else: "generated"}")
    {:f32, {count, d_input}, obs} = tensors["obs"]
    rows = for <<row::binary-size(d_input)-unit(32) <- obs>>, do: row
    # The target of a frame is the controller of the next one.
    targets = rows |> tl() |> Enum.map(&target(&1, d_input)) |> List.to_tuple()

    data = %{
      d_input: d_input,
      rows: List.to_tuple(rows),
      targets: targets,
      train: count - @held_out - @seq - 1
    }

    starts = Enum.take_every((count - @held_out - 1)..(count - @seq - 1), @seq)
    {held_out, held_out_targets} = sequences(data, starts)
    Map.merge(data, %{held_out: held_out, held_out_targets: held_out_targets})
  end

  defp target(row, d_input) do
    controller = binary_part(row, 4 * (d_input - 9), 36)
    values = for <<v::float-32-little <- controller>>, do: v
    {axes, buttons} = Enum.split(values, 5)

    bins =
      for {value, {_, {bins, least}}} <- Enum.zip(axes, @controller),
          do: round((value - least) / (1.0 - least) * (bins - 1))

    for v <- bins ++ Enum.map(buttons, &round/1), into: <<>>, do: <<v::signed-32-little>>
  end

  # One sequence of frames and their targets from each start on.
  defp sequences(data, starts) do
    all = fn tuple -> for s <- starts, i <- s..(s + @seq - 1), into: <<>>, do: elem(tuple, i) end
    count = length(starts)
    targets = {:s32, {count, @seq, length(@controller) + @buttons}, all.(data.targets)}
    {{:f32, {count, @seq, data.d_input}, all.(data.rows)}, targets}
  end

  # ---- training --------------------------------------------------------------------------------------------------

  defp train(policy, data, options) do
    weights = Map.new(Policy.weights!(policy), fn {name, tensor} -> {name, typed(tensor, options)} end)
    optimiser = AdamW.new(weights, learning_rate: 3.0e-3, weight_decay: 0.01, clip_norm: 1.0)

    {policy, weights, _, losses} =
      Enum.reduce(1..options.steps, {policy, weights, optimiser, []}, fn step,
                                                                         {policy, weights, optimiser, losses} ->
        {frames, targets} = sequences(data, for(_ <- 1..@batch, do: :rand.uniform(data.train) - 1))
        loss = Loss.cross_entropy(forward(policy, weights, frames, options), targets, groups(policy))
        gradients = gradients(policy, weights, frames, loss.d_outs, options)
        {weights, optimiser, _norm} = AdamW.step(optimiser, weights, gradients)
        policy = if options.reference, do: policy, else: Policy.update!(policy, weights)
        progress(step, options.steps, loss.loss)
        {policy, weights, optimiser, [loss.loss | losses]}
      end)

    IO.write("\n")
    {policy, weights, Enum.reverse(losses)}
  end

  defp groups(policy), do: Policy.info!(policy).groups

  defp forward(policy, weights, frames, %{reference: true}),
    do: policy |> Reference.policy_grad!(weights, frames, nil) |> elem(0)

  defp forward(policy, _weights, frames, _options), do: Policy.forward!(policy, frames)

  defp gradients(policy, weights, frames, d_outs, %{reference: true}),
    do: policy |> Reference.policy_grad!(weights, frames, d_outs) |> elem(1)

  defp gradients(policy, _weights, frames, d_outs, _options), do: Policy.grad!(policy, frames, d_outs)

  defp typed({:f32, shape, binary}, %{reference: true}),
    do: {:f64, shape, for(<<v::float-32-little <- binary>>, into: <<>>, do: <<v::float-64-little>>)}

  defp typed(tensor, _options), do: tensor

  defp narrowed({:f64, shape, binary}),
    do: {:f32, shape, for(<<v::float-64-little <- binary>>, into: <<>>, do: <<v::float-32-little>>)}

  defp narrowed(tensor), do: tensor

  # ---- what comes out --------------------------------------------------------------------------------------------

  defp progress(step, steps, loss) do
    done = div(40 * step, steps)
    bar = String.duplicate("#", done) <> String.duplicate(".", 40 - done)
    IO.write("\r[#{bar}] #{step}/#{steps}  loss #{:erlang.float_to_binary(loss, decimals: 4)}")
  end

  defp report(losses, held_out, seconds, options) do
    last = Enum.take(losses, -10)
    text = &:erlang.float_to_binary(&1, decimals: 5)

    IO.puts(
      "#{length(losses)} steps in #{Float.round(seconds, 1)} s, " <>
        if(options.reference, do: "float64 reference", else: "backend #{options.backend}")
    )

    IO.puts(
      "loss of the first step #{text.(hd(losses))}, mean of the last #{length(last)} #{text.(Enum.sum(last) / length(last))}"
    )

    IO.puts("held-out loss #{text.(held_out.loss)}; accuracy of each group:")
    for {name, _} <- @heads, do: IO.puts("  #{name} #{text.(held_out.correct[name])}")
  end

  defp save(policy, weights, data, path, options) do
    policy =
      if options.reference,
        do: Policy.update!(policy, Map.new(weights, fn {n, t} -> {n, narrowed(t)} end)),
        else: policy

    :ok = Policy.save(policy, path)
    {:f32, {count, seq, d_input}, binary} = data.held_out

    :ok =
      Safetensors.write(Path.join(options.out, "frames.safetensors"), %{
        "obs" => {:f32, {count * seq, d_input}, binary}
      })
  end

  defp svg(losses) do
    {least, most} = Enum.min_max(losses)
    scale = if most > least, do: 300 / (most - least), else: 0.0
    across = 560 / max(length(losses) - 1, 1)

    points =
      for {loss, i} <- Enum.with_index(losses), into: "" do
        "#{Float.round(60 + across * i, 1)},#{Float.round(20 + (most - loss) * scale, 1)} "
      end

    """
    <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">
      <rect width="640" height="360" fill="white"/>
      <polyline points="#{points}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>
      <line x1="60" y1="20" x2="60" y2="320" stroke="black"/><line x1="60" y1="320" x2="620" y2="320" stroke="black"/>
      <text x="54" y="24" text-anchor="end">#{Float.round(most, 2)}</text>
      <text x="54" y="324" text-anchor="end">#{Float.round(least, 2)}</text>
      <text x="340" y="345" text-anchor="middle">training loss over #{length(losses)} steps</text>
    </svg>
    """
  end

  defp play(path, options) do
    frames = Path.join(options.out, "frames.safetensors")
    Mix.Task.rerun("exphil.play", ["--policy", path, "--frames", frames, "--seconds", "#{options.play}"])
  end
end

Imitate.run(System.argv())
