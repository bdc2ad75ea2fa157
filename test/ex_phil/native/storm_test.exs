defmodule ExPhil.Native.StormTest do
  # test/storm.exs in a VM of its own, for 5 s, or for EXPHIL_STORM_SECONDS (10 in .ci/run).
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Peer

  @seconds System.get_env("EXPHIL_STORM_SECONDS", "5")
  @moduletag :either
  @moduletag timeout: 1_800_000 + 2000 * String.to_integer(@seconds)

  # Of exphil/trunks.
  @gated ~w(gru_e32_h32_w20 gru_fused_e32_h32_w20 lstm_e32_h32_w20 lstm_fused_e32_h32_w20 min_gru_e32_h32_w20
            min_lstm_e32_h32_w20)

  @mixers ~w(mamba23/mamba2_dssm/policy.safetensors mamba23/mamba3_siso/policy.safetensors
             mamba23/mamba3_mimo_norm/policy.safetensors exphil/trunks/gated_deltanet_e32_h32_w20/policy.bin)

  defp storm(policies, backend) do
    arguments = [Enum.join(policies, ","), @seconds, "#{:rand.uniform(1_000_000_000)}", "#{backend}"]
    {output, status} = peer_script("test/storm.exs", arguments, library())
    IO.puts(String.trim(output))
    assert {status, output} == {0, output}
    assert output =~ "series compared"
  end

  backend_test "64 processes, kills, nonsense, loads and reloads: every answer has its bits", %{
    backend: backend
  } do
    storm([Policies.checkpoint()], backend)
  end

  @tag :shared
  backend_test "the same with policies of every trunk at once", %{backend: backend} do
    gated = for set <- @gated, do: Shared.file("exphil/trunks/#{set}/policy.bin")
    mixers = for file <- @mixers, do: Shared.file(file)
    storm([Policies.checkpoint() | gated ++ mixers], backend)
  end
end
