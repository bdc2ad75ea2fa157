defmodule ExPhil.Native.Fleet.Turns do
  @moduledoc false
  # When a node dies, a hundred agents are to go on on another one at the same moment. They take turns to build
  # their sessions: side by side all of them would be done at the end, and each frame of the agents that play
  # there already would wait behind them.

  use GenServer

  def start_link(config), do: GenServer.start_link(__MODULE__, config, name: process(config.name))

  defp process(fleet), do: Module.concat(fleet, Turns)

  @doc "What the function returns, which the calling process runs when few others of this node run theirs."
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

  # A turn is the monitor of who has it.
  @impl true
  def handle_call(:take, from, state),
    do: {:noreply, next(%{state | waiting: :queue.in(from, state.waiting)})}

  @impl true
  # It comes before the end of its process.
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
