defmodule Mix.Tasks.Exphil.Play do
  @shortdoc "Plays recorded or generated frames with a policy in real time"
  @moduledoc """
  Plays frames with a policy of any trunk at a fixed rate and reports the latency of the steps.

      mix exphil.play
      mix exphil.play --policy policy.safetensors --frames match.safetensors
      mix exphil.play --seconds 3 --sessions 64 --backend host --json play.json

  What is left out of `--policy` and `--frames` is generated (see `ExPhil.Native.Tools.Demo`), and ten seconds of generated frames
  are played. A policy that was trained on windows answers each frame from its window.

  Options:

    * `--policy FILE` - the checkpoint; generated where it is left out
    * `--frames FILE` - the recording: a safetensors file with `obs`, and optionally `frame` and `logits` (see
      `ExPhil.Native.Tools.Player.Recording`); played completely unless `--seconds` is less
    * `--fps N` - frames per second (60)
    * `--seconds N` - how long to play
    * `--backend auto|cuda|host` - where the policy runs (auto)
    * `--precision f32|bf16|f16|int8|tf32x3` - of the policy's weights (f32), see `ExPhil.Native.Policy.load/2`; with another one than f32 the report says what it changed
    * `--groups N,N,...` - sizes of the groups of outputs, for that report; those of the policy's heads where it has heads
    * `--sessions N` - agents that answer each frame, in one call (1)
    * `--no-pace` - do not prepare for each frame before it comes (see `ExPhil.Native.Tools.Player`)
    * `--json FILE` - also write the numbers to FILE

  The answers are compared with the recording's `logits`, or with a prefill of the same frames where it has none. Answers of
  rounded weights are compared with their own prefill; the error that rounding adds, against `logits` or the policy in f32, and
  the share of frames with the same largest entry in every group of outputs (`ExPhil.Native.Tools.Player.Rounding`) are reported. The
  exit status is 0 only if all agree. A missed frame is reported but is not a failure, because it depends on the
  machine.
  """

  use Mix.Task

  alias ExPhil.Native.{Error, Json, Policy}
  alias ExPhil.Native.Tools.{Arguments, Demo, Player}
  alias ExPhil.Native.Tools.Player.{Recording, Report, Rounding}

  @requirements ["app.start"]
  @switches [
    policy: :string,
    frames: :string,
    fps: :float,
    seconds: :float,
    backend: :string,
    precision: :string,
    groups: :string,
    sessions: :integer,
    pace: :boolean,
    json: :string
  ]
  @precisions %{"f32" => :f32, "bf16" => :bf16, "f16" => :f16, "int8" => :int8, "tf32x3" => :tf32x3}
  @backends %{"auto" => :auto, "cuda" => :cuda, "host" => :host}

  @impl true
  def run(args) do
    options = parse(args)
    recording = recording(options)
    model = load(options, recording)
    info = Policy.info!(model)
    recording = if options[:frames], do: recording, else: Recording.generated(recording.count, info.d_input)
    check_sizes(info, recording, options)
    groups = groups(options[:groups], info)
    say(heading(info, recording, options))

    result = play(model, recording, options)
    verify = Player.verify(result, model, recording)
    rounding = rounding(result, info, groups, recording, options)
    summary = Report.summarise(result)
    clear_line()
    say(Report.table(summary, verify, rounding))
    write_json(options[:json], Report.document(summary, verify, context(info, options), rounding))

    if verify.failed > 0 do
      Mix.raise("#{verify.failed} of #{verify.frames} answers are not what they should be")
    end
  end

  # ---- arguments -------------------------------------------------------------------------------------------

  defp parse(args) do
    options = Arguments.parse!(args, @switches, "exphil.play")
    Enum.each(options, &check_option/1)
    defaults(options)
  end

  defp check_option({:fps, fps}) when fps < 1.0 or fps > 10_000.0,
    do: Mix.raise("--fps must be from 1 to 10000, got #{fps}")

  defp check_option({:seconds, seconds}) when seconds <= 0.0 or seconds > 86_400.0,
    do: Mix.raise("--seconds must be above 0 and at most 86400, got #{seconds}")

  defp check_option({:sessions, sessions}) when sessions < 1,
    do: Mix.raise("--sessions must be at least 1, got #{sessions}")

  defp check_option({:backend, backend}) when not is_map_key(@backends, backend),
    do: Mix.raise("--backend must be auto, cuda or host, got #{inspect(backend)}")

  defp check_option({:precision, name}) when not is_map_key(@precisions, name),
    do: Mix.raise("--precision must be f32, bf16, f16, int8 or tf32x3, got #{inspect(name)}")

  defp check_option(_), do: :ok

  defp defaults(options) do
    Keyword.merge([fps: 60.0, sessions: 1, pace: true, backend: "auto", precision: "f32"], options)
  end

  # ---- what to play ----------------------------------------------------------------------------------------

  defp recording(options) do
    case options[:frames] do
      nil -> Recording.generated(frame_count(options[:seconds] || 10.0, options))
      path -> path |> Recording.load() |> or_raise() |> shorten(options)
    end
  end

  defp shorten(recording, options) do
    case options[:seconds] do
      nil -> recording
      seconds -> Recording.take(recording, frame_count(seconds, options))
    end
  end

  defp frame_count(seconds, options), do: max(round(seconds * options[:fps]), 1)

  defp load(options, recording) do
    if options[:policy] == nil and recording.logits != nil do
      Mix.raise("#{options[:frames]} has the logits of a policy: name it with --policy")
    end

    # Sized for the sessions, their snapshots, those of the warm-up, and two scratch states.
    max_sessions = options[:sessions] * (recording.depth + 3) + 2
    load_policy(options, max_sessions: max_sessions, precision: @precisions[options[:precision]])
  end

  defp load_policy(options, more) do
    policy = options[:policy] || generated_policy()
    policy |> Policy.load([backend: @backends[options[:backend]]] ++ more) |> or_raise()
  end

  defp generated_policy do
    {policy, _frames} = Demo.write(Path.join(Mix.Project.build_path(), "exphil_demo"))
    policy
  end

  defp check_sizes(info, recording, options) do
    if info.d_input != recording.d_input do
      Mix.raise(
        "the policy takes #{info.d_input} numbers a frame and #{options[:frames]} has " <>
          "#{recording.d_input}; --policy and --frames must fit each other"
      )
    end

    if recording.logits != nil and Recording.d_output(recording) != info.d_output do
      Mix.raise(
        "the policy answers with #{info.d_output} outputs and the logits of #{options[:frames]} have " <>
          "#{Recording.d_output(recording)}; --policy and --frames must fit each other"
      )
    end
  end

  # The groups of outputs that the option describes, or those of the policy's heads.
  defp groups(nil, info), do: info.groups

  defp groups(text, info) do
    sizes = for part <- String.split(text, ","), do: with({size, ""} <- Integer.parse(part), do: size)

    if not Enum.all?(sizes, &(is_integer(&1) and &1 > 0)) or Enum.sum(sizes) != info.d_output,
      do: Mix.raise("--groups must be sizes that add up to #{info.d_output} outputs, got #{inspect(text)}")

    {groups, _} =
      Enum.map_reduce(sizes, 0, fn size, first -> {{:group, first..(first + size - 1)}, first + size} end)

    groups
  end

  # What rounded weights changed: nil for f32, and where rollbacks have no logits to compare with.
  defp rounding(_result, %{precision: :f32}, _groups, _recording, _options), do: nil

  defp rounding(result, _info, groups, %{logits: nil, depth: 0} = recording, options) do
    model = load_policy(options, max_sessions: 2)
    obs = recording |> Recording.frames() |> Enum.map(&elem(&1, 1)) |> IO.iodata_to_binary()
    outs = Policy.prefill!(Policy.new_session!(model), obs)
    bytes = div(byte_size(outs), recording.count)
    Rounding.compare(result, for(<<row::binary-size(bytes) <- outs>>, do: row), groups, :f32)
  end

  defp rounding(_result, _info, _groups, %{logits: nil}, _options), do: nil

  defp rounding(result, _info, groups, recording, _options),
    do: Rounding.compare(result, Recording.logits(recording), groups, :logits)

  # ---- playing and telling ---------------------------------------------------------------------------------

  defp play(model, recording, options) do
    on_frame = if IO.ANSI.enabled?(), do: &show_progress(&1, recording.count), else: fn _ -> :ok end

    play = Keyword.take(options, [:fps, :sessions, :pace])
    model |> Player.play(recording, [on_frame: on_frame] ++ play) |> or_raise()
  end

  # Four times a second at 60 FPS, overwriting one line.
  defp show_progress({frames, _, _} = so_far, total) do
    if rem(frames, 15) == 0, do: IO.write("\r\e[K" <> Report.progress(so_far, total))
    :ok
  end

  defp clear_line, do: if(IO.ANSI.enabled?(), do: IO.write("\r\e[K"))

  defp heading(info, recording, options) do
    agents = if options[:sessions] == 1, do: "one agent", else: "#{options[:sessions]} agents"

    """
    backend #{info.backend}, device #{info.device.name}#{measured(info.choice)}
    policy #{options[:policy] || "generated"}: #{info.trunk}, #{info.n_layer} layers, d_model #{info.d_model}#{if info[:d_state], do: ", state #{info.d_state}"}#{if info.window, do: ", windows of #{info.window}"}, weights #{info.precision}
    playing #{recording.count} frames of #{options[:frames] || "generated play"} at #{options[:fps]} FPS with #{agents}#{unless options[:pace], do: ", without a pace"}
    """
    |> String.trim_trailing()
  end

  # What `--backend auto` measured at load.
  defp measured(%{cuda: %{paced: cuda}, host: %{paced: host}}),
    do: " (a frame at 60 FPS took #{cuda} us on cuda, #{host} us on host)"

  defp measured(%{cuda: %Error{message: message}}), do: " (cuda failed: #{message})"
  defp measured(_named_or_only_host), do: ""

  defp context(info, options) do
    %{
      backend: info.backend,
      precision: info.precision,
      device: info.device.name,
      policy: options[:policy] || "generated",
      recording: options[:frames] || "generated",
      paced: options[:pace],
      version: to_string(Application.spec(:exphil_native, :vsn)),
      elixir: System.version(),
      otp: System.otp_release(),
      system: to_string(:erlang.system_info(:system_architecture)),
      date: DateTime.to_iso8601(DateTime.utc_now())
    }
  end

  defp write_json(nil, _document), do: :ok

  defp write_json(path, document) do
    case File.write(path, [Json.encode(document), "\n"]) do
      :ok -> :ok
      {:error, reason} -> Mix.raise("cannot write #{path}: #{:file.format_error(reason)}")
    end
  end

  defp say(text), do: Mix.shell().info(text)

  defp or_raise({:ok, value}), do: value

  defp or_raise({:error, %Error{} = error}),
    do: error |> Exception.message() |> Arguments.convert_first() |> Mix.raise()

  defp or_raise({:error, reason}) when is_binary(reason), do: Mix.raise(reason)
end
