defmodule ExPhil.Native.LongScheduleTest do
  # test/long_schedule.exs in a VM of its own for 3 s. The system takes cores away on a busy machine, so that a few
  # events say nothing; a call that holds a normal scheduler by itself has one each time.
  use ExPhil.Native.TestSupport.BackendCase

  import ExPhil.Native.TestSupport.Peer

  @moduletag timeout: 120_000

  for {mode, kinds} <- [calls: 8, play: 9] do
    test "no kind of call holds a normal scheduler for 2 ms (#{mode})" do
      arguments = [Policies.checkpoint(), "3", "2", "host", "#{unquote(mode)}"]
      {output, status} = peer_script("test/long_schedule.exs", arguments, library())
      assert {status, output} == {0, output}

      kinds =
        for [_, kind, calls, events] <- Regex.scan(~r/^(\w+): (\d+) calls, (\d+) events$/m, output),
            do: {kind, String.to_integer(calls), String.to_integer(events)}

      assert length(kinds) == unquote(kinds)
      assert kinds |> Enum.map(&elem(&1, 1)) |> Enum.sum() > 0

      for {kind, calls, events} <- kinds,
          do: assert({kind, events <= max(2, div(calls, 10))} == {kind, true}, output)

      frames = length(Regex.scan(~r/^  [1-9]\d* frames, \d+ late, \d+ missed/m, output))
      assert frames == if(unquote(mode) == :play, do: 9, else: 0)
    end
  end
end
