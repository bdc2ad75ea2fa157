defmodule ExPhil.Native.ExportTest do
  # examples/export_mamba.py, where PyTorch is there: EXPHIL_PYTHON names the Python that has it (python3).
  use ExUnit.Case, async: true

  alias ExPhil.Native.Policy

  @moduletag :tmp_dir
  @python System.get_env("EXPHIL_PYTHON", "python3")

  @torch System.find_executable(@python) != nil and
           match?({_, 0}, System.cmd(@python, ["-c", "import torch, safetensors"], stderr_to_stdout: true))
  unless @torch, do: @moduletag(skip: "#{@python} has no PyTorch with safetensors")

  test "a policy exported from PyTorch loads with what its modules say", %{tmp_dir: folder} do
    arguments = ["test/support/export_mamba.py", "examples", folder]
    assert {_, 0} = System.cmd(@python, arguments, stderr_to_stdout: true)
    mamba2 = Policy.load!(Path.join(folder, "mamba2.safetensors"), backend: :host)

    assert %{trunk: :mamba2, ngroups: 2, norm_before_gate: true, dt_limit_max: nil, settings_from: :metadata} =
             Policy.info!(mamba2)

    mamba3 = Policy.load!(Path.join(folder, "mamba3.safetensors"), backend: :host)
    assert %{trunk: :mamba3, ngroups: 2, a_floor: 0.25, settings_from: :metadata} = Policy.info!(mamba3)

    for policy <- [mamba2, mamba3] do
      assert %{d_state: 8, num_heads: 4, norm_epsilon: epsilon} = Policy.info!(policy)
      assert_in_delta epsilon, 0.001, 1.0e-9
      session = Policy.new_session!(policy)
      assert <<_::binary-size(12)>> = Policy.step!(session, <<0::size(160)>>)
    end
  end
end
