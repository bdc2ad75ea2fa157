# How many agents one GPU and several play at 60 FPS. Each of PROCESSES processes has a share of the agents and plays one frame of all of
# them by a call every 16.67 ms, for SECONDS: a number of agents is played where 99 of 100 calls have answered before the next frame is due.
# The largest such number is found by doubling and then by halving the steps, on the first device, on the first two, on four, ...
#
#   mix run bench/devices.exs [agents] [PROCESSES] [SECONDS] [step|act] [FIRST]
#
# FIRST: the first number of agents that is tried, 1024.
#
# And scans of BATCHxSEQx512x16 (8x512) by CALLERS processes at once: N on the first device, and N for each device on several. Each scan is
# on one device, in turns, or is split over all of them.
#
#   mix run bench/devices.exs scans [N] [CALLERS] [turns|split] [BATCHxSEQ]
#
# The policy is the shared one (EXPHIL_SHARED, else ../shared), or that of EXPHIL_FLEET_POLICY.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.{Device, Policy, SelectiveScan}
import Bitwise

defmodule DevicesBench do
  import Bitwise

  # Microseconds of a frame at 60 FPS.
  @frame 16_667
  @untimed 30
  # Agents between which the largest number is not looked for.
  @least 256

  def most(play, first), do: double(play, first)

  defp double(play, agents) do
    if play.(agents), do: double(play, 2 * agents), else: between(play, div(agents, 2), agents)
  end

  defp between(play, played, late) do
    agents = div(played + late, 2)

    cond do
      late - played <= max(@least, div(played, 50)) -> played
      play.(agents) -> between(play, agents, late)
      true -> between(play, played, agents)
    end
  end

  # Whether the agents are played in time, and a line about it.
  def in_time?(policy, agents, processes, seconds, call, width) do
    players =
      for process <- 1..processes do
        share = div(agents * process, processes) - div(agents * (process - 1), processes)
        Task.async(fn -> play(policy, share, seconds, call, width) end)
      end

    for %{pid: pid} <- players, do: receive(do: ({:ready, ^pid} -> :ok))
    start = System.monotonic_time(:microsecond) + 100_000

    for {%{pid: pid}, process} <- Enum.with_index(players),
        do: send(pid, {:start, start + div(process * @frame, processes)})

    latencies = players |> Task.await_many(:infinity) |> Enum.concat() |> Enum.sort()
    [p50, p99] = for percent <- [50, 99], do: BenchSupport.at(latencies, percent)
    IO.puts("  #{agents} agents: p50 #{p50}, p99 #{p99} us")
    p99 < @frame
  end

  # Of each call from when its frame is due to its answer.
  defp play(policy, agents, seconds, call, width) do
    sessions = for _ <- 1..agents, do: Policy.new_session!(policy, window: :none)
    obs = :binary.copy(BenchSupport.floats(width, 1, 2.0, 0.0), agents)
    for _ <- 1..3, do: {:ok, _} = call.(sessions, obs)
    [parent | _] = Process.get(:"$callers")
    send(parent, {:ready, self()})
    start = receive(do: ({:start, start} -> start))

    latencies =
      for frame <- 0..(@untimed + 60 * seconds - 1) do
        due = start + frame * @frame
        wait = div(due - System.monotonic_time(:microsecond), 1000)
        if wait > 0, do: Process.sleep(wait)
        {:ok, _} = call.(sessions, obs)
        System.monotonic_time(:microsecond) - due
      end

    Enum.drop(latencies, @untimed)
  end

  # Milliseconds of `count` scans by `callers`, each on the devices in turn.
  def scans(scan, count, devices, callers) do
    turn = :atomics.new(1, [])

    {microseconds, _} =
      BenchSupport.timed(fn ->
        1..callers
        |> Enum.map(fn _ -> Task.async(fn -> scan_on(scan, turn, count, devices) end) end)
        |> Task.await_many(:infinity)
      end)

    microseconds / 1000
  end

  # Of the last 65,536 values, relative to the largest of them.
  def difference({:f32, _, one}, {:f32, _, other}) do
    [one, other] =
      for binary <- [one, other] do
        bytes = min(byte_size(binary), 1 <<< 18)
        for <<v::float-32-little <- binary_part(binary, byte_size(binary), -bytes)>>, do: v
      end

    largest = one |> Enum.map(&abs/1) |> Enum.max() |> max(1.0e-30)
    (Enum.zip(one, other) |> Enum.map(fn {p, q} -> abs(p - q) end) |> Enum.max()) / largest
  end

  defp scan_on(scan, turn, count, devices) do
    number = :atomics.add_get(turn, 1, 1)

    if number <= count do
      scan.(Enum.at(devices, rem(number, length(devices))))
      scan_on(scan, turn, count, devices)
    end
  end
