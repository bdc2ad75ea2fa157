defmodule ExPhil.Native.Fleet.BallotTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Fleet.Ballot

  defp members(count), do: for(index <- 1..count, into: %{}, do: {:"node#{index}", spawn(fn -> :ok end)})
  defp some(members, indices), do: for(index <- indices, do: members[:"node#{index}"])

  test "a majority decides, and all of those that are not dead for certain" do
    members = members(4)
    none = MapSet.new()
    assert Ballot.quorum?(members, some(members, [1, 2, 3]), none)
    refute Ballot.quorum?(members, some(members, [1, 2]), none)
    refute Ballot.quorum?(members, some(members, [1, 2]), MapSet.new(some(members, [3])))
    assert Ballot.quorum?(members, some(members, [1, 2]), MapSet.new(some(members, [3, 4])))
    assert Ballot.quorum?(members, some(members, [1]), MapSet.new(some(members, [2, 3, 4])))
    refute Ballot.quorum?(members, [], MapSet.new(some(members, [1, 2, 3, 4])))
    # Processes that are no members do not count.
    refute Ballot.quorum?(members, some(members, [1, 2]) ++ [self()], none)
  end

  test "an acceptor keeps its promises and tells what it accepted" do
    acceptor = Ballot.new()
    {{:promised, nil}, acceptor} = Ballot.answer(acceptor, {:prepare, {2, :a}})
    {{:busy, {2, :a}}, acceptor} = Ballot.answer(acceptor, {:prepare, {1, :b}})
    {{:busy, {2, :a}}, acceptor} = Ballot.answer(acceptor, {:accept, {{1, :b}, :other}})
    {{:accepted, {2, :a}}, acceptor} = Ballot.answer(acceptor, {:accept, {{2, :a}, :value}})
    {{:promised, {{2, :a}, :value}}, acceptor} = Ballot.answer(acceptor, {:prepare, {2, :b}})
    {{:busy, {2, :b}}, _} = Ballot.answer(acceptor, {:accept, {{2, :a}, :value}})
  end

  # Proposers whose messages arrive in any order, or not at all: the first value that a majority accepts is the only one.
  test "two values are never decided" do
    for seed <- 1..2000 do
      decided = seed |> random() |> decisions()
      assert length(Enum.uniq(decided)) <= 1, "seed #{seed}: #{inspect(decided)}"
    end

    assert Enum.any?(1..2000, &(&1 |> random() |> decisions() != []))
  end

  defp random(seed), do: :rand.seed_s(:exsss, seed)

  defp decisions(random) do
    acceptors = for index <- 1..5, into: %{}, do: {index, Ballot.new()}

    {_, _, decided} =
      Enum.reduce(1..6, {acceptors, random, []}, fn round, {acceptors, random, decided} ->
        proposer = {round, :"proposer#{round}"}
        {promises, acceptors, random} = ask(acceptors, random, {:prepare, proposer})

        if length(promises) >= 3 do
          value = Ballot.value(promises, %{round => self()})
          {accepted, acceptors, random} = ask(acceptors, random, {:accept, {proposer, value}})
          {acceptors, random, if(length(accepted) >= 3, do: [value | decided], else: decided)}
        else
          {acceptors, random, decided}
        end
      end)

    decided
  end

  # Half of the messages are lost.
  defp ask(acceptors, random, message) do
    Enum.reduce(1..5, {[], acceptors, random}, fn index, {answers, acceptors, random} ->
      case :rand.uniform_s(10, random) do
        {reached, random} when reached <= 6 ->
          {answer, acceptor} = Ballot.answer(acceptors[index], message)
          granted = if elem(answer, 0) in [:promised, :accepted], do: [answer], else: []
          {granted ++ answers, Map.put(acceptors, index, acceptor), random}

        {_, random} ->
          {answers, acceptors, random}
      end
    end)
  end
end
