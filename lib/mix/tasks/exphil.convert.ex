defmodule Mix.Tasks.Exphil.Convert do
  @shortdoc "Writes a policy of Edifice or ExPhil as safetensors"
  @moduledoc """
  Writes a policy of Edifice (`.nx`) or ExPhil (`.bin`) as a safetensors file that loads without options.

      mix exphil.convert policy.bin policy.safetensors
      mix exphil.convert export.safetensors policy.safetensors --dialect edifice_mamba_ssd --window 60
      mix exphil.convert policy.bin policy.safetensors --check frames.safetensors

  Options:

    * `--check FRAMES` - a safetensors file with `obs` ({n, d_input} of f32): both files answer all of its frames,
      carried and in windows, and the task fails unless the answers have the same bits
    * `--dialect edifice_mamba|edifice_mamba_ssd`, `--window N`, `--chunk-size N`, `--dt mean|per_channel`, `--num-heads N`,
      `--ngroups N`, `--norm-before-gate`, `--dt-limit MIN,MAX`, `--a-floor X` - options that IN does not contain; see
      `ExPhil.Native.Policy.load/2`
  """

  use Mix.Task

  alias ExPhil.Native.{Checkpoint, Error, Policy, Safetensors}
  alias ExPhil.Native.Tools.Arguments

  @requirements ["app.start"]
  @switches [
    check: :string,
    dialect: :string,
    window: :integer,
    chunk_size: :integer,
    dt: :string,
    num_heads: :integer,
    ngroups: :integer,
    norm_before_gate: :boolean,
    dt_limit: :string,
    a_floor: :float
  ]
  @names %{
    "state_spaces" => :state_spaces,
    "edifice_mamba" => :edifice_mamba,
    "edifice_mamba_ssd" => :edifice_mamba_ssd,
    "mean" => :mean,
    "per_channel" => :per_channel
  }

  @impl true
  def run(args) do
    {options, [from, to]} = Arguments.parse_paths!(args, @switches, "exphil.convert", ["IN", "OUT"])
    {check, options} = Keyword.pop(options, :check)
    options = for {name, value} <- options, do: {name, value(name, value)}

    case Checkpoint.convert(from, to, options) do
      {:ok, info} ->
        window = if info.window, do: "window #{info.window}", else: "no window"

        Mix.shell().info(
          "#{to}: #{info[:dialect] || info.trunk}, #{window}, #{info.d_input} in, #{info.d_output} out"
        )

        if check, do: check(from, to, options, check)

      {:error, error} ->
        refuse(error)
    end
  end

  defp value(:dt_limit, text) do
    numbers = for part <- String.split(text, ","), do: Float.parse(part)

    case numbers do
      [{least, ""}, {most, ""}] -> {least, most}
      _ -> Mix.raise("--dt-limit must be two numbers with a comma between them, got #{text}")
    end
  end

  defp value(_name, value), do: Map.get(@names, value, value)

  @spec refuse(Exception.t()) :: no_return()
  defp refuse(error) do
    error
    |> Exception.message()
    |> Arguments.in_shell_words(Keyword.keys(@switches), Map.keys(@names))
    |> Mix.raise()
  end

  defp check(from, to, options, path) do
    frames = frames(path)
    old = Policy.load!(from, [{:backend, :host} | options])
    new = Policy.load!(to, backend: :host)
    {:f32, {count, _}, _} = frames

    if answers(old, frames) != answers(new, frames),
      do: Mix.raise("#{to} answers #{path} otherwise than #{from}")

    Mix.shell().info("the same answers to #{count} frames")
  rescue
    error in Error -> refuse(error)
  end

  # The answers with a state carried through all frames, and of the last window.
  defp answers(model, {:f32, {count, width}, bytes} = frames) do
    session = Policy.new_session!(model, window: :none)
    rows = min(count, Policy.info!(model).window || count)
    last = binary_part(bytes, (count - rows) * width * 4, rows * width * 4)
    {Policy.prefill!(session, frames), Policy.window!(model, {:f32, {1, rows, width}, last})}
  end

  defp frames(path) do
    case Safetensors.read!(path) do
      %{"obs" => {:f32, {count, width}, _} = frames} when count > 0 and width > 0 -> frames
      _ -> Mix.raise("#{path} has no obs of f32 with the shape {frames, d_input}")
    end
  end
end
