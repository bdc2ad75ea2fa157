defmodule ExPhil.Native.Fleet.Turns do
  @moduledoc false
  # When a node dies, a hundred of its agents may continue on one other node at the same moment. They take turns to
  # build their sessions, a few at a time. If all were built at once, none would be ready before nearly all were,
  # and the frames of the agents that already play there would wait for them.

  use GenServer

  def start_link(config), do: GenServer.start_link(__MODULE__, config, name: process(config.name))

  defp process(fleet), do: Module.concat(fleet, Turns)

  @doc "Waits for a turn, calls the function in the calling process, and returns what it returns."
  @spec run(atom(), (() -> result)) :: result when result: term()
  def run(fleet, function) do
    turn = GenServer.call(process(fleet), :take, :infinity)

    try do
      function.()
    after
      GenServer.cast(process(fleet), {:done, turn})
    end
  end

  # ---- the process -------------------------------------------------------------------------------------------

  @impl true
  def init(_config), do: {:ok, %{free: max(div(System.schedulers_online(), 2), 2), waiting: :queue.new()}}

  # A turn is identified by the monitor of the process that has it.
  @impl true
  def handle_call(:take, from, state),
    do: {:noreply, next(%{state | waiting: :queue.in(from, state.waiting)})}

  @impl true
  # This message arrives before the :DOWN of the same process.
  def handle_cast({:done, turn}, state) do
    Process.demonitor(turn, [:flush])
    {:noreply, freed(state)}
  end

  @impl true
  def handle_info({:DOWN, _turn, :process, _, _}, state), do: {:noreply, freed(state)}

  defp freed(state), do: next(%{state | free: state.free + 1})

  defp next(%{free: 0} = state), do: state

  defp next(%{free: free, waiting: waiting} = state) do
    case :queue.out(waiting) do
      {:empty, _} ->
        state

      {{:value, {pid, _} = from}, waiting} ->
        GenServer.reply(from, Process.monitor(pid))
        next(%{state | free: free - 1, waiting: waiting})
    end
  end
end
