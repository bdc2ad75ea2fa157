defmodule ExPhil.Native.Fleet.Caller do
  @moduledoc false
  # A call on an agent, in the calling process: finds the agent's process and calls it, and repeats that where
  # the agent has moved, until the call's time is over. A frame that is sent twice is played once, because it
  # has a number.

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Directory, Placing, View}

  # Milliseconds between the first @hasty attempts, and between later ones. Where the agent's process is gone,
  # only one attempt in @asks asks the other nodes where the agent is. It is rarely needed: a process that takes
  # over tells every node. When a node dies, hundreds of callers wait for its agents, and their questions would
  # slow down the nodes that build these agents again.
  @pause 2
  @later 5
  @hasty 10
  @asks 20

  @doc """
  The agent's answer to `request`, `{:ok, _} | {:error, _}`. `place`: whether the agent is placed where it is unknown; else the answer is
  :unknown then.
  """
  @spec call(atom(), term(), term(), boolean(), pos_integer()) ::
          {:ok, term()} | :unknown | {:error, Error.t()}
  def call(fleet, key, request, place, timeout) do
    call = %{fleet: fleet, key: key, request: request, place: place, timeout: timeout, tries: 0}
    here(fleet, fn -> attempt(Map.put(call, :deadline, now() + timeout)) end)
  end

  @doc "What the function answers, which reads the table of this node's fleet; or the error of one that is not there, or ends meanwhile."
  @spec here(term(), (() -> answer)) :: answer | {:error, Error.t()} when answer: term()
  def here(fleet, function) do
    if Directory.here?(fleet), do: function.(), else: not_here(fleet)
  catch
    :exit, reason ->
      if Directory.gone?(reason), do: not_here(fleet), else: exit(reason)
  end

  # The supervisor is there from before the fleet begins until after it has ended. Of a table that is not there any
  # more nobody knows whose it was.
  defp not_here(fleet) do
    if begins?(fleet),
      do:
        {:error,
         Error.new(:unavailable, "", "the fleet #{inspect(fleet)} is starting or stopping on #{node()}")},
      else:
        {:error, Error.invalid("fleet", "the name of an ExPhil.Native.Fleet that runs on #{node()}", fleet)}
  end

  defp begins?(fleet) do
    pid = is_atom(fleet) and Process.whereis(fleet)
    is_pid(pid) and :proc_lib.translate_initial_call(pid) == {:supervisor, ExPhil.Native.Fleet, 1}
  end

  # What is noted of an answer that is there already.
  defp note(function) do
    function.()
  catch
    :exit, reason -> if Directory.gone?(reason), do: :ok, else: exit(reason)
  end

  @doc "Counts frames that were answered in `elapsed` native units of time."
  @spec count(atom(), non_neg_integer(), integer()) :: :ok
  def count(fleet, frames, elapsed) do
    note(fn ->
      Directory.count(fleet, :frames, frames)
      late = Directory.get(fleet, :config).late

      if System.convert_time_unit(elapsed, :native, :microsecond) > 1000 * late,
        do: Directory.count(fleet, :late, 1)
    end)

    :ok
  end

  defp attempt(%{fleet: fleet} = call) do
    case View.quorum(fleet) do
      true -> fleet |> Directory.find(call.key) |> ask(call)
      :wait -> again(call)
      false -> no_majority(fleet)
    end
  end

  defp ask(nil, call), do: locate(call)

  defp ask(pid, call) do
    case request(pid, call) do
      {:moved, to} -> found(to, call)
      :retry -> again(call)
      :gone when rem(call.tries, @asks) == @hasty -> locate(call)
      :gone -> again(call)
      answer -> answer
    end
  end

  defp locate(call) do
    case Placing.locate(call.fleet, call.key, call.place) do
      {:ok, pid} -> found(pid, call)
      :retry -> again(call)
      answer -> answer
    end
  end

  defp found(pid, call) do
    case request(pid, call) do
      moved when moved in [:retry, :gone] or elem(moved, 0) == :moved ->
        again(call)

      answer ->
        # An agent that has not answered yet may be placed again.
        if elem(answer, 0) == :ok, do: note(fn -> Directory.learn(call.fleet, call.key, pid) end)
        answer
    end
  end

  defp again(call) do
    if now() < call.deadline do
      Process.sleep(if call.tries < @hasty, do: @pause, else: @later)
      attempt(%{call | tries: call.tries + 1})
    else
      late(call)
    end
  end

  # A process on a node that is not connected is not called: connecting may take seconds.
  defp request(pid, %{fleet: fleet, key: key} = call) do
    if node(pid) == node() or node(pid) in Node.list() do
      row = Directory.row(fleet, {:unconfirmed, key})

      with :ok <- hand_on(row, pid, call),
           do: pid |> send_request(call.request, call) |> noted(row, pid, call)
    else
      :gone
    end
  catch
    :exit, {:timeout, _} -> late(call)
    :exit, _ -> :gone
  end

  # Another owner than the one that could not tell its copy of these frames. Where it cannot play them, the frame that follows is an error that
  # says why.
  defp hand_on({_, owner, news}, pid, %{fleet: fleet, key: key} = call) when owner != pid do
    with {:error, _} <- send_request(pid, {:unconfirmed, owner, news}, call) do
      Directory.confirmed(fleet, key)
      :ok
    end
  end

  defp hand_on(_row, _pid, _call), do: :ok

  defp send_request(pid, request, call), do: GenServer.call(pid, request, max(call.deadline - now(), 1))

  defp noted({:unconfirmed, answer, news}, _row, pid, %{fleet: fleet, key: key}) do
    Directory.put_unconfirmed(fleet, key, pid, news)
    answer
  end

  defp noted({:ok, _} = answer, row, _pid, %{fleet: fleet, key: key}) do
    if row, do: note(fn -> Directory.confirmed(fleet, key) end)
    answer
  end

  defp noted(other, _row, _pid, _call), do: other

  defp late(call) do
    {:error,
     Error.new(
       :unavailable,
       "",
       "agent #{inspect(call.key, limit: 8)} did not answer in #{call.timeout} ms: its node is lost, cut off or busy; " <>
         "the same call may be sent again"
     )}
  end

  @doc "The error on the side of a split network that has no majority."
  @spec no_majority(atom()) :: {:error, Error.t()}
  def no_majority(fleet) do
    %{members: members} = View.get(fleet)
    missing = View.missing(fleet)

    {:error,
     Error.new(
       :unavailable,
       "",
       "#{node()} reaches #{map_size(members) - length(missing)} of the fleet's #{map_size(members)} nodes, which is no majority: " <>
         "agents may go on elsewhere (out of reach: #{Enum.join(missing, ", ")})"
     )}
  end

  defp now, do: System.monotonic_time(:millisecond)

  @doc "The answer of `module.function` on a node of the fleet."
  def on_member(fleet, node, module, function, arguments) do
    here(fleet, fn ->
      if is_map_key(View.get(fleet).members, node),
        do: on_node(node, module, function, arguments),
        else: {:error, Error.invalid("node", "a node of the fleet", node)}
    end)
  end

  defp on_node(node, module, function, arguments) do
    :erpc.call(node, module, function, arguments)
  rescue
    error in ErlangError -> no_answer(node, error.original)
  catch
    :exit, reason -> no_answer(node, reason)
  end

  defp no_answer(node, why),
    do: {:error, Error.new(:unavailable, "node", "#{node} does not answer: #{inspect(why, limit: 8)}")}
end
