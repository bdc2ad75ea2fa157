defmodule ExPhil.Native.TestSupport.Telemetry do
  @moduledoc false
  # A module in the place of the optional application :telemetry while `test` runs. Events of the calling process come as
  # messages {event, measurements, metadata}; those of other processes, of tests beside it too, are dropped.

  def with_substitute(test) do
    :persistent_term.put(__MODULE__, self())

    [{module, _}] =
      Code.compile_string("""
      defmodule :telemetry do
        def execute(event, measurements, metadata) do
          if :persistent_term.get(#{inspect(__MODULE__)}) == self(), do: send(self(), {event, measurements, metadata})
          :ok
        end
      end
      """)

    try do
      test.()
    after
      :code.delete(module)
      :code.purge(module)
    end
  end
end
