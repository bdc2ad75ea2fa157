defmodule ExPhil.Native.Fleet.NewsTest do
  # The test is an agent's owner, and says when its copy acknowledges. Times are so long or so short that no test depends on them.
  use ExUnit.Case, async: true

  alias ExPhil.Native.Fleet.{Agent, News}

  @long 600_000

  defp owner(copy, times \\ []) do
    state = Map.merge(%Agent{role: :owner, fleet: __MODULE__, lease_ms: @long, wait_ms: 1}, Map.new(times))
    News.begin(state, copy, self(), [])
  end

  # A copy that passes on what it gets.
  defp copy do
    test = self()
    pid = spawn_link(fn -> pass_on(test) end)
    on_exit(fn -> Process.exit(pid, :kill) end)
    pid
  end

  defp pass_on(test) do
    receive(do: (message -> send(test, {:got, message})))
    pass_on(test)
  end

  defp frame(number), do: {:frames, number, [{:step, <<number>>, nil}]}
  defp tell(state, numbers), do: Enum.reduce(numbers, state, &News.tell(&2, frame(&1)))
  defp acknowledge(copy, number, answer \\ :ok), do: send(self(), {:copied, copy, number, answer})

  # An owner whose copy has acknowledged its first news.
  defp leased(copy, times \\ []) do
    state = owner(copy, times) |> tell([0])
    acknowledge(copy, 1)
    assert {:ok, %{pending: [], asked: []} = state} = News.offer(state)
    assert_receive {:got, {:copy, owner, {0, 1}, [{1, {:frames, 0, _}}]}} when owner == self()
    state
  end

  test "without an acknowledgement a frame is answered while the lease lasts, and what is missing is named" do
    copy = copy()
    assert {:unconfirmed, state} = copy |> leased() |> tell([1]) |> News.offer()
    assert [{2, {:frames, 1, _}}] = News.unconfirmed(state)
    assert {:unconfirmed, state} = state |> tell([2]) |> News.tell({:state, "state"}) |> News.offer()
    assert [{2, {:frames, 1, _}}, {3, {:frames, 2, _}}] = News.unconfirmed(state)
    # Each was sent once.
    assert_receive {:got, {:copy, _, {1, 2}, [{2, _}]}}
    assert_receive {:got, {:copy, _, {2, 4}, [{3, _}, {4, {:state, "state"}}]}}

    acknowledge(copy, 2)
    assert {:unconfirmed, state} = state |> tell([3]) |> News.offer()
    assert [3, 5] = for({number, _} <- News.unconfirmed(state), do: number)
    assert {:ok, %{pending: [], asked: []} = state} = News.heard(state, 5, :ok)
    assert [] = News.unconfirmed(state)
  end

  test "without a lease an answer waits for the copy" do
    copy = copy()
    # A copy that was never heard of; one whose lease ends at once.
    for state <- [owner(copy), leased(copy, lease_ms: 0)] do
      state = tell(state, [1])
      number = state.sequence
      test = self()

      spawn_link(fn ->
        Process.sleep(50)
        send(test, {:copied, copy, number, :ok})
      end)

      # It does not wait for ever, and a busy machine may take longer than that.
      assert {answer, _} = News.offer(state)
      assert answer in [:ok, :error]
    end
  end

  test "a lease is counted from when the news was sent, and not from the acknowledgement" do
    copy = copy()
    state = copy |> leased() |> tell([1]) |> News.deliver()
    [{2, sent}] = state.asked
    Process.sleep(5)
    assert {:ok, %{lease: lease}} = News.heard(state, 2, :ok)
    assert lease == sent + @long
  end

  test "a copy that is to take over may be the owner: no frame is answered before it says so" do
    copy = copy()
    state = %{leased(copy) | promoting: true, mover: nil} |> News.order(:promote)
    acknowledge(copy, 2, {:refused, :why})
    assert {:ok, %{promoting: false, pending: []}} = News.offer(state)
    acknowledge(copy, 3, :owner)
    assert {:given_up, _} = state |> tell([1]) |> News.offer()
  end

  test "a copy that cannot become the owner stays one, and what it has not got stays pending" do
    copy = copy()
    state = %{leased(copy) | promoting: true, mover: nil} |> News.order(:promote) |> tell([1])
    assert %{promoting: false, pending: [{3, _}, {2, _}]} = News.refused(state, :why)
    assert {:ok, %{promoting: false, pending: [{3, _}]}} = News.heard(state, 2, {:refused, :why})
  end

  test "what was lost with a connection is sent again, all of it" do
    copy = copy()
    {:unconfirmed, state} = copy |> leased() |> tell([1]) |> News.offer()
    assert_receive {:got, {:copy, _, {1, 2}, _}}

    # The owner does not know that the connection was lost in between: the copy says so.
    {:unconfirmed, state} = state |> tell([2]) |> News.offer()
    assert_receive {:got, {:copy, _, {2, 3}, [{3, _}]}}
    assert {:ok, state} = News.heard(state, 1, :missing)
    assert_receive {:got, {:copy, _, {1, 3}, [{2, _}, {3, _}]}}

    # The owner knows it.
    state = News.down(state, :noconnection)
    assert %{asked: [], pending: [_, _]} = state
    assert {:unconfirmed, _} = state |> tell([3]) |> News.offer()
    # To another VM, once that can be reached again; this process is on this one, which no list of nodes has.
    refute_received {:got, {:copy, _, _, _}}
    state = %{state | monitor: Process.monitor(copy)} |> News.deliver()
    assert_receive {:got, {:copy, _, {0, 3}, [{2, _}, {3, _}]}}

    assert {:ok, %{pending: []}} = News.heard(state, 3, :ok)
  end
end
