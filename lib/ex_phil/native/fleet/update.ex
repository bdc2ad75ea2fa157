defmodule ExPhil.Native.Fleet.Update do
  @moduledoc false
  # An update of a fleet's weights, on all nodes: loaded everywhere, then used everywhere. Runs on the node that chairs the view, in the
  # process of ExPhil.Native.Fleet.Devices, so that two updates run one after another; ExPhil.Native.Fleet.Weights is each node's part.

  alias ExPhil.Native.Error
  alias ExPhil.Native.Fleet.{Devices, Directory, View, Weights}

  # Milliseconds.
  @timeout 10_000

  @doc """
  Other weights on every node of the view, also on those that join meanwhile, then in every agent. Where a node cannot load them, nothing
  changes. A node that dies afterwards refuses nothing: the others have them.
  """
  @spec update(atom(), Path.t() | map()) :: {:ok, map()} | {:error, Error.t()}
  def update(fleet, source) do
    with {:ok, found} <- fleet |> members() |> ask(:current, [fleet]) |> all() do
      newest = for {_, %{generation: generation, prepared: prepared}} <- found, do: max(generation, prepared)
      update = {Enum.max(newest) + 1, make_ref()}
      prepared = prepare_all(fleet, members(fleet), update, source)

      case prepared |> all() |> same() do
        {:ok, fingerprint} ->
          {:ok, commit_all(fleet, Keyword.keys(prepared), update, source, fingerprint)}

        {:error, _} = error ->
          prepared |> Keyword.keys() |> ask(:discard, [fleet, update])
          error
      end
    end
  end

  # The view may change while weights are loaded.
  defp prepare_all(fleet, nodes, update, source, done \\ []) do
    done = ask(nodes, :prepare, [fleet, update, source]) ++ done
    joined = members(fleet) -- Keyword.keys(done)

    if joined == [] or match?({:error, _}, all(done)),
      do: done,
      else: prepare_all(fleet, joined, update, source, done)
  end

  defp commit_all(fleet, nodes, {generation, _} = update, source, fingerprint) do
    changed =
      for {_, {:ok, changed}} <- ask(nodes, :commit, [fleet, update, source, fingerprint]), do: changed

    # A node that this one does not know to have joined has missed all of it, and asked the others too early.
    Devices.follow(fleet)
    # Agents whose copies found no node with their weights meanwhile.
    :erpc.multicall(nodes, Directory, :wake, [fleet], @timeout)
    %{generation: generation, agents: Enum.sum(changed)}
  end

  defp members(fleet), do: Map.keys(View.get(fleet).members)

  # The path of a checkpoint may be that of another file on another node.
  defp same({:ok, prepared}) do
    case prepared |> Enum.reject(&match?({_, nil}, &1)) |> Enum.uniq_by(&elem(&1, 1)) do
      [] ->
        {:ok, nil}

      [{_, fingerprint}] ->
        {:ok, fingerprint}

      [{one, _}, {other, _} | _] ->
        {:error, Error.new(:invalid_checkpoint, "weights", "they are not the same on #{one} and #{other}")}
    end
  end

  defp same(error), do: error

  @doc "What a function of ExPhil.Native.Fleet.Weights answers on each of the nodes: `[{node, {:ok, value} | {:error, error}}]`."
  @spec ask([node()], atom(), list(), timeout()) :: [{node(), {:ok, term()} | {:error, Error.t()}}]
  def ask(nodes, call, arguments, timeout \\ :infinity) do
    Enum.zip_with(nodes, :erpc.multicall(nodes, Weights, call, arguments, timeout), fn
      node, {:ok, {:error, error}} -> {node, {:error, on_node(error, node)}}
      node, {:ok, {:ok, value}} -> {node, {:ok, value}}
      node, {:ok, value} -> {node, {:ok, value}}
      node, failed -> {node, {:error, on_node(failed, node)}}
    end)
  end

  # {:ok, [{node, value}]}, or the first error.
  defp all(answers) do
    Enum.find_value(answers, {:ok, for({node, {:ok, value}} <- answers, do: {node, value})}, fn
      {_, {:error, _} = error} -> error
      _ -> nil
    end)
  end

  defp on_node(%Error{} = error, node), do: %{error | message: "#{node}: #{error.message}"}

  defp on_node(failed, node),
    do: Error.new(:unavailable, "", "#{node} did not take the weights: #{inspect(failed, limit: 8)}")
end
