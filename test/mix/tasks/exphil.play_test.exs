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
    assert text =~ "2 layers, d_model 256, weights f32"
    assert text =~ "all 12 answers match one prefill of the same frames"
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
    broken = Path.join(folder, "broken.safetensors")
    File.write!(broken, "nothing of the kind")

    for {args, expected} <- [
          {["--fast"], ~r/--fast is not an option/},
          {["--fps", "quick"], ~r/--fps does not take "quick"/},
          {["--fps", "0"], ~r/--fps must be from 1/},
          {["--seconds", "-1"], ~r/--seconds must be above 0/},
          {["--sessions", "0"], ~r/--sessions must be at least 1/},
          {["--precision", "int4"], ~r/--precision must be f32, bf16, f16 or int8, got "int4"/},
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
