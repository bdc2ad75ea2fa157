defmodule ExPhil.Native.TestSupport.FleetPlayer do
  @moduledoc false
  # A game that plays an agent of a fleet, and beside it a session that nothing disturbs; it raises at the first answer that differs.

  import ExPhil.Native.TestSupport.FleetNodes, only: [obs: 2]

  alias ExPhil.Native.{Fleet, Policy}

  # A frame waits for as long as the machine needs.
  @patient [timeout: 600_000]

  @doc "Plays until `stop` is 1, and counts the frames in `frames`. Returns how many there were."
  def run(fleet, player, policy, options, stop, frames) do
    random = :rand.seed_s(:exsss, player)
    session = Policy.new_session!(policy, options)
    key = {"match #{div(player, 2)}", player}
    game = %{fleet: fleet, key: key, session: session, player: player, history: options[:history]}
    # `back`: how far the session can go back.
    loop(game, %{next: player, back: 0, count: 0, last: nil, random: random}, stop, frames)
  end

  defp loop(game, at, stop, frames) do
    if :atomics.get(stop, 1) == 1 do
      at.count
    else
      {choice, random} = :rand.uniform_s(20, at.random)
      at = turn(game, choice, %{at | random: random})
      :counters.add(frames, 1, 1)
      loop(game, %{at | count: at.count + 1}, stop, frames)
    end
  end

  # The same frame again: the same answer.
  defp turn(%{fleet: fleet, key: key}, 1, %{last: {number, obs, answer}} = at) do
    same!(number, Fleet.act!(fleet, key, number, obs, @patient), answer)
    at
  end

  # Other inputs for a frame that was played.
  defp turn(game, choice, %{back: back} = at) when choice in 2..3 and back > 0 do
    {frames, random} = :rand.uniform_s(back, at.random)
    number = at.next - frames
    # Of this point in the game alone.
    obs = obs(number + 1000 * at.count, game.player)
    [answer] = Policy.resimulate_acts!(game.session, frames, obs)
    same!(number, Fleet.act!(game.fleet, game.key, number, obs, @patient), answer)
    %{at | next: number + 1, back: back - frames + 1, last: {number, obs, answer}, random: random}
  end

  # The last two frames again, and one more.
  defp turn(game, 4, %{back: back} = at) when back >= 2 do
    frames = for number <- 0..2, into: <<>>, do: obs(at.next + number + 1000 * at.count, game.player)
    answers = Policy.resimulate_acts!(game.session, 2, frames)
    same!(at.next, Fleet.resimulate_acts!(game.fleet, game.key, at.next - 2, frames, @patient), answers)
    %{at | next: at.next + 1, back: min(back + 1, game.history), last: nil}
  end

  # A frame without an action.
  defp turn(game, 5, at) do
    obs = obs(at.next, game.player)
    expected = Policy.step!(game.session, obs)
    same!(at.next, Fleet.step!(game.fleet, game.key, at.next, obs, @patient), expected)
    played(game, %{at | last: nil})
  end

  defp turn(game, _choice, at) do
    obs = obs(at.next, game.player)
    expected = Policy.act!(game.session, obs)
    same!(at.next, Fleet.act!(game.fleet, game.key, at.next, obs, @patient), expected)
    played(game, %{at | last: {at.next, obs, expected}})
  end

  defp played(game, at), do: %{at | next: at.next + 1, back: min(at.back + 1, game.history)}

  defp same!(_number, answer, answer), do: :ok

  defp same!(number, answer, expected),
    do: raise("frame #{number}: #{inspect(answer)} instead of #{inspect(expected)}")
end
