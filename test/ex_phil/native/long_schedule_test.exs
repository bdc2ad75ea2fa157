defmodule ExPhil.Native.LongScheduleTest do
  # test/long_schedule.exs in a VM of its own for 3 s. The system takes cores away on a busy machine, so the events say
  # nothing here; the processor time that a call took of its scheduler's thread does.
  use ExPhil.Native.TestSupport.BackendCase

  import ExPhil.Native.TestSupport.Peer
  alias ExPhil.Native.TestSupport.Latency

  # It measures time.
  @moduletag :latency

  for {mode, kinds} <- [calls: 8, play: 9] do
    test "no kind of call holds a normal scheduler for 2 ms (#{mode})" do
      arguments = [Policies.checkpoint(), "3", "2", "host", "#{unquote(mode)}"]

      wrong =
        Latency.judge(
          "schedulers",
          fn ->
            {output, status} = peer_script("test/long_schedule.exs", arguments, library())
            assert {status, output} == {0, output}

            # Beside other programs the slowest calls may not end within the 3 s.
            assert length(Regex.scan(~r/^\w+: \d+ calls, \d+ events$/m, output)) == unquote(kinds), output

            [_, calls, long] =
              Regex.run(
                ~r/^calls on normal schedulers: (\d+), (\d+) of them with 2 ms of processor time/m,
                output
              )

            # A kind of call that takes long by itself does so each time.
            many? = String.to_integer(long) * 100 >= String.to_integer(calls)
            {[], if(many?, do: "#{long} of #{calls} calls held a normal scheduler for 2 ms")}
          end,
          peer: true
        )

      assert wrong == nil
    end
  end
end
