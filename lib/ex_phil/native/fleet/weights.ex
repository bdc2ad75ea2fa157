defmodule ExPhil.Native.Fleet.Weights do
  @moduledoc false
  # Which weights the agents of a fleet play, on each of its nodes. ExPhil.Native.Fleet.Update changes them, to a
  # generation above that of every node. A node that joins takes the fleet's weights, whatever its own generation is, and takes no
  # agents before. Called by ExPhil.Native.Fleet.Devices, in its process, and on other nodes for it. In a node's table are:
  #
  #     :generation, :source             of the weights that agents play here
  #     :first, :first_fingerprint       the policy of the options, into which maps of weights go
  #     :fingerprint                     theirs; of a node without devices the fleet's, or nil where it is not known
  #     :weights_of                      the fleet (the view's id) whose weights these are; {:other, id} where they are not those of
  #                                      the node's fleet, and cannot be had
  #     {:update, generation}            the update, a reference, that was loaded here with that number

  require Logger

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Agent, Devices, Directory, Placing, Update, View}

  # Milliseconds.
  @timeout 10_000

  @typedoc "An update: its generation, and a reference of its own."
  @type update :: {pos_integer(), reference()}

  # ---- of this node ------------------------------------------------------------------------------------------

  @doc "This node has its first weights."
  @spec first(atom()) :: true
  def first(fleet) do
    fingerprint = fleet |> Directory.get({:policies, 0}) |> fingerprint()
    for name <- [:fingerprint, :first_fingerprint], do: Directory.put(fleet, name, fingerprint)
    Directory.put(fleet, :weights_of, nil)
  end

  @doc "This node begins a fleet of its own: its weights are the fleet's."
  @spec own(atom(), term()) :: true
  def own(fleet, id), do: Directory.put(fleet, :weights_of, id)

  @doc "Whether the node's weights are its fleet's: `true`, `:soon` where that is not known yet, or `false`."
  @spec ours(atom()) :: boolean() | :soon
  def ours(fleet) do
    %{id: id} = View.get(fleet)

    case Directory.get(fleet, :weights_of) do
      ^id -> true
      {:other, ^id} -> false
      _ -> :soon
    end
  end

  @doc "What the node has."
  @spec current(atom()) :: map()
  def current(fleet) do
    names = [:generation, :source, :fingerprint, :first, :first_fingerprint]
    prepared = :ets.select(fleet, [{{{:update, :"$1"}, :_}, [], [:"$1"]}])

    names
    |> Map.new(&{&1, Directory.get(fleet, &1)})
    |> Map.merge(%{of: Directory.get(fleet, :weights_of), prepared: Enum.max(prepared, fn -> 0 end)})
  end

  @doc "Loads an update's weights beside the present ones: `{:ok, fingerprint}`."
  @spec prepare(atom(), update(), Path.t() | map()) :: {:ok, String.t() | nil} | {:error, Error.t()}
  def prepare(fleet, {generation, reference}, source) do
    if generation > Directory.get(fleet, :generation) and
         :ets.insert_new(fleet, {{:update, generation}, reference}) do
      with :ok <- Devices.prepare(fleet, generation, source),
           do: {:ok, fleet |> Directory.get({:policies, generation}) |> fingerprint()}
    else
      {:error, Error.new(:unavailable, "", "another update is under way, or the node has just joined")}
    end
  end

  @doc "The update is not used."
  @spec discard(atom(), update()) :: :ok
  def discard(fleet, {generation, reference}) do
    with {_, ^reference} <- Directory.row(fleet, {:update, generation}) do
      Devices.discard(fleet, generation)
      :ets.delete(fleet, {:update, generation})
    end

    :ok
  end

  @doc "New agents have the update's weights from now on, and the others from the frame that follows: `{:ok, changed}`."
  @spec commit(atom(), update(), Path.t() | map(), String.t() | nil) ::
          {:ok, non_neg_integer()} | {:error, Error.t()}
  def commit(fleet, {generation, reference}, source, fingerprint) do
    with {_, ^reference} <- Directory.row(fleet, {:update, generation}),
         {_, _places} <- Directory.row(fleet, {:policies, generation}) do
      {:ok, use_these(fleet, generation, source, fingerprint)}
    else
      _ -> {:error, Error.new(:unavailable, "", "the update is not loaded any more")}
    end
  end

  # The weights of the generation before stay, for agents that have not changed over.
  defp use_these(fleet, generation, source, fingerprint) do
    kept = [generation, Directory.get(fleet, :generation)]
    Directory.put(fleet, :source, source)
    Directory.put(fleet, :fingerprint, fingerprint)
    own(fleet, View.get(fleet).id)
    Directory.put(fleet, :generation, generation)
    # A few at a time: the others play meanwhile.
    changed =
      fleet
      |> Directory.pids(:owner)
      |> Task.async_stream(&Agent.change_over(&1, generation), max_concurrency: 2, timeout: :infinity)
      |> Enum.count(&(&1 == {:ok, :ok}))

    for [old] <- :ets.match(fleet, {{:update, :"$1"}, :_}),
        old <= generation,
        do: :ets.delete(fleet, {:update, old})

    for [old] <- :ets.match(fleet, {{:policies, :"$1"}, :_}),
        old < generation and old not in kept,
        do: Devices.discard(fleet, old)

    changed
  end

  defp fingerprint([{policy, _device} | _]), do: policy.info.fingerprint
  defp fingerprint([]), do: nil

  # ---- of a node that has joined, or was out of reach --------------------------------------------------

  @doc """
  Takes over the weights of the fleet's nodes where this node has just joined, or theirs are newer; and tells those that have older ones.
  Called when the view has changed, or a member is back. `:later` where no node knows yet: it has to be called again.
  """
  @spec follow(atom()) :: :ok | :later
  def follow(fleet) do
    %{id: id, members: members} = View.get(fleet)
    others = Map.keys(members) -- [node()]
    found = for {node, {:ok, found}} <- Update.ask(others, :current, [fleet], @timeout), do: {node, found}
    settled = for {_, %{of: ^id} = found} <- found, do: found
    newest = Enum.max_by(settled, &{&1.generation, &1.fingerprint != nil}, fn -> nil end)

    case current(fleet) do
      %{of: ^id} = mine ->
        go_on(fleet, mine, newest, for({node, %{of: of} = one} <- found, of != {:other, id}, do: {node, one}))

      mine ->
        first = length(found) == length(others) and first?(found, newest, id)
        join(fleet, mine, newest, first)
    end
  end

  # Where no node says what the fleet's weights are, those of the first node are; where nodes without devices are
  # the fleet, those of the first node with devices.
  defp first?(found, nil, _id), do: Enum.all?(found, fn {node, _} -> node() < node end)

  defp first?(found, _newest, id),
    do:
      Enum.all?(found, fn {node, %{of: of, fingerprint: theirs}} ->
        theirs == nil or of == {:other, id} or node() < node
      end)

  defp go_on(fleet, %{generation: mine}, %{generation: newer} = newest, _found) when newer > mine do
    case take(fleet, newest) do
      :ok -> Placing.wake(fleet)
      {:error, error} -> Logger.error("fleet #{inspect(fleet)}: weights of the fleet: #{error.message}")
    end
  end

  defp go_on(fleet, %{generation: mine, fingerprint: fingerprint}, newest, found) do
    if fingerprint == nil and newest != nil, do: Directory.put(fleet, :fingerprint, newest.fingerprint)
    %{id: id} = View.get(fleet)

    for {node, %{of: of, generation: other}} <- found,
        of != id or other < mine,
        do: Devices.follow(fleet, node)

    :ok
  end

  # Nobody has the fleet's weights any more who could say so: those of the first node are the fleet's.
  defp join(fleet, _mine, nil, true) do
    own(fleet, View.get(fleet).id)
    Placing.wake(fleet)
    Devices.follow(fleet)
  end

  defp join(_fleet, _mine, nil, false), do: :later

  # Of a fleet of nodes without devices. Two that join it must not both say what its weights are.
  defp join(_fleet, %{fingerprint: mine}, %{fingerprint: nil}, false) when mine != nil, do: :later

  # The same weights under another number.
  defp join(fleet, %{fingerprint: mine} = now, %{fingerprint: theirs, generation: generation} = newest, _)
       when mine == theirs or mine == nil or theirs == nil do
    Directory.put(fleet, {:policies, generation}, Directory.get(fleet, {:policies, now.generation}))
    use_these(fleet, generation, newest.source, theirs || mine)
    for node <- Map.keys(View.get(fleet).members), theirs == nil, do: Devices.follow(fleet, node)
    Placing.wake(fleet)
  end

  defp join(fleet, mine, newest, _) do
    case Enum.reduce_while(firsts(mine, newest), nil, &take_with(fleet, newest, &1, &2)) do
      :ok ->
        Placing.wake(fleet)

      {:error, error} ->
        began_with(fleet, mine)
        unless updated?(fleet, mine), do: refused(fleet, error)
    end
  end

  # An update may come while the fleet's weights are loaded here: it is committed by another process.
  defp updated?(fleet, before) do
    %{generation: generation, of: of} = before
    Directory.get(fleet, :generation) != generation or Directory.get(fleet, :weights_of) != of
  end

  defp refused(fleet, error) do
    own(fleet, {:other, View.get(fleet).id})

    Logger.error(
      "fleet #{inspect(fleet)}: #{node()} has other weights than the fleet that it has joined, and takes no agents: #{error.message}"
    )
  end

  # The policies that maps of weights may go into. The fleet's is known by its path, which may be that of another file here.
  defp firsts(%{first_fingerprint: same} = mine, %{first_fingerprint: same}) when same != nil, do: [mine]
  defp firsts(mine, theirs), do: [theirs, mine]

  defp began_with(fleet, %{first: first, first_fingerprint: fingerprint}) do
    Directory.put(fleet, :first, first)
    Directory.put(fleet, :first_fingerprint, fingerprint)
  end

  defp take_with(fleet, newest, first, _) do
    began_with(fleet, first)

    case take(fleet, newest) do
      :ok -> {:halt, :ok}
      error -> {:cont, error}
    end
  end

  defp take(fleet, %{generation: generation, source: source, fingerprint: theirs}) do
    before = current(fleet)

    with :ok <- Devices.prepare(fleet, :taken, source) do
      {_, places} = Directory.row(fleet, {:policies, :taken})
      Devices.discard(fleet, :taken)

      case fingerprint(places) do
        mine when mine == theirs or mine == nil or theirs == nil ->
          unless updated?(fleet, before) do
            Directory.put(fleet, {:policies, generation}, places)
            use_these(fleet, generation, source, theirs || mine)
          end

          :ok

        other ->
          what = if is_binary(source), do: "those of #{source}", else: "the same ones loaded"
          {:error, Error.new(:mismatch, "", "#{what} are not the fleet's here (#{other}, not #{theirs})")}
      end
    end
  end
end
