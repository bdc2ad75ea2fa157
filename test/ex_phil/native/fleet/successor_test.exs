defmodule ExPhil.Native.Fleet.SuccessorTest do
  # The test is an agent's owner, in a fleet of one node, and sends the copy its news by hand.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.FleetNodes, only: [controller: 1, obs: 1]

  alias ExPhil.Native.{Fleet, Policy}
  alias ExPhil.Native.Fleet.{Agent, Directory, Log, Placing, View}

  @moduletag :tmp_dir
  @session [history: 6, temperature: 0.8, seed: 3]

  setup %{tmp_dir: folder} = context do
    {path, policy} = controller(folder)
    fleet = Module.concat(__MODULE__, "Fleet#{context.line}")
    start_supervised!({Fleet, name: fleet, policy: path, load: [backend: :host], session: @session})
    view = View.get(fleet)
    log = Log.new(%{history: 6, burn_in: 0}, 0)
    about = %{key: :agent, owner: self(), member: view.members[node()], log: log, sequence: 0}
    {:ok, copy, _} = Agent.start_copy(fleet, Map.put(about, :tag, Placing.tag(view)))
    [fleet: fleet, copy: copy, session: Policy.new_session!(policy, @session)]
  end

  defp frames(numbers),
    do: {:frames, Enum.at(numbers, 0), for(number <- numbers, do: {:act, obs(number), nil})}

  defp tell(copy, before, news) do
    {newest, _} = List.last(news)
    send(copy, {:copy, self(), {before, newest}, news})
    assert_receive {:copied, ^copy, ^newest, answer}
    answer
  end

  test "a copy is promoted also where frames and a state after that come in the same message", context do
    %{fleet: fleet, copy: copy, session: session} = context
    assert :ok = tell(copy, 0, [{1, :arm}, {2, frames(0..3)}])

    # As after a connection that was lost: all that is pending at once.
    assert :ok =
             tell(copy, 2, [{3, frames(4..5)}, {4, :promote}, {5, frames(6..6)}, {6, {:state, "no state"}}])

    assert Directory.find(fleet, :agent) == copy

    # The frame after the promotion was answered by nobody, so it is played here with any inputs.
    expected = for number <- [0, 1, 2, 3, 4, 5, 66, 7], do: Policy.act!(session, obs(number))
    assert Fleet.act!(fleet, :agent, 5, obs(5)) == Enum.at(expected, 5)
    assert Fleet.act!(fleet, :agent, 6, obs(66)) == Enum.at(expected, 6)
    assert Fleet.act!(fleet, :agent, 7, obs(7)) == Enum.at(expected, 7)
    # What the former owner sends later is refused.
    assert :owner = tell(copy, 6, [{7, frames(7..7)}])
  end
end
