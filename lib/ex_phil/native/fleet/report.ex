defmodule ExPhil.Native.Fleet.Report do
  @moduledoc false
  # What Fleet.info/1 returns.

  alias ExPhil.Native.Fleet.{Directory, View}

  @timeout 2000

  @spec fleet(atom()) :: ExPhil.Native.Fleet.info()
  def fleet(fleet) do
    %{members: members, number: number} = View.get(fleet)
    nodes = members |> Map.keys() |> Enum.sort()
    reached = for node <- nodes, node == node() or node in Node.list(), do: node
    reports = for {:ok, report} <- :erpc.multicall(reached, __MODULE__, :node, [fleet], @timeout), do: report
    sum = fn what -> reports |> Enum.map(& &1[what]) |> Enum.sum() end

    %{
      view: number,
      answers: View.quorum(fleet) == true,
      missing: nodes -- Enum.map(reports, & &1.node),
      nodes: reports,
      agents: sum.(:agents),
      copies: sum.(:copies),
      frames: sum.(:frames),
      late: sum.(:late),
      frames_per_second: sum.(:frames_per_second)
    }
  end

  @doc "One node, about itself."
  @spec node(atom()) :: ExPhil.Native.Fleet.node_info()
  def node(fleet) do
    counters = Directory.counters(fleet)

    devices =
      for {{backend, index}, agents} <-
            Enum.zip(Directory.get(fleet, :devices), Directory.device_loads(fleet)),
          do: %{backend: backend, index: index, agents: agents}

    %{
      node: node(),
      devices: devices,
      agents: counters.owners,
      copies: counters.copies,
      frames: counters.frames,
      late: counters.late,
      frames_per_second: Directory.get(fleet, :frames_per_second),
      taken_over: counters.taken_over,
      moved: counters.moved,
      generation: Directory.get(fleet, :generation),
      draining: Directory.get(fleet, :draining)
    }
  end
end
