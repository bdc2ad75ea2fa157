defmodule ExPhil.Native.FleetTest do
  # A fleet of one node. test/ex_phil/native/fleet/nodes_test.exs has those of several.
  use ExUnit.Case, async: true

  import ExPhil.Native.TestSupport.FleetNodes, only: [controller: 1, controller: 2, obs: 1, obs: 2]

  alias ExPhil.Native.{Error, Fleet, Policy}
  alias ExPhil.Native.TestSupport.Waiting

  @moduletag :tmp_dir
  @session [history: 6, temperature: 0.8, seed: 3]

  setup %{tmp_dir: folder} = context do
    {path, policy} = controller(folder)
    name = Module.concat(__MODULE__, "Fleet#{context.line}")
    options = [name: name, policy: path, load: [backend: :host], session: @session]
    start_supervised!({Fleet, Keyword.merge(options, context[:fleet] || [])})
    [fleet: name, policy: policy, options: options, session: Policy.new_session!(policy, @session)]
  end

  defp acts(session, numbers), do: for(number <- numbers, do: Policy.act!(session, obs(number)))

  test "frames are those of a session, and a number that was answered gets the same answer", context do
    %{fleet: fleet, session: session} = context

    for number <- -3..20,
        do: assert(Fleet.act!(fleet, :agent, number, obs(number)) == Policy.act!(session, obs(number)))

    again = for number <- 15..20, do: Fleet.act!(fleet, :agent, number, obs(number))
    assert Fleet.act!(fleet, :agent, 21, obs(21)) == Policy.act!(session, obs(21))
    assert again == for(number <- 15..20, do: Fleet.act!(fleet, :agent, number, obs(number)))
    assert Fleet.step!(fleet, :agent, 22, obs(22)) == Policy.step!(session, obs(22))
    assert %{agents: 1, frames: 38, view: 0, answers: true, missing: []} = Fleet.info!(fleet)
  end

  test "other inputs go back, as far as the history", %{fleet: fleet, session: session} do
    assert acts(session, 0..10) == for(number <- 0..10, do: Fleet.act!(fleet, :agent, number, obs(number)))
    [expected] = Policy.resimulate_acts!(session, 3, obs(108))
    assert Fleet.act!(fleet, :agent, 8, obs(108)) == expected
    # What came after it is undone: the old inputs of frame 9 give another answer.
    assert Fleet.act!(fleet, :agent, 9, obs(9)) == Policy.act!(session, obs(9))

    frames = for number <- 108..111, into: <<>>, do: obs(number)
    expected = Policy.resimulate!(session, 2, frames)
    assert Fleet.resimulate!(fleet, :agent, 8, frames) == expected
    assert Fleet.resimulate!(fleet, :agent, 8, frames) == expected
    assert {:f32, {4, 81}, ^expected} = Fleet.resimulate!(fleet, :agent, 8, {:f32, {4, 5}, frames})
    assert Fleet.resimulate_acts!(fleet, :agent, 12, obs(12)) == acts(session, [12])
    assert Fleet.resimulate!(fleet, :agent, 13, <<>>) == <<>>

    assert {:error, %Error{kind: :limit_exceeded, message: message}} = Fleet.act(fleet, :agent, 1, obs(99))
    assert message =~ "history: 6"
    assert message =~ "frame 1 is further back"
    assert message =~ "the earliest frame that can be played now is 7"
    assert {:error, %Error{kind: :limit_exceeded, message: message}} = Fleet.act(fleet, :agent, -1, obs(99))
    assert message =~ "begins with frame 0"
    assert acts(session, [13]) == [Fleet.act!(fleet, :agent, 13, obs(13))]
  end

  test "the earliest frame that can be played is the one that an error names", %{fleet: fleet} do
    for number <- 0..10, do: Fleet.act!(fleet, :agent, number, obs(number))
    # Four back, and one played: the session can go back three.
    Fleet.act!(fleet, :agent, 7, obs(107))
    assert {:error, %Error{kind: :limit_exceeded} = error} = Fleet.act(fleet, :agent, 3, obs(103))
    assert error.argument == "frame_number"

    assert [_, earliest] =
             Regex.run(~r/frame 3 is .* the earliest frame that can be played now is (\d+)$/, error.message)

    earliest = String.to_integer(earliest)
    assert earliest == 5
    assert {:error, %Error{kind: :limit_exceeded}} = Fleet.act(fleet, :agent, earliest - 1, obs(103))
    assert {:ok, _} = Fleet.act(fleet, :agent, earliest, obs(103))
  end

  @tag fleet: [session: []]
  test "without a history the next frame is the earliest", %{fleet: fleet} do
    for number <- 0..3, do: Fleet.act!(fleet, :agent, number, obs(number))
    assert {:error, %Error{kind: :limit_exceeded, message: message}} = Fleet.act(fleet, :agent, 2, obs(102))
    assert message =~ "(history: 0); the earliest frame that can be played now is 4"
    assert {:ok, _} = Fleet.act(fleet, :agent, 4, obs(4))
  end

  test "the same inputs undo no frames, whichever call they come with", %{fleet: fleet, session: session} do
    assert acts(session, 0..9) == for(number <- 0..9, do: Fleet.act!(fleet, :agent, number, obs(number)))
    assert {:error, %Error{kind: :invalid_argument} = error} = Fleet.step(fleet, :agent, 7, obs(7))
    assert error.message =~ "frame 7 was played with these inputs by act"
    frames = for number <- 8..10, into: <<>>, do: obs(number)
    assert {:error, %Error{argument: "frame_number"}} = Fleet.resimulate(fleet, :agent, 8, frames)
    assert acts(session, [10]) == [Fleet.act!(fleet, :agent, 10, obs(10))]
    # Other inputs among them go back, to the first frame that is asked for.
    frames = obs(9) <> obs(110)
    assert Fleet.resimulate!(fleet, :agent, 9, frames) == Policy.resimulate!(session, 2, frames)
    assert {:error, %Error{message: message}} = Fleet.act(fleet, :agent, 10, obs(110))
    assert message =~ "call step/5 or resimulate/5"
    assert acts(session, [11]) == [Fleet.act!(fleet, :agent, 11, obs(11))]
  end

  test "a gap is an error that names what is missing, and changes nothing", %{fleet: fleet, session: session} do
    assert acts(session, 0..3) == for(number <- 0..3, do: Fleet.act!(fleet, :agent, number, obs(number)))
    assert {:error, %Error{kind: :missing_frames, message: message}} = Fleet.act(fleet, :agent, 7, obs(7))
    assert message =~ "frames 4 to 6 are missing (the last one was 3)"
    assert {:error, %Error{kind: :missing_frames, message: message}} = Fleet.step(fleet, :agent, 5, obs(5))
    assert message =~ "frame 4 is missing"
    assert acts(session, [4]) == [Fleet.act!(fleet, :agent, 4, obs(4))]
  end

  test "bad frames are errors of the policy and change nothing, the first one too", %{
    fleet: fleet,
    session: session
  } do
    nan = <<0, 0, 192, 127>> <> binary_part(obs(0), 4, 16)
    assert {:error, %Error{kind: :invalid_argument}} = Fleet.act(fleet, :agent, 100, nan)

    assert {:error, %Error{argument: "obs", message: message}} =
             Fleet.act(fleet, :agent, 100, obs(0) <> obs(1))

    assert message =~ "5 numbers, 20 bytes"
    assert {:error, %Error{argument: "frames"}} = Fleet.resimulate(fleet, :agent, 0, <<1>>)
    assert {:ok, <<>>} = Fleet.resimulate(fleet, :agent, 0, <<>>)
    long = :binary.copy(obs(0), 7)
    assert {:error, %Error{kind: :limit_exceeded}} = Fleet.resimulate(fleet, :agent, 0, long)
    # None of them began an agent.
    assert %{agents: 0} = Fleet.info!(fleet)
    assert {:error, %Error{argument: "obs"}} = Fleet.step(fleet, :agent, 0, {:f32, {1, 5}, obs(0)})
    assert {:error, %Error{argument: "frame_number"}} = Fleet.act(fleet, :agent, 1.0, obs(0))
    assert {:error, %Error{argument: ":timeout"}} = Fleet.act(fleet, :agent, 0, obs(0), timeout: 0)
    assert acts(session, 0..1) == for(number <- 0..1, do: Fleet.act!(fleet, :agent, number, obs(number)))
    assert {:error, %Error{kind: :invalid_argument}} = Fleet.act(fleet, :agent, 2, nan)
    assert acts(session, [2]) == [Fleet.act!(fleet, :agent, 2, obs(2))]
    assert {:error, %Error{argument: "fleet"}} = Fleet.act(:no_fleet, :agent, 0, obs(0))
    assert {:error, %Error{argument: "fleet"}} = Fleet.info(:no_fleet)
    assert {:error, %Error{argument: "weights"}} = Fleet.update(fleet, 1)
  end

  test "a tensor gives a tensor", %{fleet: fleet, session: session} do
    assert {:f32, {81}, outs} = Fleet.step!(fleet, :agent, 0, {:f32, {5}, obs(0)})
    assert outs == Policy.step!(session, obs(0))
    assert Fleet.act!(fleet, :agent, 1, {:f32, {5}, obs(1)}) == Policy.act!(session, obs(1))
  end

  test "a stopped agent is freed, and its key is new", %{fleet: fleet, session: session} do
    [first] = acts(session, [0])

    for _ <- 1..3 do
      assert Fleet.act!(fleet, {"key", [1]}, 0, obs(0)) == first
      assert Fleet.info!(fleet).agents == 1
      assert :ok = Fleet.stop(fleet, {"key", [1]})
      assert %{agents: 0, nodes: [%{devices: [%{agents: 0}]}]} = Fleet.info!(fleet)
    end

    assert :ok = Fleet.stop(fleet, :never_there)
  end

  @tag fleet: [idle: 1]
  test "an idle agent is freed, and remembered", %{fleet: fleet} do
    assert {:ok, _} = Fleet.act(fleet, :agent, 41, obs(0))
    Waiting.until(fn -> Fleet.info!(fleet).agents == 0 end)
    assert {:error, %Error{kind: :lost, message: message}} = Fleet.act(fleet, :agent, 42, obs(1))
    assert message =~ "after frame 41"
    assert :ok = Fleet.stop(fleet, :agent)
    assert {:ok, _} = Fleet.act(fleet, :agent, 0, obs(0))
  end

  @tag fleet: [devices: [0, 0, 0]]
  test "agents go to the device with the fewest", %{fleet: fleet} do
    for key <- 1..7, do: Fleet.act!(fleet, key, 0, obs(0))
    devices = fn -> for %{agents: agents} <- hd(Fleet.info!(fleet).nodes).devices, do: agents end
    assert devices.() == [3, 2, 2]
    for key <- [1, 4], do: Fleet.stop!(fleet, key)
    assert devices.() == [1, 2, 2]
    Fleet.act!(fleet, 8, 0, obs(0))
    assert devices.() == [2, 2, 2]
  end

  @tag fleet: [session: &__MODULE__.session_of/1]
  test "a function of the key gives each agent options of its own", %{fleet: fleet, policy: policy} do
    for seed <- 1..3 do
      session = Policy.new_session!(policy, session_of(seed))
      assert acts(session, 0..9) == for(number <- 0..9, do: Fleet.act!(fleet, seed, number, obs(number)))
    end
  end

  def session_of(key), do: [seed: key, history: key]

  @tag fleet: [session: &__MODULE__.bad_session_of/1]
  test "a function of the key that raises, or answers no options, is an error that says so", %{fleet: fleet} do
    for {key, says} <- [{1, "** (RuntimeError) no"}, {2, "** (throw) :no"}, {3, ":no"}, {4, "device: 0"}] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":session", message: message}} =
               Fleet.act(fleet, key, 0, obs(0))

      assert message =~ says
    end

    assert {:ok, _} = Fleet.act(fleet, 5, 0, obs(0))
  end

  def bad_session_of(1), do: raise("no")
  def bad_session_of(2), do: throw(:no)
  def bad_session_of(3), do: :no
  def bad_session_of(4), do: [device: 0]
  def bad_session_of(5), do: []

  test "while the fleet of this node begins anew, calls are errors at once", %{fleet: fleet} do
    assert {:ok, _} = Fleet.act(fleet, :agent, 0, obs(0))
    unavailable = &assert {:error, %Error{kind: :unavailable, message: "the fleet " <> _}} = &1.()

    calls = [
      fn -> Fleet.act(fleet, :agent, 1, obs(1)) end,
      fn -> Fleet.stop(fleet, :agent) end,
      fn -> Fleet.info(fleet) end,
      fn -> Fleet.update(fleet, %{}) end,
      fn -> Fleet.drain(fleet, node()) end
    ]

    # A row that is not there yet, or not any more.
    [quorum] = :ets.take(fleet, :quorum)
    [missing] = :ets.take(fleet, :missing)
    unavailable.(hd(calls))
    true = :ets.insert(fleet, [quorum, missing])
    assert {:ok, _} = Fleet.act(fleet, :agent, 1, obs(1))

    # After a frame was played, what is counted of it is no reason for an error. Its process counts too.
    directory = Process.whereis(Module.concat(fleet, Directory))
    :ok = :sys.suspend(directory)
    [counters] = :ets.take(fleet, :counters)
    assert {:ok, _} = Fleet.act(fleet, :agent, 2, obs(2))
    true = :ets.insert(fleet, counters)

    # Without the table; the supervisor does not start it again yet.
    :ok = :sys.suspend(fleet)
    monitor = Process.monitor(directory)
    Process.exit(directory, :kill)
    assert_receive {:DOWN, ^monitor, :process, _, _}
    Enum.each(calls, unavailable)
    :ok = :sys.resume(fleet)
    Waiting.until(fn -> match?({:ok, _}, Fleet.act(fleet, :new, 0, obs(0))) end)
  end

  test "an agent whose process ends without a copy is lost, and says so", %{fleet: fleet} do
    Fleet.act!(fleet, :agent, 0, obs(0))
    Process.exit(Fleet.Directory.find(fleet, :agent), :kill)
    assert {:error, %Error{kind: :lost}} = Fleet.act(fleet, :agent, 1, obs(1))
    assert :ok = Fleet.stop(fleet, :agent)
    assert {:ok, _} = Fleet.act(fleet, :agent, 0, obs(0))
  end

  test "other weights: a new session that has played the last frames", context do
    %{fleet: fleet, tmp_dir: folder} = context
    {_path, other} = controller(folder, seed: 9)
    before = for number <- 0..99, do: Fleet.act!(fleet, :agent, number, obs(number))
    assert {:ok, %{generation: 1, agents: 1}} = Fleet.update(fleet, Policy.weights!(other))
    assert for(number <- 95..99, do: Fleet.act!(fleet, :agent, number, obs(number))) == Enum.take(before, -5)

    # As Policy.update/2 of the first policy: it keeps what is no weight, such as the keys of a GRU's first states.
    policy = Policy.update!(context.policy, Policy.weights!(other))
    session = Policy.new_session!(policy, @session)
    acts(session, 40..99)

    assert acts(session, 100..120) ==
             for(number <- 100..120, do: Fleet.act!(fleet, :agent, number, obs(number)))

    assert acts(Policy.new_session!(policy, @session), 0..5) ==
             for(number <- 0..5, do: Fleet.act!(fleet, 2, number, obs(number)))

    # Bad weights change nothing.
    assert {:error, %Error{kind: :invalid_checkpoint}} = Fleet.update(fleet, %{})
    assert acts(session, [121]) == [Fleet.act!(fleet, :agent, 121, obs(121))]
    assert [%{generation: 1}] = Fleet.info!(fleet).nodes
  end

  test "a policy of another trunk, other sizes or other outputs changes nothing", context do
    %{fleet: fleet, tmp_dir: folder, session: session} = context
    assert acts(session, 0..9) == for(number <- 0..9, do: Fleet.act!(fleet, :agent, number, obs(number)))
    axes = [main_x: 17, main_y: 17, c_x: 17, c_y: 17, shoulder: 5]
    sizes = [d_input: 5, heads: [buttons: {8, :binary}] ++ axes, d_model: 16, layers: 2]
    renamed = Enum.map(sizes[:heads], fn {name, outputs} -> {:"other_#{name}", outputs} end)
    choice = Keyword.put(sizes[:heads], :buttons, 8)

    for {trunk, changed, text} <- [
          {:min_gru, [], "trunk is :min_gru, the fleet's is :gru"},
          {:gru, [d_input: 6], "d_input is 6, the fleet's is 5"},
          {:gru, [d_model: 24], "d_model is 24, the fleet's is 16"},
          {:gru, [layers: 1], "n_layer is 1, the fleet's is 2"},
          {:gru, [heads: [stick: 81]], "groups is [stick: 0..80], the fleet's is [{:buttons, 0..7, :binary}"},
          {:gru, [heads: renamed], "groups is [{:other_buttons, 0..7, :binary}"},
          {:gru, [heads: choice], "the fleet's is [{:buttons, 0..7, :binary}"},
          {:gru, [heads: Keyword.put(sizes[:heads], :shoulder, 4)], "d_output is 80, the fleet's is 81"}
        ] do
      other = Policy.init!(trunk, sizes |> Keyword.merge(changed) |> Keyword.put(:backend, :host))
      path = Path.join(folder, "other.safetensors")
      Policy.save!(other, path)

      assert {:error, %Error{kind: :invalid_checkpoint, argument: "weights"} = error} =
               Fleet.update(fleet, path)

      assert error.message =~ "#{node()}: "
      assert error.message =~ text
    end

    assert [%{generation: 0}] = Fleet.info!(fleet).nodes
    assert acts(session, 10..15) == for(number <- 10..15, do: Fleet.act!(fleet, :agent, number, obs(number)))
    assert {:ok, _} = Fleet.act(fleet, :new, 0, obs(0))
    # The fleet takes weights of its own sizes afterwards.
    {path, _} = controller(folder, seed: 9)
    assert {:ok, %{generation: 1, agents: 2}} = Fleet.update(fleet, path)
  end

  test "a fleet that began with a map of weights refuses others too", context do
    weights = fn outputs ->
      sizes = [d_input: 5, d_output: outputs, d_model: 16, layers: 1, backend: :host]
      Policy.weights!(Policy.init!(:min_gru, sizes))
    end

    name = Module.concat(context.fleet, OfMap)
    start_supervised!({Fleet, name: name, policy: weights.(4), load: [backend: :host]})
    assert {:error, %Error{kind: :invalid_checkpoint} = error} = Fleet.update(name, weights.(3))
    assert error.message =~ "d_output is 3, the fleet's is 4"
    assert [%{generation: 0}] = Fleet.info!(name).nodes
    assert {:ok, %{generation: 1}} = Fleet.update(name, weights.(4))
  end

  test "an agent that has no other node for its copy looks for one when the members change, and not all the time",
       %{fleet: fleet} do
    for number <- 0..2 do
      Fleet.act!(fleet, :agent, number, obs(number))
      # Answered after what an agent does between frames.
      assert %{peer: nil, maker: nil} = fleet |> Fleet.Directory.find(:agent) |> :sys.get_state()
    end

    pid = Fleet.Directory.find(fleet, :agent)
    %{nowhere: before} = :sys.get_state(pid)
    Fleet.Directory.wake(fleet)
    Waiting.until(fn -> match?(%{nowhere: timer} when timer not in [nil, before], :sys.get_state(pid)) end)
  end

  test "one node cannot be drained", %{fleet: fleet} do
    assert {:error, %Error{kind: :unavailable}} = Fleet.drain(fleet, node())
    assert {:ok, _} = Fleet.act(fleet, :agent, 0, obs(0))
    assert {:error, %Error{argument: "node"}} = Fleet.drain(fleet, :other@node)
  end

  test "agents that come and go leave nothing behind, not even atoms", %{fleet: fleet} do
    come_and_go = fn keys ->
      for key <- keys do
        Fleet.act!(fleet, "agent #{key}", 0, obs(0, key))
        Fleet.stop!(fleet, "agent #{key}")
      end
    end

    come_and_go.(1..50)

    measure = fn ->
      {:erlang.system_info(:atom_count), :ets.info(fleet, :size),
       length(Supervisor.which_children(Module.concat(fleet, Agents)))}
    end

    {_, rows, 0} = measure.()
    come_and_go.(51..500)
    assert {_, ^rows, 0} = measure.()
    refute Enum.any?(51..500, fn key -> existing?("agent #{key}") end)
  end

  defp existing?(name) do
    String.to_existing_atom(name)
  rescue
    ArgumentError -> false
  end

  test "callers of one agent and of many at once get the answers of one after another", context do
    %{fleet: fleet, policy: policy} = context

    tasks =
      for player <- 1..20 do
        Task.async(fn ->
          session = Policy.new_session!(policy, @session)

          for number <- 0..60 do
            expected = Policy.act!(session, obs(number, player))
            # The same frame by three callers: it is played once.
            answers =
              1..3
              |> Enum.map(fn _ ->
                Task.async(fn -> Fleet.act!(fleet, player, number, obs(number, player)) end)
              end)

            assert Task.await_many(answers, :infinity) == List.duplicate(expected, 3)
          end
        end)
      end

    Task.await_many(tasks, :infinity)
    assert Fleet.info!(fleet).agents == 20
  end

  test "options that are wrong are errors that name them", %{options: options} do
    for {wrong, name} <- [
          {[name: nil], ":name"},
          {[policy: 1], ":policy"},
          {[devices: 0], ":devices"},
          {[load: [device: 1]], ":load"},
          {[load: [backend: :auto]], ":load"},
          {[session: 1], ":session"},
          {[session: [device: 0]], ":session"},
          {[copies: 2], ":copies"},
          {[lease: -1], ":lease"},
          {[export: 0], ":export"},
          {[burn_in: -1], ":burn_in"},
          {[idle: 0], ":idle"},
          {[late: 0], ":late"},
          {[other: 1], ":other"}
        ] do
      assert {:error, %Error{kind: :invalid_argument, argument: ^name}} =
               Fleet.start_link(
                 Keyword.merge([name: :"#{__MODULE__}.Wrong"] ++ Keyword.delete(options, :name), wrong)
               )
    end

    Process.flag(:trap_exit, true)
    options = Keyword.merge(options, name: __MODULE__.Missing, policy: "/no/such/file")

    assert {:error, {:shutdown, {:failed_to_start_child, _, %Error{kind: :file_error}}}} =
             Fleet.start_link(options)
  end
end
