defmodule ExPhil.Native.Fleet.Devices do
  @moduledoc false
  # The policy of a node's fleet, on all its devices (ExPhil.Native.Policy.load/2): loaded when the fleet
  # starts and when its weights change (ExPhil.Native.Fleet.Weights). Agents read it from the fleet's table, with
  # the device that is theirs.

  use GenServer

  alias ExPhil.Native.Fleet.{Directory, Log, Player, Sizes, Update, Weights}
  alias ExPhil.Native.{Error, Policy}

  # Sessions for which a device has memory from the start, and frames of a rehearsal: more than an agent has
  # played since its last exported state.
  @sessions 256
  @rehearsed 128
  # Milliseconds before a node that has joined asks again for the fleet's weights.
  @again 200

  @typedoc "A policy, and the index of one of its devices."
  @type place :: {Policy.t(), non_neg_integer()}

  def start_link(config), do: GenServer.start_link(__MODULE__, config, name: process(config.name))

  defp process(fleet), do: Module.concat(fleet, Devices)

  @doc """
  The number of the device of this node that plays the fewest agents, its place with the weights of that generation, and that generation.
  Where the node does not have that generation, its own. nil where the node has no devices.
  """
  @spec pick(atom(), non_neg_integer()) :: {non_neg_integer(), place(), non_neg_integer()} | nil
  def pick(fleet, generation) do
    loads = Directory.device_loads(fleet)
    if loads != [], do: loads |> Enum.with_index() |> Enum.min() |> elem(1) |> at(fleet, generation)
  end

  defp at(index, fleet, generation) do
    {place, generation} = place(fleet, index, generation)
    {index, place, generation}
  end

  @doc "A session there."
  @spec new_session(place(), keyword()) :: {:ok, Policy.session()} | {:error, Error.t()}
  def new_session({policy, device}, options) do
    options = if Keyword.keyword?(options), do: Keyword.put(options, :device, device), else: options
    Policy.new_session(policy, options)
  end

  @doc "The place of that device with the weights of that generation, or where they are not here of the node's own."
  @spec place(atom(), non_neg_integer(), non_neg_integer()) :: {place(), non_neg_integer()}
  def place(fleet, index, generation) do
    case Directory.row(fleet, {:policies, generation}) do
      {_, places} ->
        {Enum.at(places, index), generation}

      nil ->
        current = Directory.get(fleet, :generation)
        {fleet |> Directory.get({:policies, current}) |> Enum.at(index), current}
    end
  end

  @doc """
  Other weights on every node of the view, then in every agent. Called on the node that chairs the view, so that two updates run one after
  another.
  """
  @spec update(atom(), Path.t() | map()) :: {:ok, map()} | {:error, Error.t()}
  def update(fleet, source), do: GenServer.call(process(fleet), {:update, source}, :infinity)

  @doc "Loads weights beside the present ones. They are refused where the policy has other sizes."
  @spec prepare(atom(), non_neg_integer() | :taken, Path.t() | map()) :: :ok | {:error, Error.t()}
  def prepare(fleet, generation, source) do
    present = fleet |> Directory.get({:policies, Directory.get(fleet, :generation)}) |> info_of()

    with {:ok, places} <- load(Directory.get(fleet, :config), Directory.get(fleet, :first), source, present) do
      Directory.put(fleet, {:policies, generation}, places)
      :ok
    end
  end

  defp info_of([{policy, _device} | _]), do: policy.info
  defp info_of([]), do: nil

  @doc "Weights that were prepared are not used."
  @spec discard(atom(), non_neg_integer() | :taken) :: true
  def discard(fleet, generation), do: :ets.delete(fleet, {:policies, generation})

  @doc "The nodes of the view have changed: takes over the fleet's weights, on this node or on another one."
  @spec follow(atom(), node()) :: :ok
  def follow(fleet, node \\ node()), do: GenServer.cast({process(fleet), node}, :follow)

  # ---- the process -------------------------------------------------------------------------------------------

  @impl true
  def init(%{name: fleet, policy: source} = config) do
    with {:ok, places} <- load(config, source, source, nil) do
      Directory.put(fleet, :devices, for({policy, index} <- places, do: {policy.info.backend, index}))
      Directory.put(fleet, :device_counters, :counters.new(max(length(places), 1), []))
      Directory.put(fleet, :first, source)
      Directory.put(fleet, :source, source)
      Directory.put(fleet, {:policies, 0}, places)
      Directory.put(fleet, :generation, 0)
      Weights.first(fleet)
      {:ok, fleet}
    else
      {:error, error} -> {:stop, error}
    end
  end

  # The places of the node. An index that is there twice has two policies. `present`: the info of the policy whose sizes these must have.
  defp load(%{devices: devices, load: load, session: session}, first, source, present) do
    session = if is_list(session), do: session, else: []
    states = (session[:history] || 0) + 1

    load =
      load
      |> Keyword.put_new_lazy(:backend, &ExPhil.Native.default_backend/0)
      |> Keyword.put_new(:max_sessions, max(@sessions * states, 1024))

    devices
    |> different()
    |> Enum.reduce_while({:ok, []}, fn device, {:ok, places} ->
      with {:ok, policy} <- loaded(first, source, Keyword.put(load, :device, device)),
           :ok <- Sizes.same(policy.info, present),
           here = for(%{index: index} <- policy.info.devices, do: {policy, index}),
           :ok <- rehearse(here, session, load) do
        {:cont, {:ok, places ++ here}}
      else
        {:error, _} = error -> {:halt, error}
      end
    end)
  end

  # Does once what is done when agents of a node that died go on here, so that the device has the kernels and
  # the memory for it: to load them would hold up the frames of the agents that play here. In a process of its
  # own, which has dropped its sessions when this returns: their memory is for the first agents.
  defp rehearse(places, options, load) do
    room = div(load[:max_sessions], (options[:history] || 0) + 1)
    together = if load[:gather], do: min(@sessions, room), else: 0

    fn ->
      result = Enum.find_value(places, :ok, &failed(rehearse_on(&1, options, together)))
      :erlang.garbage_collect()
      result
    end
    |> Task.async()
    |> Task.await(:infinity)
  end

  defp failed(:ok), do: nil
  defp failed(error), do: error

  defp rehearse_on({policy, _} = place, options, together) do
    obs = :binary.copy(<<0::32>>, policy.info.d_input)
    log = Log.new(%{history: options[:history] || 0, burn_in: 0}, 0)
    frames = List.duplicate({:step, obs, nil}, @rehearsed)

    with {:ok, session, log} <- log |> Log.put(0, [hd(frames)]) |> Player.build(place, options),
         {:ok, state} <- Policy.export_state(session),
         log = log |> Log.put_state(state) |> Log.put(1, frames),
         {:ok, session, _} <- Player.build(log, place, options, false),
         {:ok, _} <- Player.play(session, 0, :step, [obs]),
         do: if(policy.info.backend == :cuda, do: gather_on(place, options, obs, together), else: :ok)
  end

  # Frames that gather: of more agents a launch may have other kernels.
  defp gather_on(place, options, obs, together) do
    with {:ok, sessions} <- new_sessions(place, Keyword.delete(options, :window), together, []) do
      2
      |> Stream.iterate(&(2 * &1))
      |> Enum.take_while(&(&1 <= together))
      |> Enum.find_value(:ok, &failed(step_first(sessions, &1, obs)))
    end
  end

  defp new_sessions(_place, _options, 0, made), do: {:ok, made}

  defp new_sessions(place, options, count, made) do
    with {:ok, session} <- new_session(place, options),
         do: new_sessions(place, options, count - 1, [session | made])
  end

  defp step_first(sessions, count, obs) do
    with {:ok, _} <- Policy.step_batch(Enum.take(sessions, count), :binary.copy(obs, count)), do: :ok
  end

  # What Policy.load/2 takes, one after another.
  defp different(:all), do: [:all]
  defp different([]), do: []
  defp different(indices), do: [Enum.uniq(indices) | different(indices -- Enum.uniq(indices))]

  # A map of weights has not all that a checkpoint of the same policy says, so it goes into that policy. A
  # session loads it now: agents change over only where it can be loaded, and do not wait for it then.
  defp loaded(first, weights, load) when is_map(weights) and is_binary(first) do
    with {:ok, policy} <- Policy.load(first, load),
         {:ok, policy} <- Policy.update(policy, weights),
         {:ok, _session} <- Policy.new_session(policy),
         do: {:ok, policy}
  end

  defp loaded(_first, source, load), do: Policy.load(source, load)

  @impl true
  def handle_call({:update, source}, _from, fleet), do: {:reply, Update.update(fleet, source), fleet}

  @impl true
  def handle_cast(:follow, fleet), do: {:noreply, followed(fleet)}

  @impl true
  def handle_info(:follow, fleet), do: {:noreply, followed(fleet)}

  defp followed(fleet) do
    if Weights.follow(fleet) == :later, do: Process.send_after(self(), :follow, @again)
    fleet
  end
end
