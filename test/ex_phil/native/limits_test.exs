defmodule ExPhil.Native.LimitsTest do
  # Memory that runs out: test/support/limits.exs in a VM of its own, because a defect here ends the VM.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.Peer
  alias ExPhil.Native.TestSupport.Shared

  @moduletag :tmp_dir

  # Megabytes by which the address space may grow: hardly any, enough for some calls, enough for all.
  @steps [1, 16, 100_000]

  test "thread-local data is there from a thread's start, and allocates nothing later" do
    libraries = Path.wildcard("priv/exphil_native*.so")
    assert "priv/exphil_native.so" in libraries

    for library <- libraries do
      {relocations, 0} = System.cmd("readelf", ["-rW", library])
      assert relocations =~ "TPOFF"
      # Of a model of thread-local data that glibc allocates at its first use.
      refute relocations =~ ~r/DTPMOD|TLSDESC/
    end
  end

  @tag :prlimit
  test "a call that finds no memory says so, and the VM goes on", %{tmp_dir: folder} do
    controller = if Shared.path(), do: Shared.file("exphil/exphil_policy/policy_old_term.bin"), else: ""
    arguments = [folder, controller | Enum.map(@steps, &to_string/1)]
    {output, status} = peer_script("test/support/limits.exs", arguments, library())

    assert {status, output} == {0, output}
    assert output =~ ~r/^done$/m

    answers =
      for [_, call, step, answer] <- Regex.scan(~r/^answer (.+): (\d+) (\S+)$/m, output),
          do: {call, String.to_integer(step), answer}

    assert length(answers) >= 32 * length(@steps)

    for {call, step, answer} <- answers,
        do: assert({call, step, answer in ["ok", "out_of_memory"]} == {call, step, true})

    refused = fn step -> for({call, ^step, "out_of_memory"} <- answers, do: call) end
    assert "SelectiveScan.scan_with_states" in refused.(1) and length(refused.(1)) >= 3
    # Four terabytes are too many with any limit.
    assert refused.(100_000) == ["random_binary"]
  end
end
