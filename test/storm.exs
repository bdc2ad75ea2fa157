# A storm of operations: 64 processes step, prefill, roll back, scan and run windows; some arguments make no sense;
# processes are killed in the middle of calls; models come and go; the module is loaded again. Every process runs
# each series of its operations twice, the second time on a fresh session, and compares every answer bit by bit.
#
#   mix run test/storm.exs POLICY[,POLICY...] [SECONDS] [SEED] [host|cuda]
#
# All policies are played at once, each as it is and with gather: true: a series by one of them. Prints the seed, and at the end what was done. Ends
# with status 1 where a bit differed or an error was not an ExPhil.Native.Error. The same seed gives the same
# operations; what the threads make of them differs.
alias ExPhil.Native.{Error, Policy, NIF, SelectiveScan}

defmodule Storm do
  @workers 64

  def run(paths, seconds, seed, backend) do
    counts = :counters.new(4, [])

    policies =
      for path <- paths, gather <- [false, true] do
        model = Policy.load!(path, backend: backend, gather: gather)
        Map.merge(Policy.info!(model), %{model: model, path: path, counts: counts})
      end

    config = %{policies: List.to_tuple(policies), counts: counts}
    stop = System.monotonic_time(:millisecond) + round(seconds * 1000)
    main = self()
    Process.flag(:trap_exit, true)
    spawn_link(fn -> reload(stop) end)
    spawn_link(fn -> loads(policies, config, stop) end)
    workers = for i <- 1..@workers, into: %{}, do: start(i, seed, config, stop, main)
    kill(workers, @workers, :rand.seed_s(:exsss, seed), seed, config, stop, main)
  end

  defp start(i, seed, config, stop, main) do
    {spawn_link(fn -> worker(:rand.seed_s(:exsss, {seed, i, 0}), config, stop, main) end), i}
  end

  # Kills a worker now and then and starts another in its place, until all have ended by themselves.
  defp kill(workers, _next, _random, _seed, config, _stop, _main) when map_size(workers) == 0 do
    [series, kills, errors, loads] = for i <- 1..4, do: :counters.get(config.counts, i)

    IO.puts(
      "#{series} series compared, #{kills} processes killed, #{errors} errors told, #{loads} models loaded"
    )

    if series > 0, do: 0, else: 1
  end

  defp kill(workers, next, random, seed, config, stop, main) do
    {wait, random} = :rand.uniform_s(30, random)

    receive do
      {:differs, what} ->
        IO.puts("DIFFERS: #{inspect(what, limit: 20, printable_limit: 200)}")
        1

      {:EXIT, pid, reason} when reason in [:normal, :killed] ->
        kill(Map.delete(workers, pid), next, random, seed, config, stop, main)

      {:EXIT, _pid, reason} ->
        IO.puts("FAILED: #{inspect(reason, limit: 20, printable_limit: 500)}")
        1
    after
      wait ->
        if System.monotonic_time(:millisecond) < stop do
          {at, random} = :rand.uniform_s(map_size(workers), random)
          {pid, _} = Enum.at(workers, at - 1)
          Process.exit(pid, :kill)
          :counters.add(config.counts, 2, 1)
          {pid, i} = start(next + 1, seed, config, stop, main)
          kill(Map.put(workers, pid, i), next + 1, random, seed, config, stop, main)
        else
          kill(workers, next, random, seed, config, stop, main)
        end
    end
  end

  defp worker(random, config, stop, main) do
    {at, random} = :rand.uniform_s(tuple_size(config.policies), random)
    policy = elem(config.policies, at - 1)
    {operations, random} = series(random)
    first = answers(operations, policy)
    if first != answers(operations, policy), do: send(main, {:differs, {policy.path, operations}})
    :counters.add(config.counts, 1, 1)
    if System.monotonic_time(:millisecond) < stop, do: worker(random, config, stop, main)
  end

  defp series(random) do
    {count, random} = :rand.uniform_s(20, random)

    Enum.map_reduce(1..count, random, fn _, random ->
      {kind, random} = :rand.uniform_s(12, random)
      {number, random} = :rand.uniform_s(1000, random)
      {{kind, number}, random}
    end)
  end

  defp answers(operations, config) do
    session = Policy.new_session!(config.model)
    snapshot = Policy.snapshot!(session)
    answers = for operation <- operations, do: operate(operation, session, snapshot, config)
    {answers, Policy.export_state!(session)}
  end

  defp operate({kind, n}, session, _, c) when kind in 1..5, do: Policy.step!(session, frames(n, 1, c))
  defp operate({6, n}, session, _, c), do: Policy.prefill!(session, frames(n, 1 + rem(n, 150), c))
  defp operate({7, _}, session, snapshot, _), do: Policy.restore!(session, snapshot) && :restored

  defp operate({8, n}, session, _, c) do
    state = Policy.export_state!(session)
    Policy.step!(session, frames(n, 1, c))
    Policy.import_state!(session, state) && :imported
  end

  defp operate({9, n}, _, _, c) do
    count = 1 + rem(n, 24)
    {:f32, _, out} = Policy.window!(c.model, {:f32, {count, 60, c.d_input}, frames(n, 60 * count, c)})
    :erlang.phash2(out)
  end

  defp operate({10, n}, _, _, c) do
    {batch, seq, dim} = {1 + rem(n, 16), 1 + rem(n, 61), 16 + rem(n, 500)}
    x = {:f32, {batch, seq, dim}, values(n, batch * seq * dim)}
    b = {:f32, {batch, seq, 8}, values(n + 1, batch * seq * 8)}
    a = {:f32, {dim, 8}, :binary.copy(<<-0.5::float-32-little>>, dim * 8)}
    {:f32, _, y} = SelectiveScan.scan(x, x, a, b, b, backend: c.backend)
    :erlang.phash2(y)
  end

  defp operate({11, n}, session, _, c) do
    others = for _ <- 1..rem(n, 5)//1, do: Policy.new_session!(c.model)
    sessions = [session | others]
    sessions = if rem(n, 2) == 0, do: Policy.group!(sessions), else: sessions
    Policy.step_batch!(sessions, frames(n, 1 + length(others), c))
  end

  defp operate({12, n}, session, snapshot, c) do
    :counters.add(c.counts, 3, 1)

    {:error, %Error{}} =
      case rem(n, 7) do
        0 -> Policy.step(session, "short")
        1 -> Policy.step(session, {:f32, {1}, :nothing})
        2 -> Policy.prefill(session, :binary.copy(<<0>>, 100_001))
        3 -> Policy.window(c.model, {:f32, {1, 60, c.d_input}, <<>>})
        4 -> Policy.import_state(session, :binary.copy(<<1>>, n))
        5 -> Policy.load("/nowhere/#{n}", backend: c.backend)
        6 -> Policy.restore(snapshot, session)
      end

    :refused
  end

  defp frames(n, count, c), do: values(n, count * c.d_input)

  # `count` floats that n decides, without a call for each.
  defp values(n, count) do
    period = for i <- 1..64, into: <<>>, do: <<:math.sin(n * i) / 4 + 0.3::float-32-little>>
    binary_part(:binary.copy(period, div(count, 64) + 1), 0, count * 4)
  end

  defp loads([policy | later], config, stop) do
    model = Policy.load!(policy.path, backend: policy.backend)
    Policy.step!(Policy.new_session!(model), frames(1, 1, policy))
    :counters.add(config.counts, 4, 1)
    Process.sleep(20)
    if System.monotonic_time(:millisecond) < stop, do: loads(later ++ [policy], config, stop)
  end

  # Only where no process is inside the old code: purging ends those.
  defp reload(stop) do
    Process.sleep(700)
    {NIF, beam, file} = :code.get_object_code(NIF)
    if :code.soft_purge(NIF), do: {:module, NIF} = :code.load_binary(NIF, file, beam)
    if System.monotonic_time(:millisecond) < stop, do: reload(stop)
  end
end

[policies | rest] = System.argv()
seconds = rest |> Enum.at(0, "20") |> String.to_integer()
seed = rest |> Enum.at(1, "#{:rand.uniform(1_000_000_000)}") |> String.to_integer()
backend = rest |> Enum.at(2, "host") |> String.to_atom()
IO.puts("storm: seed #{seed}, #{seconds} s, #{backend}")
System.halt(Storm.run(String.split(policies, ","), seconds, seed, backend))
