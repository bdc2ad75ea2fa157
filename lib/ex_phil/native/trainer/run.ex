defmodule ExPhil.Native.Trainer.Run do
  @moduledoc false
  # The steps and runs of ExPhil.Native.Trainer, which documents them. Every function raises
  # ExPhil.Native.Error.

  alias ExPhil.Native.{Loss, Options, Policy, Safetensors, Trainer}
  alias ExPhil.Native.Trainer.{Curve, Data, Lanes, Progress, Resident}

  @fit_options [:steps, :held_out, :evaluate_every, :progress, :csv, :svg, :checkpoint, :checkpoint_every]

  # Nothing is changed where anything of it fails.
  @doc "One step on these pieces, from a new agent's state."
  @spec step(Trainer.t(), [Data.piece()]) :: Trainer.t()
  def step(trainer, pieces), do: trainer |> step(pieces, nil) |> elem(0)

  # From these states. Returns the trainer and the states after the pieces.
  defp step(trainer, pieces, state) do
    number = Trainer.steps(trainer) + 1
    rate = Trainer.learning_rate(trainer, number)
    {loss, norm, last} = Resident.step!(trainer, pieces, state, rate)
    {%{trainer | step: number, history: [{number, loss, rate, norm} | trainer.history]}, last}
  end

  # The first excerpt of a sequence begins as a new agent does, and the next ones with the state of those
  # before them. The gradient ends where an excerpt begins.
  defp carried_step(%{options: options} = trainer, data, fingerprint, number) do
    lanes = if trainer.lanes && trainer.lanes.data == fingerprint, do: trainer.lanes
    {places, pieces} = Lanes.draw(data, options, number, lanes)
    state = Lanes.initial_state(places, lanes, first_state(trainer.policy, options))
    {trainer, last} = step(trainer, pieces, state)
    %{trainer | lanes: Lanes.next(fingerprint, places, options.seq, last)}
  end

  @doc "The state of a new agent."
  @spec first_state(Policy.t(), map()) :: Policy.state()
  def first_state(policy, %{d_input: d_input}) do
    {_outs, state} = Policy.forward!(policy, {:f32, {1, 0, d_input}, <<>>}, return_state: true)
    state
  end

  defp compute_loss(%{options: %{loss: {:cross_entropy, groups, _columns}}}, outs, targets, mask),
    do: Loss.cross_entropy(outs, targets, groups, mask: mask)

  defp compute_loss(_trainer, outs, targets, mask), do: Loss.mean_squared_error(outs, targets, mask: mask)

  @doc "Trainer.fit/3."
  @spec fit(Trainer.t(), term(), term()) :: Trainer.t()
  def fit(trainer, sequences, options) do
    run = Options.read!(options, @fit_options, &fit_options(&1, trainer))
    data = Data.read!(sequences, "sequences", trainer.options)
    run = Map.put(run, :fingerprint, if(trainer.options.carry, do: Lanes.fingerprint(data)))
    first = Trainer.steps(trainer)
    progress = Progress.start(run.progress, run.steps)
    numbers = Enum.take(Stream.iterate(1, &(&1 + 1)), run.steps)
    trained = Enum.reduce(numbers, trainer, &fit_step(&2, &1, first, data, run, progress))
    Progress.stop(progress)
    write_curves(trained, run)
    trained
  end

  defp fit_options(options, trainer) do
    steps =
      case options[:steps] do
        0 -> 0
        _ -> Options.positive_integer(options, :steps, nil)
      end

    tenth = max(div(steps, 10), 1)
    if options[:svg], do: Curve.require_gnuplot!()

    %{
      steps: steps,
      held_out: options[:held_out] && Data.read!(options[:held_out], ":held_out", trainer.options),
      evaluate_every: Options.positive_integer(options, :evaluate_every, tenth),
      progress: Options.boolean(options, :progress, true),
      csv: path!(options, :csv),
      svg: path!(options, :svg),
      checkpoint: path!(options, :checkpoint),
      checkpoint_every: Options.positive_integer(options, :checkpoint_every, tenth)
    }
  end

  defp path!(options, name) do
    path = options[name]

    case path == nil || Safetensors.check_path(path, inspect(name)) do
      {:error, error} -> raise error
      _ -> path
    end
  end

  defp fit_step(trainer, number, first, data, run, progress) do
    trainer =
      if run.fingerprint,
        do: carried_step(trainer, data, run.fingerprint, first + number),
        else: step(trainer, Data.draw(data, trainer.options, first + number))

    due? = &(rem(number, &1) == 0 or number == run.steps)

    trainer =
      if run.held_out != nil and due?.(run.evaluate_every), do: note_held_out(trainer, run), else: trainer

    if run.checkpoint != nil and due?.(run.checkpoint_every), do: Trainer.save!(trainer, run.checkpoint)
    Progress.show(progress, number, trainer)
    trainer
  end

  defp note_held_out(trainer, run) do
    loss = held_out_loss(trainer, run.held_out).loss
    trainer = %{trainer | evaluations: [{Trainer.steps(trainer), loss} | trainer.evaluations]}
    write_curves(trainer, run)
    trainer
  end

  defp write_curves(trainer, run) do
    if run.csv, do: Curve.write!(run.csv, ":csv", Trainer.csv(trainer))
    if run.svg && trainer.history != [], do: Curve.write!(run.svg, ":svg", Trainer.svg!(trainer))
  end

  # What is trained from carried states is judged from them.
  defp whole(%{carry: true} = options), do: %{options | seq: nil}
  defp whole(options), do: options

  @doc "The loss on these sequences, cut as in training."
  @spec held_out_loss(Trainer.t(), Data.t()) :: map()
  def held_out_loss(trainer, data) do
    # All outputs are gathered, so that the loss is one mean over all frames.
    {outs, targets, masks} =
      data
      |> Data.pieces(whole(trainer.options))
      |> Enum.chunk_every(trainer.options.batch)
      |> Enum.map(fn pieces ->
        {frames, _targets, _mask} = Data.batch(pieces, data)
        {:f32, _shape, outs} = Policy.forward!(trainer.policy, frames)
        {Data.unpad(outs, pieces, trainer.options.d_output), pieces}
      end)
      |> Data.gather(data, trainer.options.d_output)

    compute_loss(trainer, outs, targets, masks)
  end
end
