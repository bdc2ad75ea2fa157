defmodule ExPhil.Native.Tools.FleetTableTest do
  use ExUnit.Case, async: true

  alias ExPhil.Native.Tools.FleetTable

  test "a row for each node, those that are out of reach too" do
    node = %{
      node: :a@host,
      devices: [%{backend: :cuda, index: 0, agents: 90}, %{backend: :cuda, index: 1, agents: 10}],
      agents: 100,
      copies: 50,
      frames: 1000,
      late: 2,
      frames_per_second: 5999.6,
      taken_over: 3,
      moved: 4,
      generation: 5,
      draining: true
    }

    other = %{node | node: :second@host, devices: [], agents: 0, draining: false}

    info = %{
      view: 7,
      answers: false,
      missing: [:third@host],
      nodes: [node, other],
      agents: 100,
      copies: 100,
      frames: 2000,
      late: 4,
      frames_per_second: 11_999.2
    }

    assert FleetTable.lines("Bots", info) == [
             "Bots: 2 nodes, 100 agents, 100 copies, 11999 frames/s, 4 of 2000 late; view 7; " <>
               "no majority: no answers on this side",
             "",
             "node         devices (agents)         agents  copies  frames/s  late  taken over  moved  weights",
             "a@host       cuda:0 (90) cuda:1 (10)     100      50      6000     2           3      4        5  drained",
             "second@host  none                          0      50      6000     2           3      4        5",
             "third@host                                                                                        out of reach"
           ]

    assert hd(FleetTable.lines("Bots", %{info | answers: true})) =~ ~r/view 7$/
  end
end
