defmodule ExPhil.Native.Trainer.Store do
  @moduledoc false
  # The file of Trainer.save/2: a safetensors file with the weights, the optimiser's two means of each ("m/",
  # "v/"), and the curve as f64 rows. Written under another name first, so that a run that is killed while it
  # writes leaves the older file.

  alias ExPhil.Native.{Error, Policy, Safetensors, Tensor}
  alias ExPhil.Native.Trainer.{Lanes, Resident, Run}

  @format "exphil_native.trainer"
  @version "1"
  @steps "exphil_native.steps"
  @history "history"
  @evaluations "evaluations"
  # Of Trainer.Lanes, where there are some.
  @lanes "exphil_native.lanes"
  @places "lanes"
  @state "state/"

  @doc "Writes the trainer."
  @spec save(ExPhil.Native.Trainer.t(), term()) :: :ok | {:error, Error.t()}
  def save(trainer, path) do
    with :ok <- Safetensors.check_path(path), do: write(trainer, path)
  end

  defp write(trainer, path) do
    %{step: step, weights: weights, m: m, v: v} = Resident.values!(trainer)

    tensors =
      for {kind, tensors} <- [weights: weights, m: m, v: v],
          {name, tensor} <- tensors,
          into: %{@history => rows(trainer.history, 4), @evaluations => rows(trainer.evaluations, 2)},
          do: {"#{kind}/#{name}", tensor}

    metadata =
      Map.merge(%{@format => @version, @steps => Integer.to_string(step)}, lanes_metadata(trainer.lanes))

    tensors = Map.merge(tensors, lanes_tensors(trainer.lanes))

    unfinished = "#{path}.#{System.pid()}-#{System.unique_integer([:positive])}.tmp"
    with :ok <- Safetensors.write(unfinished, tensors, metadata), do: rename(unfinished, path)
  rescue
    error in Error -> {:error, error}
  end

  defp lanes_metadata(nil), do: %{}
  defp lanes_metadata(%Lanes{data: data}), do: %{@lanes => data}

  defp lanes_tensors(nil), do: %{}

  defp lanes_tensors(%Lanes{places: places, state: state}) do
    for {name, tensor} <- state,
        into: %{@places => Tensor.from_list(Enum.map(places, &Tuple.to_list/1), :s32)},
        do: {"#{@state}#{name}", tensor}
  end

  defp rename(from, to) do
    with {:error, posix} <- File.rename(from, to) do
      File.rm(from)
      {:error, Error.not_written("path", to, posix)}
    end
  end

  defp rows([], columns), do: {:f64, {0, columns}, <<>>}

  defp rows(entries, columns) do
    {:f64, {length(entries), columns},
     for(entry <- entries, v <- Tuple.to_list(entry), into: <<>>, do: <<v / 1::float-64-little>>)}
  end

  @doc "The fields of a trainer that go on from the file, checked against `trainer`, and what is resident of it."
  @spec read(ExPhil.Native.Trainer.t(), term()) :: {:ok, map(), Resident.values()} | {:error, Error.t()}
  def read(trainer, path) do
    with {:ok, metadata} <- Safetensors.metadata(path),
         {:ok, step} <- step(metadata, path),
         {:ok, tensors} <- Safetensors.read(path),
         {:ok, like} <- Policy.weights(trainer.policy),
         {:ok, weights} <- named(tensors, "weights/", like, path),
         {:ok, m} <- named(tensors, "m/", like, path),
         {:ok, v} <- named(tensors, "v/", like, path),
         {:ok, history} <- entries(tensors, @history, 4, path),
         {:ok, evaluations} <- entries(tensors, @evaluations, 2, path),
         {:ok, lanes} <- lanes(trainer, metadata[@lanes], tensors, path) do
      {:ok, %{step: step, history: history, evaluations: evaluations, lanes: lanes},
       %{step: step, weights: weights, m: m, v: v}}
    end
  end

  defp step(%{@format => @version, @steps => text}, path) do
    case Integer.parse(text) do
      {step, ""} when step >= 0 -> {:ok, step}
      _ -> bad(path, "has no number of steps, but #{Error.quoted(text)}")
    end
  end

  defp step(%{@format => version}, path),
    do: bad(path, "is of the version #{Error.quoted(version)}, not #{@version}")

  defp step(_metadata, path), do: bad(path, "is not a file of Trainer.save/2")

  # A trainer that does not carry states has no use for them.
  defp lanes(%{options: %{carry: false}}, _data, _tensors, _path), do: {:ok, nil}
  defp lanes(_trainer, nil, _tensors, _path), do: {:ok, nil}

  defp lanes(%{options: %{batch: batch} = options, policy: policy}, data, tensors, path) do
    first = Run.first_state(policy, options)
    state = Map.new(first, fn {name, _} -> {name, tensors["#{@state}#{name}"]} end)

    alike = fn {name, {:f32, shape, _}} ->
      match?({:f32, _, _}, state[name]) and elem(state[name], 1) == put_elem(shape, 0, batch)
    end

    case tensors[@places] do
      {:s32, {^batch, 2}, _} = places ->
        if Enum.all?(first, alike),
          do: {:ok, %Lanes{data: data, places: places(places), state: state}},
          else: bad(path, "must have the states of #{batch} lanes as this policy has them")

      _ ->
        bad(path, "must have #{Error.quoted(@places)}, s32 of shape {#{batch}, 2}, as :batch says")
    end
  end

  defp places(tensor), do: tensor |> Tensor.to_list() |> Enum.map(&List.to_tuple/1)

  # The file's tensors under this prefix, which must be those of the policy.
  defp named(tensors, prefix, weights, path) do
    found =
      for {name, tensor} <- tensors,
          String.starts_with?(name, prefix),
          into: %{},
          do: {binary_part(name, byte_size(prefix), byte_size(name) - byte_size(prefix)), tensor}

    stranger = fn {name, weight} -> not (is_map_key(found, name) and alike?(found[name], weight)) end

    case Enum.find(weights, stranger) do
      nil when map_size(found) == map_size(weights) ->
        {:ok, found}

      nil ->
        bad(path, "has more tensors #{prefix} than the policy has weights")

      {name, {type, shape, _}} ->
        bad(path, "must have #{Error.quoted(prefix <> name)}, #{type} of shape #{inspect(shape)}")
    end
  end

  defp alike?({type, shape, _}, {other_type, other_shape, _}), do: {type, shape} == {other_type, other_shape}

  defp entries(tensors, name, columns, path) do
    case tensors do
      %{^name => {:f64, {_, ^columns}, _} = tensor} ->
        {:ok,
         tensor |> Tensor.to_list() |> Enum.map(fn [step | rest] -> List.to_tuple([trunc(step) | rest]) end)}

      _ ->
        bad(path, "must have #{Error.quoted(name)}, f64 with #{columns} columns")
    end
  end

  defp bad(path, what), do: {:error, Error.new(:invalid_checkpoint, "path", "#{Error.quoted(path)} #{what}")}
end