end

devices = for %{backend: :cuda, index: index} <- Device.list!(), do: index
if devices == [], do: raise("there is no GPU: #{ExPhil.Native.info().backends.cuda.reason}")
some = for count <- [1, 2, 4, 8], count <= length(devices), do: Enum.take(devices, count)

case System.argv() do
  ["scans" | rest] ->
    [count, callers] =
      for {at, otherwise} <- [{0, 200}, {1, 8}], do: BenchSupport.integer(rest, at, otherwise)

    # Random numbers, over and over.
    tensor = fn shape, seed, scale, shift ->
      some = BenchSupport.floats(1 <<< 16, seed, scale, shift)
      bytes = 4 * Tuple.product(shape)
      {:f32, shape, binary_part(:binary.copy(some, div(bytes, byte_size(some)) + 1), 0, bytes)}
    end

    how = Enum.at(rest, 2, "turns")
    [batch, seq] = rest |> Enum.at(3, "8x512") |> String.split("x") |> Enum.map(&String.to_integer/1)

    [x, dt] =
      for {seed, scale, shift} <- [{1, 2.0, 0.0}, {2, 0.1, 0.06}],
          do: tensor.({batch, seq, 512}, seed, scale, shift)

    a = tensor.({512, 16}, 3, 1.0, -1.0)
    [b, c] = for seed <- [4, 5], do: tensor.({batch, seq, 16}, seed, 2.0, 0.0)
    scan = fn device -> SelectiveScan.scan(x, dt, a, b, c, backend: :cuda, device: device) end

    times =
      for devices <- some do
        turns = if how == "split", do: [devices], else: devices

        IO.puts(
          "the answers differ by at most #{DevicesBench.difference(scan.(hd(devices)), scan.(hd(turns)))}"
        )

        DevicesBench.scans(scan, 4 * callers * length(devices), turns, callers)
        count = count * length(devices)
        times = for _ <- 1..5, do: DevicesBench.scans(scan, count, turns, callers)
        median = times |> Enum.sort() |> Enum.at(2)
        IO.puts("#{count} scans on #{length(devices)}: #{Float.round(median, 1)} ms, the median of 5")
        median
      end

    for {time, devices} <- tl(Enum.zip(times, some)),
        do: IO.puts("#{length(devices)} devices: #{Float.round(time / hd(times), 3)} of the time of one")

  arguments ->
    rest = if List.first(arguments) == "agents", do: tl(arguments), else: arguments

    [processes, seconds, first] =
      for {at, otherwise} <- [{0, 4}, {1, 2}, {3, 1024}], do: BenchSupport.integer(rest, at, otherwise)

    call = if Enum.at(rest, 2, "step") == "act", do: &Policy.act_batch/2, else: &Policy.step_batch/2
    file = System.get_env("EXPHIL_FLEET_POLICY") || BenchSupport.policy()

    most =
      for devices <- some do
        IO.puts("devices #{inspect(devices)}, #{processes} processes")
        policy = Policy.load!(file, backend: :cuda, device: devices, max_sessions: 4096)
        width = Policy.info!(policy).d_input
        most = DevicesBench.most(&DevicesBench.in_time?(policy, &1, processes, seconds, call, width), first)
        IO.puts("#{most} agents at 60 FPS on #{length(devices)}")
        most
      end

    for {agents, devices} <- tl(Enum.zip(most, some)),
        do:
          IO.puts("#{length(devices)} devices: #{Float.round(agents / hd(most), 2)} times the agents of one")
end
