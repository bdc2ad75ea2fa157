defmodule ExPhil.Native.Fleet.Drain do
  @moduledoc false
  # Moves every agent and every copy away from a node. Runs on that node.

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Directory, Placing, View}

  # Agents that are moved at once: each builds a session elsewhere, beside those that play. Milliseconds: for the
  # whole of it; for the copies of those that were moved, at the end.
  @at_once 4
  @timeout 60_000
  @copies 10_000
  @pause 5

  @doc """
  Takes no agents any more, and returns when there is none left and those that left have copies again, where other nodes take them: how many
  agents were moved.
  """
  @spec run(atom()) :: {:ok, non_neg_integer()} | {:error, Error.t()}
  def run(fleet) do
    Directory.put(fleet, :draining, true)

    if elsewhere?(fleet),
      do: rounds(fleet, [], now() + @timeout),
      else: given_up(fleet, unavailable("no other node of the fleet takes agents"))
  end

  defp elsewhere?(fleet) do
    nodes = for node <- Map.keys(View.get(fleet).members), node == node() or node in Node.list(), do: node

    Placing.open(Placing.loads(fleet, nodes)) != []
  end

  defp rounds(fleet, moved, deadline) do
    results = ask_each(Directory.pids(fleet, :owner), :move)
    _ = ask_each(for({_copy, owner} <- Directory.copies(fleet), do: owner), {:leave_copy, node()})
    moved = for({:ok, {:ok, {:moved, to}}} <- results, do: to) ++ moved

    cond do
      error = Enum.find_value(results, &refused/1) ->
        given_up(fleet, error)

      Directory.pids(fleet, :owner) == [] and Directory.copies(fleet) == [] ->
        await_copies(Enum.filter(moved, &is_pid/1), now() + @copies)
        {:ok, length(moved)}

      now() > deadline ->
        given_up(fleet, unavailable("agents did not leave in #{@timeout} ms"))

      true ->
        Process.sleep(@pause)
        rounds(fleet, moved, deadline)
    end
  end

  # An agent makes its copy as soon as it goes on in another place. Until then the death of one node would lose it.
  defp await_copies(pids, deadline) do
    waiting = for {pid, {:ok, false}} <- Enum.zip(pids, ask_each(pids, :settled?)), do: pid

    if waiting != [] and now() < deadline do
      Process.sleep(@pause)
      await_copies(waiting, deadline)
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
