defmodule ExPhil.Native.TestSupport.FleetNodes do
  @moduledoc false
  # Other VMs on this machine, as nodes of a fleet: started, killed, cut off from each other. They are controlled through their standard
  # input, so that they can be cut off from this VM too.

  alias ExPhil.Native.{Fleet, Policy}
  alias ExPhil.Native.Fleet.Weights
  alias ExPhil.Native.TestSupport.Waiting

  @doc "nil where this VM can be a node, and why not where it cannot."
  def unavailable do
    cond do
      not Code.ensure_loaded?(:peer) -> "OTP 25's :peer is missing"
      Node.alive?() -> nil
      System.find_executable("epmd") == nil -> "epmd is not installed"
      true -> nil
    end
  end

  @doc "Makes this VM a node of a name of its own. Returns what ends that."
  def distribute do
    if Node.alive?() do
      fn -> :ok end
    else
      {_, 0} = System.cmd("epmd", ["-daemon"])
      # The command may return before the daemon listens.
      Waiting.until(fn -> match?({:ok, _}, :erl_epmd.names()) end)
      {:ok, _} = Node.start(:"exphil_#{System.pid()}_#{System.unique_integer([:positive])}", :shortnames)
      fn -> Node.stop() end
    end
  end

  @doc "The options of a fleet of the test's own, whose policy is a file in the test's folder: `{options, policy}`."
  def fleet_of(%{module: module, line: line, tmp_dir: folder}, options \\ []) do
    {path, policy} = controller(folder)
    own = [name: Module.concat(module, "Fleet#{line}"), policy: path, load: [backend: :host]]
    {Keyword.merge(own, options), policy}
  end

  @doc """
  A VM that is connected to this one and to the others it knows, `{peer, node}`; or, with `apart: true`, to none, and which does not leave a third
  node when it loses a second one, so that a test says who reaches whom. `schedulers: n` of that VM, 1 where it is left out; with `spin: true`
  they wait for work as a VM's do by default, and otherwise they sleep at once.
  """
  def start(options \\ []) do
    apart = if options[:apart], do: ~w(-kernel prevent_overlapping_partitions false)c, else: []
    schedulers = options[:schedulers] || 1
    sleeping = if options[:spin], do: [], else: ~w(+sbwt none +sbwtdcpu none)c

    {:ok, peer, node} =
      :peer.start(%{
        name: :"exphil_#{System.pid()}_#{System.unique_integer([:positive])}",
        connection: :standard_io,
        args:
          [~c"-setcookie", Atom.to_charlist(Node.get_cookie())] ++
            ~w(+S #{schedulers}:#{schedulers})c ++ sleeping ++ apart ++ paths(),
        env: [{~c"EXPHIL_NATIVE_NIF", String.to_charlist(ExPhil.Native.info().nif.path)}],
        wait_boot: 600_000
      })

    {:ok, _} = call(peer, :application, :ensure_all_started, [:exphil_native])
    # What it logs of nodes that are lost is expected.
    :ok = call(peer, :logger, :set_primary_config, [:level, :none])
    unless options[:apart], do: connect(peer, node())
    {peer, node}
  end

  defp paths, do: Enum.flat_map(:code.get_path(), &[~c"-pa", &1])

  @doc "Calls a function there, whether this VM is connected to it or not."
  def call(peer, module, function, arguments), do: :peer.call(peer, module, function, arguments, 600_000)

  @doc "Starts the fleet on that VM."
  def start_fleet(peer, options), do: call(peer, __MODULE__, :start_fleet, [options])

  @doc "Starts the fleet on this VM, under a process that only the returned function ends."
  def start_fleet(options) do
    caller = self()

    pid =
      spawn(fn ->
        {:ok, _} = Supervisor.start_link([{Fleet, options}], strategy: :one_for_one)
        send(caller, {:started, self()})
        receive(do: (:stop -> exit(:shutdown)))
      end)

    receive(do: ({:started, ^pid} -> pid))
  end

  @doc "Ends what `start_fleet/1` started."
  def stop_fleet(pid) do
    monitor = Process.monitor(pid)
    send(pid, :stop)
    receive(do: ({:DOWN, ^monitor, :process, _, _} -> :ok))
  end

  @doc "The VM ends as from SIGKILL."
  def kill(peer) do
    pid = call(peer, :os, :getpid, [])
    monitor = Process.monitor(peer)
    Process.unlink(peer)
    {_, 0} = System.cmd("kill", ["-KILL", to_string(pid)])
    receive(do: ({:DOWN, ^monitor, :process, _, _} -> :ok))
  end

  @doc "Connects VMs with each other."
  def connect(vms) do
    for {peer, one} <- vms,
        {_, other} <- vms,
        one != other,
        do: connect(peer, other)

    :ok
  end

  @doc "Connects a VM with a node. On a busy machine an attempt may be given up, after seven seconds."
  def connect(peer, node), do: Waiting.until(fn -> call(peer, :net_kernel, :connect_node, [node]) end)

  @doc "Cuts a VM off from the others: neither side can connect to the other one, until `heal/2`."
  def cut({peer, node} = vm, others) do
    # Each side expects another cookie.
    cookies(vm, others, :cut_off_there, :cut_off_here)
    for {other, _} <- others, do: call(other, :erlang, :disconnect_node, [node])

    for {other, name} <- others do
      Waiting.until(fn ->
        name not in call(peer, Node, :list, []) and node not in call(other, Node, :list, [])
      end)
    end
  end

  @doc "Undoes `cut/2`, and connects them again."
  def heal(vm, others) do
    cookies(vm, others, Node.get_cookie(), Node.get_cookie())
    connect([vm | others])
  end

  defp cookies({peer, node}, others, there, here) do
    for {other, name} <- others do
      true = call(peer, :erlang, :set_cookie, [name, there])
      true = call(other, :erlang, :set_cookie, [node, here])
    end
  end

  @doc "Calls a function on the VM of that peer, or on this one where it is nil."
  def there(nil, module, function, arguments), do: apply(module, function, arguments)
  def there(peer, module, function, arguments), do: call(peer, module, function, arguments)

  @doc "A policy with a controller, small and untrained: `{path, policy}`."
  def controller(folder, options \\ []) do
    heads = [buttons: {8, :binary}, main_x: 17, main_y: 17, c_x: 17, c_y: 17, shoulder: 5]
    sizes = [d_input: 5, heads: heads, d_model: 16, layers: 2, backend: :host]
    policy = Policy.init!(:gru, Keyword.merge(sizes, options))
    path = Path.join(folder, "controller_#{options[:seed] || 0}.safetensors")
    :ok = Policy.save(policy, path)
    # As the fleet has it.
    {path, Policy.load!(path, backend: :host)}
  end

  @doc "A frame of `controller/2`."
  def obs(number, player \\ 0),
    do: for(i <- 0..4, into: <<>>, do: <<:math.sin(0.37 * number + 1.3 * i + player)::float-32-little>>)

  @doc "Returns once the fleet has these nodes, each knows its weights, and every agent has its copy, as this VM or that of the peer sees it."
  def settled(fleet, nodes, peer \\ nil) do
    Waiting.until(fn ->
      with {:ok, %{answers: true, missing: []} = info} <- there(peer, Fleet, :info, [fleet]) do
        Enum.sort(nodes) == Enum.map(info.nodes, & &1.node) and info.copies == info.agents and
          Enum.all?(nodes, &(there(peer, :erpc, :call, [&1, Weights, :ours, [fleet]]) != :soon))
      else
        _ -> false
      end
    end)
  end
end
