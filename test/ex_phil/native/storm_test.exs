defmodule ExPhil.Native.StormTest do
  # test/storm.exs in a VM of its own, for 5 s, or for EXPHIL_STORM_SECONDS (20 in .ci/run).
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Peer

  @seconds System.get_env("EXPHIL_STORM_SECONDS", "5")
  @moduletag timeout: 1_800_000 + 2000 * String.to_integer(@seconds)

  backend_test "64 processes, kills, nonsense, loads and reloads: every answer has its bits", %{
    backend: backend
  } do
    arguments = [Policies.checkpoint(), @seconds, "#{:rand.uniform(1_000_000_000)}", "#{backend}"]
    {output, status} = peer_script("test/storm.exs", arguments, library())
    IO.puts(String.trim(output))
    assert {status, output} == {0, output}
    assert output =~ "series compared"
  end
end
