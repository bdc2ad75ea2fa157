defmodule ExPhil.Native.TestSupport.Mixers do
  @moduledoc false
  # The recorded policies of mamba23, Mamba-2 and Mamba-3, and the checks of every one of them, as a user loads and plays them.
  import ExPhil.Native.TestSupport.Numbers
  import ExPhil.Native.TestSupport.Slopes
  import ExUnit.Assertions

  alias ExPhil.Native.{Policy, Safetensors}
  alias ExPhil.Native.TestSupport.Shared

  def file(set, name), do: Shared.file("mamba23/#{set}/#{name}")
  def read(set, name), do: set |> file(name) |> Safetensors.read!()

  def load(set, options \\ []),
    do: Policy.load!(file(set, "policy.safetensors"), Keyword.merge([backend: :host], options))

  def open(path, options \\ []), do: Policy.load(path, [backend: :host] ++ options)

  def close?(got, expected, bound \\ 1.0e-5), do: relative_error(got, expected) < bound

  @doc "The file with other metadata, and perhaps with a config.json beside it."
  def copy(set, folder, metadata, config \\ nil) do
    path = Path.join(folder, "policy.safetensors")
    Safetensors.write!(path, read(set, "policy.safetensors"), metadata)
    if config, do: File.write!(Path.join(folder, "config.json"), config)
    path
  end

  def window(policy) do
    %{d_input: width} = Policy.info!(policy)
    Policy.window!(policy, uniform(3, {2, 12, width}, -1.0, 1.0))
  end

  @doc "The frames of a case, {count, width} as one binary."
  def frames(set) do
    golden = read(set, "golden.safetensors")

    case golden["obs"] do
      {:f32, {_, width}, bytes} ->
        {width, bytes}

      nil ->
        %{"obs" => {:f32, {_, width}, bytes}} = Shared.read("melee/match.safetensors")
        metadata = Safetensors.metadata!(file(set, "golden.safetensors"))
        [start, count] = for key <- ["match_start", "match_frames"], do: String.to_integer(metadata[key])
        {width, binary_part(bytes, start * width * 4, count * width * 4)}
    end
  end

  @doc "The carried state's answers and the windows. Returns info/1, the state after the last frame, and what was recorded."
  def check_answers(set, options \\ []) do
    policy = load(set, options)
    golden = read(set, "golden.safetensors")
    {width, bytes} = frames(set)
    {:f64, {count, d_output}, _} = golden["logits"]
    info = Policy.info!(policy)
    assert %{d_input: ^width, d_output: ^d_output} = info
    session = Policy.new_session!(policy)
    outs = for t <- 0..(count - 1), do: Policy.step!(session, binary_part(bytes, t * width * 4, width * 4))
    assert close?({:f32, nil, IO.iodata_to_binary(outs)}, golden["logits"])

    {:s32, _, ends} = golden["end_frame_index"]

    windows =
      for <<last::32-little <- ends>>,
        into: <<>>,
        do: binary_part(bytes, (last - 19) * width * 4, 20 * width * 4)

    assert close?(Policy.window!(policy, {:f32, {16, 20, width}, windows}), golden["window_logits"])

    {_, state} = Policy.forward!(policy, {:f32, {1, count, width}, bytes}, return_state: true)
    {info, state, golden}
  end

  def check_gradients(set, options \\ []) do
    policy = load(set, options)
    recorded = read(set, "grad.safetensors")
    assert close?(Policy.forward!(policy, recorded["obs"]), recorded["logits"])
    gradients = Policy.grad!(policy, recorded["obs"], recorded["g"])
    {_, shape, _} = recorded["obs"]
    assert shape |> elem(0) == 3
    for {name, gradient} <- gradients, do: assert(close?(gradient, recorded["grad." <> name], 1.0e-4), name)
    names = for "grad." <> name <- Map.keys(recorded), name != "obs", do: name
    assert Enum.sort(names) == gradients |> Map.keys() |> Enum.sort()
    {_, state} = Policy.forward!(policy, recorded["obs"], return_state: true)
    check_state_gradient(policy, recorded["obs"], recorded["g"], state)
  end

  @doc "Steps, prefills, rollback, snapshots, exported states and batches have the same bits."
  def check_calls(set, options \\ []) do
    policy = load(set, options)
    {width, bytes} = frames(set)
    at = &binary_part(bytes, &1 * width * 4, width * 4)
    session = Policy.new_session!(policy, history: 8)
    outs = for t <- 0..19, do: Policy.step!(session, at.(t))

    assert Policy.prefill!(Policy.new_session!(policy), binary_part(bytes, 0, 20 * width * 4)) ==
             IO.iodata_to_binary(outs)

    again = Policy.resimulate!(session, 3, IO.iodata_to_binary(for t <- 17..19, do: at.(t)))
    assert again == outs |> Enum.drop(17) |> IO.iodata_to_binary()
    snapshot = Policy.snapshot!(session)
    next = Policy.step!(session, at.(20))
    Policy.restore!(session, snapshot)
    other = Policy.new_session!(policy)
    Policy.import_state!(other, Policy.export_state!(session))
    assert Policy.step_batch!([session, other], at.(20) <> at.(20)) == next <> next
  end

  def check_saved(set, folder) do
    policy = load(set)
    path = Path.join(folder, set <> ".safetensors")
    Policy.save!(policy, path)
    saved = Policy.load!(path, backend: :host)
    assert window(saved) == window(policy)
    assert Policy.info!(saved).fingerprint == Policy.info!(policy).fingerprint
  end
end
