defmodule Mix.Tasks.Exphil.ConvertTest do
  use ExUnit.Case

  alias ExPhil.Native.{Checkpoint, Error, Policy, Safetensors}
  alias ExPhil.Native.TestSupport.{MixShell, Policies, Shared}
  alias Mix.Tasks.Exphil.Convert

  @moduletag :shared
  @moduletag :tmp_dir
  setup do
    MixShell.capture()
  end

  defp file(name), do: Shared.file("exphil/" <> name)

  test "each form loads again without options, as the same model with the same answers", %{tmp_dir: folder} do
    out = Path.join(folder, "out.safetensors")
    frames = file("frames600.safetensors")

    for {name, options, dialect, window} <- [
          {"exphil_policy/policy_old_term.bin", [], "edifice_mamba", 20},
          {"edifice_mamba2/short_window.nx", ["--chunk-size", "16"], "edifice_mamba_ssd", 24},
          {"exphil_policy/policy_old_term.bin", ["--dt", "per_channel"], "edifice_mamba", 20}
        ] do
      Convert.run([file(name), out, "--check", frames] ++ options)
      output = MixShell.output()
      assert output =~ "#{dialect}, window #{window}"
      assert output =~ "the same answers to 600 frames"
      {:ok, metadata} = Safetensors.metadata(out)
      assert metadata["exphil_native.window_size"] == "#{window}"
      assert {:ok, tensors} = Checkpoint.read(file(name))
      assert Safetensors.read!(out) == tensors
    end
  end

  test "gated policies of every layout load again, as the same policies with the same answers", %{
    tmp_dir: folder
  } do
    out = Path.join(folder, "out.safetensors")
    frames = Path.join(folder, "frames.safetensors")
    {:f32, {8, 20, 32}, windows} = Shared.read("exphil/trunks/gru_e32_h32_w20/io.safetensors")["windows"]
    :ok = Safetensors.write(frames, %{"obs" => {:f32, {160, 32}, windows}})

    for trunk <- ~w(gru gru_fused lstm lstm_fused min_gru min_lstm gated_deltanet),
        {file, window} <- [
          {"policy.bin", "window 20"},
          {"trunk.nx", "no window"},
          {"params.safetensors", "no window"}
        ] do
      from = file("trunks/#{trunk}_e32_h32_w20/#{file}")
      Convert.run([from, out, "--check", frames])
      output = MixShell.output()
      assert output =~ "#{String.replace(trunk, "_fused", "")}, #{window}, 32 in"
      assert output =~ "the same answers to 160 frames"
      assert {:ok, tensors} = Checkpoint.read(from)
      assert Safetensors.read!(out) == tensors
    end
  end

  test "an export without metadata needs its dialect", %{tmp_dir: folder} do
    out = Path.join(folder, "out.safetensors")
    export = file("edifice_mamba2/mamba_ssd.safetensors")
    refused = fn args -> Exception.message(assert_raise(Mix.Error, fn -> Convert.run(args) end)) end
    assert refused.([export, out]) =~ "pass --dialect edifice_mamba_ssd if it is that"

    assert refused.([export, out, "--dialect", "x"]) =~
             ~s(--dialect must be one of state_spaces, edifice_mamba,)

    assert refused.([export, out, "--dialect", "x"]) =~ ~s(got "x")
    assert refused.([export, out, "--chunk-size", "0"]) =~ "--chunk-size must be a positive integer"
    Convert.run([export, out, "--dialect", "edifice_mamba_ssd", "--window", "60"])
    assert Policy.info!(Policy.load!(out, backend: :host)).window == 60
  end

  test "a file that cannot be converted is refused with the reason", %{tmp_dir: folder} do
    out = Path.join(folder, "out.safetensors")
    assert_raise Mix.Error, ~r/nothing to convert/, fn -> Convert.run([Policies.checkpoint(), out]) end
    assert_raise Mix.Error, ~r/got 1 paths/, fn -> Convert.run(["a"]) end
    assert_raise Mix.Error, ~r/--speed is not an option/, fn -> Convert.run(["a", "b", "--speed"]) end

    assert_raise Mix.Error, ~r/--foo-bar is not an option/, fn ->
      Convert.run(["a", "b", "--foo-bar", "3"])
    end

    many = ["a", "b", "--window", "many"]
    assert_raise Mix.Error, ~r/--window does not take "many"/, fn -> Convert.run(many) end
    assert_raise Mix.Error, ~r/cannot open/, fn -> Convert.run([Path.join(folder, "absent"), out]) end
    assert {:error, %Error{argument: "path"}} = Checkpoint.read(:path)

    named = fn from, to, options ->
      assert {:error, error} = Checkpoint.convert(from, to, options)
      error
    end

    assert %Error{kind: :invalid_argument, argument: "to"} = named.(out, nil, [])
    assert %Error{kind: :invalid_argument, argument: "to"} = named.(out, "a\0b", [])
    assert %Error{kind: :invalid_argument, argument: "from"} = named.(nil, out, [])
    assert %Error{kind: :invalid_argument, argument: ":foo_bar"} = named.(out, out, foo_bar: 3)
    assert %Error{kind: :invalid_argument, argument: "options"} = named.(out, out, [1])
    refute File.exists?(out)
    old = file("exphil_policy/policy_old_term.bin")
    assert_raise Mix.Error, ~r/no obs/, fn -> Convert.run([old, out, "--check", out]) end
  end
end
