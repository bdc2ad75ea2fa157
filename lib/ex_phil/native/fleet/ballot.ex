defmodule ExPhil.Native.Fleet.Ballot do
  @moduledoc false
  # How the members of a fleet agree on who they are: single-decree Paxos for each view. View n decides view n + 1, by a quorum of its own
  # members, so that two sides of a split network never decide differently. Acceptors are the processes of ExPhil.Native.Fleet.View,
  # whose part of it is `answer/2`; `propose/5` runs in a process of its own.

  alias ExPhil.Native.Fleet.View

  @typedoc "Members by node: the process of ExPhil.Native.Fleet.View there, which a restart replaces."
  @type members :: %{node() => pid()}
  @typedoc "`id` is the fleet's, of the node that began it."
  @type view :: %{id: term(), number: non_neg_integer(), members: members()}
  @type ballot :: {non_neg_integer(), node()}
  @typedoc "What an acceptor has promised and accepted for the view after its own."
  @type acceptor :: %{promised: ballot() | nil, accepted: {ballot(), members()} | nil}

  @timeout 1000

  @spec new() :: acceptor()
  def new, do: %{promised: nil, accepted: nil}

  @doc """
  Whether these members may decide for the view: a majority of it, or all of it but the dead. Dead are those whose VM or process is
  known to have ended; one that is only out of reach may be alive on the other side.
  """
  @spec quorum?(members(), [pid()], MapSet.t(pid())) :: boolean()
  def quorum?(members, reached, dead) do
    pids = Map.values(members)
    here = Enum.count(pids, &(&1 in reached))
    2 * here > length(pids) or (here > 0 and Enum.all?(pids, &(&1 in reached or &1 in dead)))
  end

  @doc "An acceptor's answer to a message of `propose/5` about its own view."
  @spec answer(acceptor(), tuple()) :: {tuple(), acceptor()}
  def answer(%{promised: promised} = acceptor, message) do
    ballot = ballot(message)

    cond do
      promised != nil and ballot < promised -> {{:busy, promised}, acceptor}
      match?({:prepare, _}, message) -> {{:promised, acceptor.accepted}, %{acceptor | promised: ballot}}
      true -> {{:accepted, ballot}, %{promised: ballot, accepted: elem(message, 1)}}
    end
  end

  defp ballot({:prepare, ballot}), do: ballot
  defp ballot({:accept, {ballot, _members}}), do: ballot

  @doc """
  Proposes `members` for the view that follows. Returns the view that was decided, which may be another proposer's; `{:newer, view}` where
  one is decided already; or `{:failed, round}` with the highest round that was seen.
  """
  @spec propose(atom(), view(), members(), MapSet.t(pid()), non_neg_integer()) ::
          {:decided, view()} | {:newer, view()} | {:failed, non_neg_integer()}
  def propose(fleet, view, members, dead, round) do
    number = {round, node()}

    with {:ok, promises} <- ask(fleet, view, {:prepare, number}, dead, round),
         value = value(promises, members),
         {:ok, _} <- ask(fleet, view, {:accept, {number, value}}, dead, round) do
      {:decided, %{view | number: view.number + 1, members: value}}
    end
  end

  @doc "What to propose after these promises: what an earlier proposer may have had decided goes first."
  @spec value([{:promised, {ballot(), members()} | nil}], members()) :: members()
  def value(promises, members) do
    case for {:promised, {_, _} = accepted} <- promises, do: accepted do
      [] -> members
      accepted -> accepted |> Enum.max_by(&elem(&1, 0)) |> elem(1)
    end
  end

  defp ask(fleet, view, message, dead, round) do
    nodes = for {node, _} <- view.members, node == node() or node in Node.list(), do: node
    {replies, _} = GenServer.multi_call(nodes, View.process(fleet), {:ballot, view, message}, @timeout)
    newer = for {_, {:newer, newer}} <- replies, do: newer

    granted =
      for {node, answer} when elem(answer, 0) in [:promised, :accepted] <- replies,
          do: {node, answer}

    reached = for {node, _} <- granted, do: view.members[node]

    cond do
      newer != [] -> {:newer, Enum.max_by(newer, & &1.number)}
      quorum?(view.members, reached, dead) -> {:ok, Keyword.values(granted)}
      true -> {:failed, Enum.max([round | for({_, {:busy, {seen, _}}} <- replies, do: seen)])}
    end
  end
end
