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

    Placing.open(Placing.loads(fleet, nodes)) != []
  end

  defp rounds(fleet, moved, deadline) do
    results = ask_each(Directory.pids(fleet, :owner), :move)
    _ = ask_each(for({_copy, owner} <- Directory.copies(fleet), do: owner), {:leave_copy, node()})
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

  @doc "Asks agents' processes, a few at a time: `{:ok, answer}` of each, `{:ok, :gone}` of one that has ended."
  @spec ask_each([pid()], term()) :: [{:ok, term()}]
  def ask_each(pids, request) do
    pids
    |> Task.async_stream(&ask(&1, request), max_concurrency: @at_once, timeout: :infinity)
    |> Enum.to_list()
  end

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
