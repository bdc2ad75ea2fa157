defmodule ExPhil.Native.Fleet.TurnsTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Fleet.Turns
  alias ExPhil.Native.TestSupport.Waiting

  @server Module.concat(__MODULE__, "Turns")

  setup do
    start_supervised!({Turns, %{name: __MODULE__}})
    :ok
  end

  # Starts a process that takes a turn. It keeps the turn until it receives :end, and then returns `value`.
  defp begin(value) do
    test = self()

    Task.Supervisor.async_nolink(start_supervised!({Task.Supervisor, []}, id: make_ref()), fn ->
      Turns.run(__MODULE__, fn ->
        send(test, {:turn, value, self()})
        receive(do: (:end -> value))
      end)
    end)
  end

  defp turns(count), do: for(_ <- 1..count//1, do: receive(do: ({:turn, value, pid} -> {value, pid})))

  defp waiting, do: :queue.len(:sys.get_state(@server).waiting)

  test "a few processes have a turn at once, first come, first served; one that is killed gives its turn back" do
    %{free: at_once} = :sys.get_state(@server)
    assert at_once >= 2
    first = for value <- 1..at_once, do: begin(value)
    running = turns(at_once)
    assert Enum.sort(for {value, _} <- running, do: value) == Enum.to_list(1..at_once)

    later =
      for {value, before} <- Enum.with_index([:a, :b, :c]) do
        task = begin(value)
        Waiting.until(fn -> waiting() == before + 1 end)
        task
      end

    refute_received {:turn, _, _}

    {1, pid} = List.keyfind(running, 1, 0)
    send(pid, :end)
    assert [{:a, a}] = turns(1)
    {2, pid} = List.keyfind(running, 2, 0)
    Process.exit(pid, :kill)
    assert [{:b, b}] = turns(1)
    send(a, :end)
    assert [{:c, c}] = turns(1)
    for pid <- [b, c | for({_, pid} <- running, do: pid)], do: send(pid, :end)
    assert Enum.map(later, &Task.await/1) == [:a, :b, :c]
    assert Task.await(hd(first)) == 1
    Waiting.until(fn -> match?(%{free: ^at_once}, :sys.get_state(@server)) end)
  end

  test "the caller gets what the function returns, or throws" do
    assert Turns.run(__MODULE__, fn -> {:ok, 7} end) == {:ok, 7}
    assert catch_throw(Turns.run(__MODULE__, fn -> throw(:ball) end)) == :ball
    %{free: at_once} = :sys.get_state(@server)
    for _ <- 1..(3 * at_once), do: assert(Turns.run(__MODULE__, fn -> :done end) == :done)
  end
end
