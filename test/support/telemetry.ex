defmodule ExPhil.Native.TestSupport.Telemetry do
  @moduledoc false
  # The library's events while `test` runs: those of the calling process come to it as messages {event, measurements, metadata};
  # those of other processes, of tests beside it too, are dropped. The real :telemetry reports them where it is available, else a
  # module in its place.

  @events [[:policy, :step, :stop], [:clock, :miss], [:policy, :rollback], [:tools, :player, :frame]]

  def with_events(test) do
    if Code.ensure_loaded?(:telemetry), do: with_application(test), else: with_substitute(test)
  end

  @doc false
  def handle(event, measurements, metadata, process) do
    if process == self(), do: send(process, {event, measurements, metadata})
    :ok
  end

  # apply: the compiler may not know the application.
  defp with_application(test) do
    {:ok, _} = Application.ensure_all_started(:telemetry)
    name = {__MODULE__, self()}
    events = for event <- @events, do: [:exphil_native | event]
    :ok = apply(:telemetry, :attach_many, [name, events, &__MODULE__.handle/4, self()])

    try do
      test.()
    after
      apply(:telemetry, :detach, [name])
    end
  end

  defp with_substitute(test) do
    :persistent_term.put(__MODULE__, self())

    [{module, _}] =
      Code.compile_string("""
      defmodule :telemetry do
        def execute(event, measurements, metadata),
          do: #{inspect(__MODULE__)}.handle(event, measurements, metadata, :persistent_term.get(#{inspect(__MODULE__)}))
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
