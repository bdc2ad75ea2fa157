defmodule Mix.Tasks.Exphil.ConvertTest do
  use ExUnit.Case

  alias ExPhil.Native.{Checkpoint, Error, Mamba, Safetensors}
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

  test "an export without metadata needs its dialect", %{tmp_dir: folder} do
    out = Path.join(folder, "out.safetensors")
    export = file("edifice_mamba2/mamba_ssd.safetensors")
    assert_raise Mix.Error, ~r/dialect/, fn -> Convert.run([export, out]) end
    Convert.run([export, out, "--dialect", "edifice_mamba_ssd", "--window", "60"])
    assert Mamba.info(Mamba.load!(out, backend: :host)).window == 60
  end

  test "a file that cannot be converted is refused with the reason", %{tmp_dir: folder} do
    out = Path.join(folder, "out.safetensors")
    assert_raise Mix.Error, ~r/nothing to convert/, fn -> Convert.run([Policies.checkpoint(), out]) end
    assert_raise Mix.Error, ~r/got 1 paths/, fn -> Convert.run(["a"]) end
    assert_raise Mix.Error, ~r/--speed is not an option/, fn -> Convert.run(["a", "b", "--speed"]) end
    assert_raise Mix.Error, ~r/cannot open/, fn -> Convert.run([Path.join(folder, "absent"), out]) end
    assert {:error, %Error{argument: "path"}} = Checkpoint.read(:path)
    old = file("exphil_policy/policy_old_term.bin")
    assert_raise Mix.Error, ~r/no obs/, fn -> Convert.run([old, out, "--check", out]) end
  end
end
