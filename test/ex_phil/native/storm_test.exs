defmodule ExPhil.Native.StormTest do
  # test/storm.exs for 20 s in a VM of its own.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Peer

  @moduletag timeout: 300_000

  backend_test "64 processes, kills, nonsense, loads and reloads: every answer has its bits", %{
    backend: backend
  } do
    arguments = [Policies.checkpoint(), "20", "#{:rand.uniform(1_000_000_000)}", "#{backend}"]
    {output, status} = script("test/storm.exs", arguments, library())
    IO.puts(String.trim(output))
    assert {status, output} == {0, output}
    assert output =~ "series compared"
  end
end
