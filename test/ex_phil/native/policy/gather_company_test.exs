defmodule ExPhil.Native.Policy.GatherCompanyTest do
  # Policies that gather, beside each other and beside large calls, and of the gated trunks: every caller gets its answer, with the bits of
  # lone steps.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.SelectiveScan
  alias ExPhil.Native.TestSupport.FleetNodes

  @agents 24
  @frames 30

  # Of the sizes that these trunks take.
  defp more(trunk) when trunk in [:mamba2, :mamba3], do: [d_model: 32]
  defp more(_trunk), do: []

  defp pair(backend, trunk, seed) do
    heads = [buttons: {8, :binary}, main_x: 17, main_y: 17, c_x: 17, c_y: 17, shoulder: 5]
    sizes = [d_input: 5, heads: heads, d_model: 16, layers: 2, backend: backend, seed: seed]
    made = Policy.init!(trunk, Keyword.merge(sizes, more(trunk)))

    path =
      Path.join(System.tmp_dir!(), "gather_#{System.pid()}_#{System.unique_integer([:positive])}.safetensors")

    :ok = Policy.save(made, path)
    loaded = {Policy.load!(path, backend: backend), Policy.load!(path, backend: backend, gather: true)}
    File.rm!(path)
    loaded
  end

  defp played(policy, agent, options, call) do
    session = Policy.new_session!(policy, options)
    for number <- 1..@frames, do: call.(session, FleetNodes.obs(number, agent))
  end

  defp start(policy, options, call),
    do: for(agent <- 1..@agents, do: Task.async(fn -> played(policy, agent, options, call) end))

  defp right(policy, options, call), do: for(agent <- 1..@agents, do: played(policy, agent, options, call))

  defp scan(backend, number) do
    numbers = fn count -> for i <- 1..count, into: <<>>, do: <<:math.sin(i * number)::float-32-little>> end
    x = {:f32, {2, 64, 32}, numbers.(2 * 64 * 32)}
    dt = {:f32, {2, 64, 32}, for(_ <- 1..(2 * 64 * 32), into: <<>>, do: <<0.1::float-32-little>>)}
    a = {:f32, {32, 16}, for(i <- 1..512, into: <<>>, do: <<-0.01 * i::float-32-little>>)}
    b = {:f32, {2, 64, 16}, numbers.(2 * 64 * 16)}
    SelectiveScan.scan(x, dt, a, b, b, backend: backend)
  end

  backend_test "two policies that gather, and scans beside them", %{backend: backend} do
    policies = for seed <- 1..2, do: pair(backend, :gru, seed)
    tasks = for {_, gathers} <- policies, do: start(gathers, [history: 4], &Policy.step!/2)
    scans = for number <- 1..8, do: Task.async(fn -> scan(backend, number) end)
    answers = for players <- tasks, do: Task.await_many(players, :infinity)
    assert answers == for({plain, _} <- policies, do: right(plain, [history: 4], &Policy.step!/2))
    assert Task.await_many(scans, :infinity) == for(number <- 1..8, do: scan(backend, number))
    for {_, gathers} <- policies, do: assert(Policy.info!(gathers).gathered.frames == @agents * @frames)
  end

  for trunk <- [:gru, :lstm, :min_gru, :min_lstm, :gated_deltanet, :mamba2, :mamba3] do
    backend_test "#{trunk}: windows, actions and a history, gathered", %{backend: backend} do
      {plain, gathers} = pair(backend, unquote(trunk), 3)

      for {options, call} <- [
            {[window: 6], &Policy.step!/2},
            {[window: 6, temperature: 0.7, seed: 2], &Policy.act!/2},
            {[history: 5, temperature: 0.7, seed: 2], &Policy.act!/2}
          ] do
        answers = gathers |> start(options, call) |> Task.await_many(:infinity)
        assert answers == right(plain, options, call)
      end
    end
  end
end
