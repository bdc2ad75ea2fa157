defmodule ExPhil.Native.TestSupport.Policies do
  @moduledoc false
  # Small policies with random weights from a seed, as checkpoints on disk.

  alias ExPhil.Native.Safetensors
  alias ExPhil.Native.TestSupport.Numbers

  @sizes %{d_input: 13, d_model: 24, n_layer: 2, d_inner: 40, d_state: 5, d_conv: 4, dt_rank: 3, d_output: 7}

  def sizes, do: @sizes

  @doc "The tensors of a checkpoint. Options override the sizes; `:seed` changes the weights."
  def tensors(options \\ []) do
    s = Map.merge(@sizes, Map.new(options))

    shapes =
      [{"input_proj.weight", {s.d_model, s.d_input}}, {"input_proj.bias", {s.d_model}}] ++
        Enum.flat_map(0..(s.n_layer - 1), &layer(&1, s)) ++
        [
          {"backbone.norm_f.weight", {s.d_model}},
          {"head.weight", {s.d_output, s.d_model}},
          {"head.bias", {s.d_output}}
        ]

    for {{name, shape}, index} <- Enum.with_index(shapes), into: %{} do
      {name, random(name, shape, 1000 * Map.get(s, :seed, 1) + index)}
    end
  end

  defp layer(i, s) do
    mixer = "backbone.layers.#{i}.mixer"

    [
      {"backbone.layers.#{i}.norm.weight", {s.d_model}},
      {"#{mixer}.in_proj.weight", {2 * s.d_inner, s.d_model}},
      {"#{mixer}.conv1d.weight", {s.d_inner, 1, s.d_conv}},
      {"#{mixer}.conv1d.bias", {s.d_inner}},
      {"#{mixer}.x_proj.weight", {s.dt_rank + 2 * s.d_state, s.d_inner}},
      {"#{mixer}.dt_proj.weight", {s.d_inner, s.dt_rank}},
      {"#{mixer}.dt_proj.bias", {s.d_inner}},
      {"#{mixer}.A_log", {s.d_inner, s.d_state}},
      {"#{mixer}.D", {s.d_inner}},
      {"#{mixer}.out_proj.weight", {s.d_model, s.d_inner}}
    ]
  end

  # Norm weights near 1, and other weights of a size that keeps activations near 1.
  defp random(name, shape, seed) do
    cond do
      String.contains?(name, "norm") -> Numbers.uniform(seed, shape, 0.8, 1.2)
      String.ends_with?(name, "dt_proj.bias") -> Numbers.uniform(seed, shape, -4.0, -1.0)
      String.ends_with?(name, "A_log") -> Numbers.uniform(seed, shape, -1.0, 2.0)
      tuple_size(shape) == 1 -> Numbers.uniform(seed, shape, -0.5, 0.5)
      true -> Numbers.uniform(seed, shape, -bound(shape), bound(shape))
    end
  end

  defp bound(shape), do: 1.5 / :math.sqrt(elem(shape, tuple_size(shape) - 1))

  @doc "Writes a checkpoint and returns its path. A file of the same options is written once."
  def checkpoint(options \\ []) do
    path = Path.join(folder(), "policy_#{:erlang.phash2(options)}.safetensors")
    unless File.exists?(path), do: write(path, tensors(options))
    path
  end

  @doc "Writes these tensors as a checkpoint of that name, and returns its path."
  def checkpoint_of(name, tensors), do: write(Path.join(folder(), "#{name}.safetensors"), tensors)

  @doc "Writes these bytes as a checkpoint of that name, and returns its path."
  def checkpoint_bytes(name, bytes) do
    path = Path.join(folder(), "#{name}.safetensors")
    File.write!(path, bytes)
    path
  end

  defp write(path, tensors) do
    part = "#{path}.#{System.unique_integer([:positive])}"
    :ok = Safetensors.write(part, tensors)
    File.rename!(part, path)
    path
  end

  @doc "Observations for `count` frames: {count, d_input}."
  def frames(count, seed \\ 7, d_input \\ @sizes.d_input),
    do: Numbers.uniform(seed, {count, d_input}, -2.0, 2.0)

  defp folder do
    folder = Path.join(System.tmp_dir!(), "exphil_native_test_#{System.pid()}")
    File.mkdir_p!(folder)
    folder
  end

  def remove_folder, do: File.rm_rf!(folder())
end
