defmodule Mix.Tasks.Exphil.Fleet do
  @shortdoc "Shows a running fleet as a live table"
  @moduledoc """
  Shows a running `ExPhil.Native.Fleet`: its nodes with their devices, agents, copies, frames a second and late answers.

      mix exphil.fleet --fleet Bots --node game1@host --cookie SECRET
      mix exphil.fleet --fleet Bots --node game1@host --once

  Options:

    * `--fleet NAME` - the fleet's `:name`, such as Bots or MyApp.Bots
    * `--node NODE` - any node of it. Where its host has a dot, this task uses long names too
    * `--cookie COOKIE` - the nodes' cookie (that of this user)
    * `--every SECONDS` - between two tables (1)
    * `--once` - print one table, and end

  The task joins the nodes as a hidden node for as long as it runs: it is no part of the fleet and does not count for its majority.

  A column counts since a node's start: `late` answers that took a caller on that node longer than a frame; agents `taken over` from nodes
  that died; agents `moved` away for a drain. `weights` is how often `Fleet.update/2` has changed them.
  """

  use Mix.Task

  alias ExPhil.Native.{Error, Fleet}
  alias ExPhil.Native.Tools.{Arguments, FleetTable}

  @requirements ["app.start"]
  @task "exphil.fleet"
  @switches [fleet: :string, node: :string, cookie: :string, every: :float, once: :boolean]

  @impl true
  def run(args) do
    options = Arguments.parse!(args, @switches, @task)
    name = options[:fleet] || Mix.raise("--fleet NAME is needed; see mix help #{@task}")
    address = options[:node] || Mix.raise("--node NODE is needed; see mix help #{@task}")
    if Keyword.get(options, :every, 1.0) <= 0, do: Mix.raise("--every takes a number above 0")

    # The user's own words: two atoms for this VM.
    node = String.to_atom(address)
    fleet = Module.concat([name])
    started = connect(node, options[:cookie])

    try do
      if options[:once], do: show(name, info(node, fleet)), else: live(name, node, fleet, options)
    after
      if started, do: Node.stop()
    end
  end

  defp live(name, node, fleet, options) do
    info = info(node, fleet)
    if IO.ANSI.enabled?(), do: Mix.shell().info([IO.ANSI.home(), IO.ANSI.clear()])
    show(name, info)
    Process.sleep(round(1000 * Keyword.get(options, :every, 1.0)))
    live(name, node, fleet, options)
  end

  defp show(name, info), do: name |> FleetTable.lines(info) |> Enum.each(&Mix.shell().info/1)

  # Whether this VM has become a node for it.
  defp connect(node, cookie) do
    started = if Node.alive?(), do: false, else: start(node)
    if cookie, do: Node.set_cookie(node, String.to_atom(cookie))

    if node != node() and not Node.connect(node) do
      if started, do: Node.stop()

      Mix.raise(
        "#{node} cannot be reached: is it running, with this cookie, and does its host's name resolve here?"
      )
    end

    started
  end

  defp start(node) do
    domain = if node |> Atom.to_string() |> String.contains?("."), do: :longnames, else: :shortnames
    name = :"exphil_fleet_#{System.pid()}"

    case :net_kernel.start(name, %{name_domain: domain, hidden: true}) do
      {:ok, _} -> true
      {:error, _} -> Mix.raise("this VM cannot become a node: is epmd there? (`epmd -daemon` starts it)")
    end
  end

  defp info(node, fleet) do
    case :erpc.call(node, Fleet, :info, [fleet]) do
      {:ok, info} -> info
      {:error, %Error{} = error} -> Mix.raise("#{node}: #{Exception.message(error)}")
    end
  rescue
    error in ErlangError -> Mix.raise("#{node} does not answer: #{inspect(error.original, limit: 8)}")
  end
end
