defmodule Mix.Tasks.Exphil.PlayTest do
  # Not async: there is one Mix shell.
  use ExUnit.Case

  import ExPhil.Native.TestSupport.MixShell

  alias ExPhil.Native.{Policy, Safetensors}
  alias ExPhil.Native.TestSupport.Shared
  alias ExPhil.Native.Tools.Demo
  alias Mix.Tasks.Exphil.Play

  @moduletag :tmp_dir

  setup :capture

  # A demo policy, and frames with the library's answers to them, changed by `change`.
  defp match(folder, change \\ & &1) do
    {policy, frames} = Demo.write(folder, frames: 12)
    %{"obs" => {:f32, {12, 287}, obs}} = tensors = Demo.frames(12)
    logits = Policy.load!(policy, backend: :host) |> Policy.new_session!() |> Policy.prefill!(obs)
    :ok = Safetensors.write(frames, Map.put(tensors, "logits", {:f32, {12, 64}, change.(logits)}))
    ["--policy", policy, "--frames", frames, "--backend", "host"]
  end

  test "plays generated frames and reports the result", %{tmp_dir: folder} do
    json = Path.join(folder, "play.json")
    Play.run(["--seconds", "0.2", "--backend", "host", "--json", json])
    text = output()
    assert text =~ ~r/^backend host, device .+/
    assert text =~ ~r/frames\s+12\n/
    assert text =~ "missed deadlines"
    for percentile <- ["p50", "p90", "p99", "max"], do: assert(text =~ percentile)
    assert text =~ "16.67 ms budget"
    assert text =~ "all 12 answers match one prefill of the same frames"

    written = File.read!(json)
    assert written =~ ~s("frames":12)
    assert written =~ ~s("backend":"host")
    assert written =~ ~s("failed":0)
  end

  @tag :shared
  test "plays ExPhil's GRU" do
    policy = Shared.file("exphil/trunks/gru_e287_h256_w60/policy.bin")
    Play.run(["--policy", policy, "--seconds", "0.2", "--backend", "host"])
    text = output()
    assert text =~ "gru, 2 layers, d_model 256, windows of 60, weights f32"
    assert text =~ "all 12 answers match one prefill of the same frames"
  end

  @tag :shared
  test "plays every gated policy of ExPhil and Edifice, with frames of its size", %{tmp_dir: folder} do
    for trunk <- ~w(gru gru_fused lstm lstm_fused min_gru min_lstm gated_deltanet),
        file <- ~w(policy.bin trunk.nx params.safetensors) do
      path = Shared.file("exphil/trunks/#{trunk}_e32_h32_w20/#{file}")
      Play.run(["--policy", path, "--seconds", "0.1", "--fps", "240", "--backend", "host", "--sessions", "2"])
      text = output()
      windows = if file == "policy.bin", do: ", windows of 20", else: ""
      assert text =~ "#{String.replace(trunk, "_fused", "")}, 2 layers, d_model 32#{windows}, weights f32"
      assert text =~ "all 24 answers match one prefill of the same frames"
    end

    # Recorded frames, and rounded weights.
    frames = Path.join(folder, "frames.safetensors")
    {:f32, {8, 20, 32}, windows} = Shared.read("exphil/trunks/lstm_e32_h32_w20/io.safetensors")["windows"]
    :ok = Safetensors.write(frames, %{"obs" => {:f32, {160, 32}, windows}})
    policy = Shared.file("exphil/trunks/lstm_e32_h32_w20/policy.bin")

    Play.run([
      "--policy",
      policy,
      "--frames",
      frames,
      "--fps",
      "1000",
      "--backend",
      "host",
      "--precision",
      "bf16"
    ])

    text = output()
    assert text =~ "all 160 answers match one prefill of the same frames"
    assert text =~ "error of rounded weights"
  end

  @tag :shared
  test "a file that lacks its dialect is refused in words of the shell" do
    path = Shared.file("exphil/trunks/mamba_2_e32_h32_w40/trunk.nx")
    error = catch_error(Play.run(["--policy", path, "--backend", "host"]))
    assert Exception.message(error) =~ "`mix exphil.convert FILE NEW.safetensors --dialect edifice_mamba_ssd`"
    refute Exception.message(error) =~ "dialect: :"
  end

  test "a fresh policy of any trunk and size is played", %{tmp_dir: folder} do
    for {trunk, d_input} <- [mamba1: 3, gru: 300, min_lstm: 600, gated_deltanet: 70] do
      path = Path.join(folder, "#{trunk}.safetensors")

      policy =
        Policy.init!(trunk, d_input: d_input, heads: [x: 3, y: 2], d_model: 8, layers: 1, backend: :host)

      :ok = Policy.save(policy, path)
      Play.run(["--policy", path, "--seconds", "0.1", "--fps", "240", "--backend", "host"])
      text = output()
      assert text =~ "#{trunk}, 1 layers, d_model 8"
      assert text =~ "all 24 answers match one prefill of the same frames"
    end
  end

  test "plays an entire recording and checks its logits", %{tmp_dir: folder} do
    Play.run(match(folder) ++ ["--sessions", "3"])
    text = output()
    assert text =~ "3 agents"
    assert text =~ "all 12 answers match the recorded logits"
  end

  test "--precision says what rounding changed, against the logits or the policy in f32", %{tmp_dir: folder} do
    Play.run(match(folder) ++ ["--precision", "int8", "--groups", "17,17,9,9,5,1,1,1,1,1,1,1"])
    text = output()
    assert text =~ "weights int8"
    assert text =~ "all 12 answers match one prefill of the same frames"
    assert text =~ ~r/error of rounded weights\s+\d\.\de-\d of the outputs, \d\.\de-\d in the worst frame/

    assert text =~
             ~r/frames answered as in f32\s+\d+\.\d\d % \(\d+ of 12\), the largest entry of each of 12 groups/

    json = Path.join(folder, "play.json")
    Play.run(["--seconds", "0.2", "--backend", "host", "--precision", "bf16", "--json", json])
    assert output() =~ "the largest entry of the outputs"
    written = File.read!(json)
    assert written =~ ~s("precision":"bf16")
    assert written =~ ~s("against":"f32")
  end

  test "--seconds shortens a recording", %{tmp_dir: folder} do
    Play.run(match(folder) ++ ["--seconds", "0.1"])
    assert output() =~ "all 6 answers match the recorded logits"
  end

  test "a wrong answer is a failure that names how many", %{tmp_dir: folder} do
    wrong = fn <<first::float-32-little, rest::binary>> -> <<first + 1.0::float-32-little, rest::binary>> end
    args = match(folder, wrong)
    assert_raise Mix.Error, ~r/1 of 12 answers are not what they should be/, fn -> Play.run(args) end
    assert output() =~ "1 of 12 answers do NOT match the recorded logits"
  end

  test "bad arguments are named", %{tmp_dir: folder} do
    {policy, frames} = Demo.write(folder, frames: 2)
    narrow = Path.join(folder, "narrow.safetensors")
    :ok = Safetensors.write(narrow, %{"obs" => {:f32, {1, 3}, <<0::96>>}})
    wide = Path.join(folder, "wide.safetensors")
    logits = {:f32, {2, 81}, :binary.copy(<<0::32>>, 2 * 81)}
    :ok = Safetensors.write(wide, Map.put(Safetensors.read!(frames), "logits", logits))
    broken = Path.join(folder, "broken.safetensors")
    File.write!(broken, "nothing of the kind")

    for {args, expected} <- [
          {["--fast"], ~r/--fast is not an option/},
          {["--fps", "quick"], ~r/--fps does not take "quick"/},
          {["--fps", "0"], ~r/--fps must be from 1/},
          {["--seconds", "-1"], ~r/--seconds must be above 0/},
          {["--sessions", "0"], ~r/--sessions must be at least 1/},
          {["--precision", "int4"], ~r/--precision must be f32, bf16, f16, int8 or tf32x3, got "int4"/},
          {["--policy", policy, "--frames", frames, "--backend", "host", "--groups", "60,5"],
           ~r/--groups must be sizes that add up to 64 outputs, got "60,5"/},
          {["--policy", policy, "--frames", frames, "--backend", "host", "--groups", "60,x"], ~r/--groups/},
          {["--backend", "tpu"], ~r/--backend must be auto, cuda or host, got "tpu"/},
          {["extra"], ~r/unexpected argument "extra"/},
          {["--policy", Path.join(folder, "none")], ~r/none/},
          {["--policy", broken], ~r/broken.safetensors/},
          {["--frames", broken], ~r/broken.safetensors/},
          {["--policy", policy, "--frames", narrow],
           ~r/takes 287 numbers a frame and .*narrow.safetensors has 3/},
          {["--policy", policy, "--frames", wide],
           ~r/answers with 64 outputs and the logits of .*wide.safetensors have 81/},
          {["--policy", policy, "--frames", frames, "--json", "/nowhere/x.json"], ~r/cannot write/}
        ] do
      assert_raise Mix.Error, expected, fn -> Play.run(args ++ (["--seconds", "0.02"] -- duplicate(args))) end
    end
  end

  # --seconds once only.
  defp duplicate(args), do: if("--seconds" in args, do: ["--seconds", "0.02"], else: [])

  test "logits without their policy are refused", %{tmp_dir: folder} do
    ["--policy", _policy | rest] = match(folder)
    assert_raise Mix.Error, ~r/has the logits of a policy/, fn -> Play.run(rest) end
  end
end
