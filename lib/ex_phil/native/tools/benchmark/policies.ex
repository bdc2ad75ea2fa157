defmodule ExPhil.Native.Tools.Benchmark.Policies do
  @moduledoc false
  # The suite policy: a policy of any trunk, or the generated one of ExPhil.Native.Tools.Demo, on the backend,
  # with the calls of a game.

  alias ExPhil.Native.Policy
  alias ExPhil.Native.Tools.Benchmark.{Case, Inputs}
  alias ExPhil.Native.Tools.{Demo, Reference}

  # Where the policy was not trained on windows of another length.
  @window 60
  # The longest rollback of a game's netcode.
  @rollback 7
  # The reference takes about a millisecond for a frame.
  @reference_frames 60

  @doc "The cases of the policy that `load/1` returned."
  @spec cases(String.t(), map()) :: [Case.t()]
  def cases("policy", %{policy: policy} = context) do
    [step(policy), rollback(policy), prefill(policy), window(policy)] ++
      Enum.map(agents(context), &agents(policy, &1))
  end

  defp agents(context), do: if(context.quick, do: [16], else: [16, 64, 256])

  @doc "Loads the policy at `context.path`; where that is nil, one is written to `context.folder` and loaded from there."
  @spec load(map()) :: map()
  def load(context) do
    path = context.path || context.folder |> Demo.write(frames: 0) |> elem(0)
    max_sessions = 4 * (Enum.sum(agents(context)) + @rollback)
    model = Policy.load!(path, backend: context.backend, max_sessions: max_sessions)
    info = Policy.info!(model)
    {_outs, state} = Policy.forward!(model, {:f32, {1, 0, info.d_input}, <<>>}, return_state: true)
    states = for {name, {_, shape, _}} <- state, do: {name, Enum.product(Tuple.to_list(shape))}

    %{
      path: path,
      model: model,
      info: info,
      window: info.window || @window,
      weights: weights(model),
      states: states |> Enum.map(&elem(&1, 1)) |> Enum.sum(),
      # A convolution's state is only shifted.
      updated: for({name, floats} <- states, name != :conv, reduce: 0, do: (sum -> sum + floats)),
      name: "#{context.path || "generated"}: #{info.trunk}, #{info.n_layer} layers, d_model #{info.d_model}"
    }
  end

  # Carried states, whatever the policy was trained on.
  defp session(policy), do: Policy.new_session!(policy.model, window: :none)

  # ---- the calls -------------------------------------------------------------------------------------------

  defp step(policy) do
    session = session(policy)

    case_of(policy, "step, one agent", ["agents", "frames"], {1, 1},
      inputs: &elem(frames(policy, 1, &1), 2),
      call: &Policy.step!(session, &1),
      answers: fn frames -> each_frame(policy, frames) end,
      check_frames: 8
    )
  end

  # The cost of a frame with a rollback: restore, and replay the frames with a snapshot each.
  defp rollback(policy) do
    session = session(policy)
    before = Policy.snapshot!(session)

    case_of(policy, "rollback of #{@rollback}", ["agents", "frames"], {1, @rollback},
      inputs: &rows(frames(policy, @rollback, &1)),
      call: fn frames -> replay(session, before, frames) end,
      answers: fn frames -> session |> replay(before, rows(frames)) |> IO.iodata_to_binary() end,
      passes: @rollback,
      # The restore and each frame's snapshot copy the state, which reads and writes it once more.
      copies: @rollback + 1
    )
  end

  defp replay(session, before, frames) do
    Policy.restore!(session, before)

    for obs <- frames do
      Policy.snapshot!(session)
      Policy.step!(session, obs)
    end
  end

  defp prefill(%{window: window} = policy) do
    session = session(policy)

    case_of(policy, "prefill of #{window}", ["agents", "frames"], {1, window},
      inputs: &elem(frames(policy, window, &1), 2),
      call: &Policy.prefill!(session, &1),
      answers: fn {_, _, obs} -> policy |> session() |> Policy.prefill!(obs) end
    )
  end

  defp window(%{window: window} = policy) do
    windows = fn {type, {count, width}, binary} -> {type, {1, count, width}, binary} end

    case_of(policy, "window of #{window}", ["agents", "frames"], {1, window},
      inputs: &windows.(frames(policy, window, &1)),
      call: &Policy.window!(policy.model, &1),
      answers: fn frames -> policy.model |> Policy.window!(windows.(frames)) |> elem(2) end,
      last: true
    )
  end

  # Every agent gets the same frames only in the check, where agents and reference must agree frame by frame.
  defp agents(policy, count) do
    sessions = for _ <- 1..count, do: session(policy)

    case_of(policy, "#{count} agents", ["agents", "frames"], {count, 1},
      inputs: &elem(frames(policy, count, &1), 2),
      call: &Policy.step_batch!(sessions, &1),
      answers: fn frames -> each_frame_of_all(policy, frames, count) end,
      check_frames: 4
    )
  end

  # ---- cases -----------------------------------------------------------------------------------------------

  defp case_of(policy, name, axes, {agents, frames}, options) do
    info = policy.info
    count = agents * frames
    answers = if options[:last], do: agents, else: count
    passes = Keyword.get(options, :passes, 1)

    %Case{
      suite: "policy",
      name: name,
      axes: axes,
      shape: [agents, frames],
      operations: count * (2 * policy.weights + 7 * policy.updated),
      bytes: %{
        in: 4 * count * info.d_input,
        out: 4 * answers * info.d_output,
        # A pass reads the weights once and each agent's state once, and writes the state back.
        resident:
          4 * passes * policy.weights +
            8 * policy.states * (passes * agents + Keyword.get(options, :copies, 0))
      },
      inputs: options[:inputs],
      call: options[:call],
      check: fn _input -> check(policy, count, options) end,
      tolerance: Case.tolerance(:f32)
    }
  end

  defp check(policy, count, options) do
    measured = options[:check_frames] || min(count, @reference_frames)
    frames = frames(policy, measured, 4711)
    {{_, _, theirs}, nanoseconds} = Reference.policy!(policy.path, frames)
    width = 4 * policy.info.d_output
    theirs = if options[:last], do: binary_part(theirs, byte_size(theirs) - width, width), else: theirs

    %{
      ours: {:f32, {}, options[:answers].(frames)},
      theirs: {:f32, {}, theirs},
      nanoseconds: nanoseconds,
      fraction: measured / count
    }
  end

  defp each_frame(policy, frames) do
    session = session(policy)
    for obs <- rows(frames), into: <<>>, do: Policy.step!(session, obs)
  end

  # The last agent's answers.
  defp each_frame_of_all(policy, frames, count) do
    sessions = for _ <- 1..count, do: session(policy)
    width = 4 * policy.info.d_output

    for obs <- rows(frames), into: <<>> do
      sessions |> Policy.step_batch!(:binary.copy(obs, count)) |> binary_part(width * (count - 1), width)
    end
  end

  # ---- sizes and inputs ------------------------------------------------------------------------------------

  defp frames(policy, count, seed), do: Inputs.uniform(:f32, {count, policy.info.d_input}, seed, {-1.0, 1.0})

  defp rows({_, {count, width}, binary}),
    do: for(i <- 0..(count - 1), do: binary_part(binary, 4 * width * i, 4 * width))

  # Elements of all weight matrices; vectors are negligible.
  defp weights(model) do
    for {_, {_, shape, _}} <- Policy.weights!(model), tuple_size(shape) > 1, reduce: 0 do
      sum -> sum + Enum.product(Tuple.to_list(shape))
    end
  end
end
