defmodule ExPhil.Native.Policy.Automatic do
  @moduledoc false
  # `backend: :auto` of Policy.load/2 where there is a GPU: the policy is loaded onto both backends, one
  # agent's frames are timed on each from Elixir, as a game would play them, and the policy of the faster
  # backend is returned.
  #
  # All this is in a process of its own, so that the other policy and the sessions are freed when that process
  # ends. It mostly sleeps, and holds no scheduler for longer than a frame does.

  alias ExPhil.Native.{Clock, Error, NIF, Policy}

  # Ticks at 120 FPS, for the two backends in turn: each has a frame once in 16.67 ms. The first frames of
  # each are not counted: they are slower, and the very first runs in a dirty job.
  @ticks_per_second 120
  @untimed 2
  @timed 9
  # In milliseconds from the first frame on. Beyond it a slow policy has no further frames than one of each
  # kind.
  @bound 250
  # Of the frames back to back on each backend.
  @most_frames 50
  @most_time 8

  @type devices :: :all | [non_neg_integer()]
  @type load ::
          (backend :: atom(), devices() ->
             {:ok, Policy.t()} | {:error, Error.t()})

  @doc "Loads onto the faster backend. `devices` are GPUs; whoever names several has them, and nothing is measured."
  @spec load(load(), devices()) :: {:ok, Policy.t()} | {:error, Error.t()}
  def load(load, devices) do
    cond do
      not ExPhil.Native.cuda_available?() ->
        with {:ok, policy} <- load.(:auto, devices), do: {:ok, chosen(policy, :only_host)}

      match?([_], devices) ->
        measured(load, devices)

      true ->
        load.(:cuda, devices)
    end
  end

  defp measured(load, devices) do
    {_pid, monitor} = spawn_monitor(fn -> exit({:shutdown, {:chosen, choose(load, devices)}}) end)

    receive do
      {:DOWN, ^monitor, _, _, {:shutdown, {:chosen, result}}} ->
        result

      {:DOWN, ^monitor, _, _, reason} ->
        {:error, Error.new(:internal, "", "the choice of a backend failed: #{inspect(reason)}")}
    end
  end

  # What is wrong with the file or the options is found on the host.
  defp choose(load, devices) do
    with {:ok, host} <- load.(:host, [0]) do
      case load.(:cuda, devices) do
        {:ok, cuda} -> faster(cuda, host)
        {:error, %Error{argument: ":device"} = error} -> {:error, error}
        {:error, error} -> {:ok, chosen(host, %{cuda: error, host: nil})}
      end
    end
  end

  defp faster(cuda, host) do
    {name, measured} = measure(cuda: cuda, host: host)
    {:ok, chosen(if(name == :cuda, do: cuda, else: host), measured)}
  end

  defp chosen(%Policy{} = policy, choice), do: %{policy | info: %{policy.info | choice: choice}}

  # The name of the faster backend, and what was measured on each. A backend that fails is not taken.
  defp measure(policies) do
    players = for {name, policy} <- policies, do: {name, player(name, policy)}
    paced = paced(players)

    measured =
      for {name, frame} <- players,
          into: %{},
          do: {name, %{paced: median(paced[name]), back_to_back: median(back_to_back(frame))}}

    {if(measured.cuda.paced <= measured.host.paced, do: :cuda, else: :host), measured}
  catch
    {:failed, :cuda, error} -> {:host, %{cuda: error, host: nil}}
    {:failed, :host, error} -> {:cuda, %{cuda: nil, host: error}}
  end

  # A function that plays a frame and returns its microseconds.
  defp player(name, policy) do
    obs = :binary.copy(<<0.0::float-32-little>>, policy.info.d_input)

    case Policy.new_session(policy) do
      {:ok, session} -> fn -> timed(name, session, obs) end
      {:error, error} -> throw({:failed, name, error})
    end
  end

  defp timed(name, session, obs) do
    begin = System.monotonic_time()

    case NIF.step(session.ref, obs) do
      {:ok, _out} -> (System.monotonic_time() - begin) / System.convert_time_unit(1, :microsecond, :native)
      {:error, reason} -> throw({:failed, name, Error.from_nif(reason)})
    end
  end

  # The times by name.
  defp paced(players) do
    clock = Clock.start!(@ticks_per_second)
    stop = System.monotonic_time(:millisecond) + @bound

    turn = fn ->
      for {name, frame} <- players do
        Clock.wait(clock)
        {name, frame.()}
      end
    end

    for _ <- 1..@untimed, System.monotonic_time(:millisecond) < stop, do: turn.()
    first = turn.()
    others = for _ <- 2..@timed, System.monotonic_time(:millisecond) < stop, do: turn.()
    Clock.stop(clock)
    [first | others] |> List.flatten() |> Enum.group_by(&elem(&1, 0), &elem(&1, 1))
  end

  defp back_to_back(frame), do: back_to_back(frame, System.monotonic_time(:millisecond) + @most_time, [])

  defp back_to_back(frame, stop, times) do
    times = [frame.() | times]

    if length(times) < @most_frames and System.monotonic_time(:millisecond) < stop,
      do: back_to_back(frame, stop, times),
      else: times
  end

  defp median(times), do: times |> Enum.sort() |> Enum.at(div(length(times), 2)) |> Float.round(1)
end
