defmodule ExPhil.Native.Fleet.Drain do
  @moduledoc false
  # Moves every agent and every copy away from a node. Runs on that node.

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Directory, Placing, View}

  # Agents that are moved at once: each builds a session elsewhere, beside those that play.
  @at_once 4
  @timeout 60_000
  @pause 5

  @doc "Takes no agents any more, and returns when there is none left: how many agents were moved."
  @spec run(atom()) :: {:ok, non_neg_integer()} | {:error, Error.t()}
  def run(fleet) do
    Directory.put(fleet, :draining, true)

    if elsewhere?(fleet),
      do: rounds(fleet, 0, now() + @timeout),
      else: given_up(fleet, unavailable("no other node of the fleet takes agents"))
  end

  defp elsewhere?(fleet) do
    nodes = for node <- Map.keys(View.get(fleet).members), node == node() or node in Node.list(), do: node

    loads =
      for {node, {:ok, load}} <- Enum.zip(nodes, :erpc.multicall(nodes, Placing, :load, [fleet], 5000)),
          do: {node, load}

    Placing.open(loads) != []
  end

  defp rounds(fleet, moved, deadline) do
    results = each(Directory.pids(fleet, :owner), &ask(&1, :move))
    _ = each(Directory.copies(fleet), fn {_copy, owner} -> ask(owner, {:leave_copy, node()}) end)
    moved = moved + Enum.count(results, &(&1 == {:ok, {:ok, :moved}}))

    cond do
      error = Enum.find_value(results, &refused/1) ->
        given_up(fleet, error)

      Directory.pids(fleet, :owner) == [] and Directory.copies(fleet) == [] ->
        {:ok, moved}

      now() > deadline ->
        given_up(fleet, unavailable("agents did not leave in #{@timeout} ms"))

      true ->
        Process.sleep(@pause)
        rounds(fleet, moved, deadline)
    end
  end

  defp each(list, call),
    do: list |> Task.async_stream(call, max_concurrency: @at_once, timeout: :infinity) |> Enum.to_list()

  defp ask(pid, request) do
    GenServer.call(pid, request, @timeout)
  catch
    :exit, _ -> :gone
  end

  defp refused({:ok, {:error, error}}), do: error
  defp refused(_), do: nil

  defp given_up(fleet, error) do
    Placing.opened(fleet)
    {:error, error}
  end

  defp unavailable(why), do: Error.new(:unavailable, "", "#{node()} is not drained: #{why}")
  defp now, do: System.monotonic_time(:millisecond)
end
