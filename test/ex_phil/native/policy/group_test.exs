defmodule ExPhil.Native.Policy.GroupTest do
  # Sessions that are stepped together many times: the same answers and errors as those of a list of them and of
  # separate steps, whatever else is done with the sessions, the group and the processes meanwhile.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.{Safetensors, Tensor}
  alias ExPhil.Native.Policy.Group
  alias ExPhil.Native.TestSupport.FakeCuda

  setup context do
    {:ok, model: Policy.load!(Policies.checkpoint(), backend: context[:backend] || :host)}
  end

  # Of carried states with and without a history, and of windows.
  defp sessions(model, count) do
    options = {[], [history: 4], [window: 3], [history: 2, window: 5, pad: :zeros]}
    for i <- 0..(count - 1), do: Policy.new_session!(model, elem(options, rem(i, 4)))
  end

  defp each(sessions, obs) do
    {:f32, _, all} = obs
    size = div(byte_size(all), length(sessions))

    for {session, i} <- Enum.with_index(sessions),
        into: <<>>,
        do: Policy.step!(session, binary_part(all, i * size, size))
  end

  # A new session, which goes on where the old one is.
  defp renewed(model, session, number) do
    [new | _] = model |> sessions(number + 1) |> Enum.reverse()
    Policy.restore!(new, Policy.snapshot!(session))
    new
  end

  defp states(sessions), do: Enum.map(sessions, &Policy.export_state!/1)

  backend_test "a group has the bits of separate steps and of a list", %{model: model} do
    for sessions <- [&sessions/2, fn model, n -> for(_ <- 1..n, do: Policy.new_session!(model)) end],
        count <- [1, 2, 9, 33] do
      [grouped, listed, separate] = for _ <- 1..3, do: sessions.(model, count)
      assert {:ok, %Group{size: ^count} = group} = Policy.group(grouped)

      for t <- 1..8 do
        {:f32, shape, all} = obs = Policies.frames(count, t)
        out = each(separate, obs)
        assert Policy.step_batch!(listed, all) == out

        assert Policy.step_batch(group, if(rem(t, 2) == 0, do: all, else: {:f32, shape, all})) ==
                 {:ok, if(rem(t, 2) == 0, do: out, else: {:f32, {count, 7}, out})}
      end

      assert states(grouped) == states(separate)
    end
  end

  backend_test "sessions of a group are ordinary ones", %{model: model} do
    [grouped, separate] = for _ <- 1..2, do: sessions(model, 8)
    group = Policy.group!(grouped)
    others = Policy.group!(grouped |> Enum.take_every(3) |> Enum.reverse())
    snapshots = {Policy.snapshot!(hd(grouped)), Policy.snapshot!(hd(separate))}

    for t <- 1..20 do
      obs = Policies.frames(8, t)
      assert Policy.step_batch!(group, elem(obs, 2)) == each(separate, obs)
      one = row(obs, 0)

      answers =
        for {all, snapshot} <- [{grouped, elem(snapshots, 0)}, {separate, elem(snapshots, 1)}] do
          lone = Policy.step!(Enum.at(all, rem(t, 8)), one)
          if rem(t, 3) == 0, do: Policy.rollback!(Enum.at(all, 5), 2)
          if rem(t, 4) == 0, do: Policy.resimulate!(Enum.at(all, 3), 1, one)
          if rem(t, 5) == 0, do: Policy.restore!(hd(all), snapshot)
          if rem(t, 6) == 0, do: Policy.prefill!(Enum.at(all, 2), elem(obs, 2))
          lone
        end

      assert [answer, answer] = answers
      three = elem(rows(obs, 0, 3), 2)
      some = separate |> Enum.take_every(3) |> Enum.reverse()
      assert Policy.step_batch!(others, three) == each(some, rows(obs, 0, 3))
      assert states(grouped) == states(separate)
    end
  end

  # A list that several calls had before is kept as a group, whatever the order of the lists between.
  backend_test "lists that come again have the bits of separate steps, also where sessions end", %{
    model: model
  } do
    separate = sessions(model, 6)

    Enum.reduce(1..8, sessions(model, 6), fn round, sessions ->
      for t <- 1..7, order <- [0..5, Enum.shuffle(0..5), 0..5] do
        obs = Policies.frames(6, 100 * round + t)
        pick = fn all -> for i <- order, do: Enum.at(all, i) end
        assert Policy.step_batch!(pick.(sessions), elem(obs, 2)) == each(pick.(separate), obs)
      end

      assert states(sessions) == states(separate)
      :erlang.garbage_collect()

      for {session, i} <- Enum.with_index(sessions),
          do: if(i == rem(round, 6), do: renewed(model, session, i), else: session)
    end)
  end

  # So many that a GPU computes their frames before the library knows that the list is the one of the calls before.
  # Some lists that begin with the same session are others.
  backend_test "long lists that come again, and others like them", %{backend: backend} do
    heads = [buttons: 8, main_x: 17, main_y: 17, c_x: 17, c_y: 17, shoulder: 5]
    {count, size} = {1024, 4 * 140}
    orders = %{usual: Enum.to_list(0..1023), other: Enum.to_list(0..1021) ++ [1023, 1022]}

    for kind <- [:gru, :lstm, :mamba1] do
      new =
        &Policy.init!(kind, d_input: 140, d_model: 34, heads: heads, layers: 2, seed: &1, backend: backend)

      {policy, stranger} = {new.(1), Policy.new_session!(new.(2))}
      [listed, separate] = for _ <- 1..2, do: for(_ <- 1..count, do: Policy.new_session!(policy))

      listed =
        Enum.reduce(1..24, listed, fn t, listed ->
          {:f32, _, frames} = obs = Policies.frames(count, t, 140)
          frame = &binary_part(frames, &1 * size, size)
          order = orders[if(rem(t, 8) == 6, do: :other, else: :usual)]

          [mine, others] =
            for all <- [List.to_tuple(listed), List.to_tuple(separate)], do: Enum.map(order, &elem(all, &1))

          if t in [7, 15] do
            before = Policy.export_state!(hd(mine))

            assert {:error, %Error{kind: :mismatch, argument: "sessions"}} =
                     Policy.step_batch(List.replace_at(mine, -1, stranger), frames)

            assert Policy.export_state!(hd(mine)) == before
          end

          if rem(t, 3) == 0 do
            right = for {session, i} <- Enum.with_index(others), do: Policy.act!(session, frame.(i))
            assert Policy.act_batch!(mine, frames) == right
          else
            assert Policy.step_batch!(mine, frames) == each(others, obs)
          end

          if t == 12,
            do: for(sessions <- [listed, separate], do: Policy.step!(Enum.at(sessions, 5), frame.(0)))

          if t == 20, do: List.update_at(listed, 9, &renewed(policy, &1, 0)), else: listed
        end)

      assert states(listed) == states(separate)
    end
  end

  # Every list of several sessions is guessed at, and no kernel of theirs computes anything: which calls answer, which are
  # errors, and that all end.
  @tag :fake_cuda
  test "lists that begin alike, are wrong, and come from several processes at once, beside a device" do
    output =
      FakeCuda.play(
        2,
        """
        other = Policy.new_session!(Policy.load!(path, backend: :cuda))
        sessions = for _ <- 1..4, do: Policy.new_session!(model)
        [first | rest] = sessions
        frame = fn count -> hd(frames) |> :binary.copy(count) end
        size = byte_size(hd(outs))
        kind = fn {:error, error} -> {error.kind, error.argument} end
        lists = [sessions, [first | Enum.reverse(rest)], [first | tl(rest)], rest]

        step = fn list -> byte_size(Policy.step_batch!(list, frame.(length(list)))) == size * length(list) end
        IO.inspect(for(list <- lists, _ <- 1..8, do: step.(list)) |> Enum.uniq())
        IO.inspect(for(_ <- 1..20, list <- lists, do: step.(list)) |> Enum.uniq())

        for _ <- 1..20, do: step.(sessions)
        wrong = fn list -> kind.(Policy.step_batch(list, frame.(4))) end
        IO.inspect(wrong.([first, hd(rest), Enum.at(rest, 1), other]))
        IO.inspect(wrong.([first, hd(rest), Enum.at(rest, 1), first]))
        IO.inspect(wrong.([first, hd(rest), Enum.at(rest, 1), :none]))
        IO.inspect(kind.(Policy.step_batch(sessions, frame.(3))))
        IO.inspect(kind.(Policy.act_batch(sessions, frame.(4))))
        infinite = binary_part(frame.(4), 0, byte_size(frame.(4)) - 4) <> <<0x7F800000::32-little>>
        IO.inspect(kind.(Policy.step_batch(sessions, infinite)))

        players = for(list <- lists, _ <- 1..2, do: fn -> step.(list) end) ++ [fn -> Policy.step_batch!([first], hd(frames)) != <<>> end]
        play = fn play -> Task.async(fn -> for(_ <- 1..60, do: play.()) |> Enum.uniq() end) end
        IO.inspect(players |> Enum.map(play) |> Task.await_many(:infinity) |> Enum.uniq())

        # One of them ends with each call.
        spawn = fn -> Task.await(Task.async(fn -> Policy.new_session!(model) end)) end
        IO.inspect(for(_ <- 1..30, do: step.([first, spawn.(), hd(rest)])) |> Enum.uniq())

        # It is the sessions of the list that go on, not those of the guess.
        [a, b, c, d] = for _ <- 1..4, do: Policy.new_session!(model, history: 4)
        for _ <- 1..10, do: step.([a, b, c])
        step.([a, b, d])
        IO.inspect({elem(Policy.rollback(d, 1), 0), kind.(Policy.rollback(d, 1))})
        """,
        [{"EXPHIL_NATIVE_POLICY", "team=1,inline_obs=0,batch_agents=1,guess=2,fused_limit=1"}]
      )

    assert output == """
           [true]
           [true]
           {:mismatch, "sessions"}
           {:invalid_argument, "sessions"}
           {:invalid_argument, "sessions"}
           {:invalid_argument, "obs"}
           {:unsupported, "sessions"}
           {:invalid_argument, "obs"}
           [[true]]
           [true]
           {:ok, {:limit_exceeded, "frames_back"}}
           """
  end

  # Such a call copies its terms, and of a longer list Elixir takes the references.
  test "a call of a list that is queued, and of a long one", %{model: model} do
    large = Policy.init!(:gru, d_input: 26, d_model: 256, layers: 2, heads: [out: 7], backend: :host)

    for {policy, count} <- [{large, 200}, {model, 4100}] do
      d_input = Policy.info!(policy).d_input
      [listed, grouped] = for _ <- 1..2, do: for(_ <- 1..count, do: Policy.new_session!(policy))
      group = Policy.group!(grouped)

      for t <- 1..6 do
        {:f32, _, obs} = Policies.frames(count, t, d_input)
        assert Policy.step_batch!(listed, obs) == Policy.step_batch!(group, obs)
      end

      before = Policy.export_state!(hd(listed))

      for wrong <- [
            [:one | listed],
            listed ++ [:one],
            [hd(listed) | {listed}],
            tl(listed) ++ [hd(grouped)] ++ :end
          ] do
        assert {:error, %Error{kind: :invalid_argument, argument: "sessions", message: message}} =
                 Policy.step_batch(wrong, <<0>>)

        assert message =~ "a list of sessions, or a group of them"
      end

      assert Policy.export_state!(hd(listed)) == before
    end
  end

  backend_test "a group keeps its sessions", %{model: model} do
    make = fn -> Task.await(Task.async(fn -> Policy.group!(sessions(model, 5)) end), :infinity) end
    group = make.()
    :erlang.garbage_collect()
    separate = sessions(model, 5)
    # Sessions that are made and dropped meanwhile would use the memory of those that are gone.
    for t <- 1..10 do
      obs = Policies.frames(5, t)
      each(sessions(model, 5), obs)
      assert Policy.step_batch!(group, elem(obs, 2)) == each(separate, obs)
    end
  end

  backend_test "invalid groups, and invalid calls of one", %{model: model, backend: backend} do
    [one, two] = sessions = for _ <- 1..2, do: Policy.new_session!(model)
    other = Policy.load!(Policies.checkpoint(seed: 2), backend: backend)
    stranger = Policy.new_session!(other)

    for {given, kind, words} <- [
          {[], :invalid_argument, "must not be empty"},
          {[one, two, one], :invalid_argument, "twice"},
          {[one, stranger], :mismatch, "session 1 is of another policy"},
          {[one, :two], :invalid_argument, "a list of sessions"},
          {[one | two], :invalid_argument, "a list of sessions"},
          {one, :invalid_argument, "a list of sessions"},
          {model, :invalid_argument, "a list of sessions"},
          {[%{one | ref: make_ref()}], :invalid_argument, "of another kind or of another node"}
        ] do
      assert {:error, %Error{kind: ^kind, argument: "sessions", message: message}} = Policy.group(given)
      assert message =~ words
      assert_raise Error, fn -> Policy.group!(given) end
    end

    group = Policy.group!(sessions)
    assert inspect(group) =~ "#ExPhil.Native.Policy.Group<2 sessions, #Reference<"
    before = states(sessions)
    {:f32, _, all} = Policies.frames(2)
    <<_::32, rest::binary>> = all

    for obs <- [<<>>, rest, all <> all, {:f32, {1, 26}, all}, {:f64, {2, 6}, all}, nil, <<-1::32>> <> rest] do
      assert {:error, %Error{kind: :invalid_argument, argument: "obs"}} =
               error = Policy.step_batch(group, obs)

      assert Policy.step_batch(sessions, obs) == error
      assert_raise Error, fn -> Policy.step_batch!(group, obs) end
    end

    assert {:error, %Error{kind: :unsupported, argument: "sessions"}} = Policy.act_batch(group, all)

    assert {:error, %Error{kind: :invalid_argument, argument: "sessions"}} =
             Policy.step_batch(%{group | ref: make_ref()}, all)

    # Neither is the other.
    assert {:error, %Error{argument: "session"}} = Policy.step(group, all)

    assert {:error, %Error{kind: :invalid_argument, argument: "sessions"}} =
             Policy.step_batch(%{group | ref: one.ref}, all)

    assert {:error, %Error{kind: :invalid_argument, argument: "sessions"}} =
             Policy.group([%{one | ref: group.ref}])

    assert states(sessions) == before

    assert Policy.step_batch!(group, all) ==
             each(for(_ <- 1..2, do: Policy.new_session!(model)), {:f32, {2, 13}, all})
  end

  backend_test "an update of the weights ends a group", %{backend: backend} do
    model = Policy.load!(Policies.checkpoint(), backend: backend)
    session = Policy.new_session!(model)
    group = Policy.group!([session])
    {:f32, _, obs} = Policies.frames(1)
    Policy.step_batch!(group, obs)
    Policy.update!(model, Safetensors.read!(Policies.checkpoint(seed: 2)))
    assert {:error, %Error{kind: :mismatch, argument: "sessions"}} = error = Policy.step_batch(group, obs)
    assert Policy.step_batch([session], obs) == error
    assert {:error, %Error{kind: :mismatch, argument: "sessions"}} = Policy.group([session])
  end

  # All rows are the same frame, so that a session's state is that of as many frames, whoever played them.
  backend_test "processes that share a group, a list in another order and a session lose no frame", %{
    model: model
  } do
    sessions = for i <- 1..6, do: Policy.new_session!(model, if(rem(i, 2) == 0, do: [history: 2], else: []))
    {:f32, _, obs} = Policies.frames(1)
    all = :binary.copy(obs, 6)
    group = Policy.group!(sessions)
    backwards = Policy.group!(Enum.reverse(sessions))

    players = [
      fn -> Policy.step_batch!(group, all) end,
      fn -> Policy.step_batch!(group, all) end,
      fn -> Policy.step_batch!(backwards, all) end,
      fn -> Policy.step_batch!(Enum.shuffle(sessions), all) end,
      fn -> for session <- sessions, do: Policy.step!(session, obs) end
    ]

    for(play <- players, do: Task.async(fn -> for _ <- 1..60, do: play.() end)) |> Task.await_many(:infinity)
    line = Policy.new_session!(model)
    Policy.prefill!(line, :binary.copy(obs, 299))
    Policy.step!(line, obs)
    last = Policy.step!(line, obs)
    assert Policy.step_batch!(group, all) |> relative_error(:binary.copy(last, 6)) <= 1.0e-5
    assert sessions |> Enum.map(&Policy.step!(&1, obs)) |> Enum.uniq() |> length() == 1
  end

  test "a group of sessions whose frames are gathered", %{model: model} do
    gathering = Policy.load!(Policies.checkpoint(), backend: :host, gather: true)
    sessions = for _ <- 1..4, do: Policy.new_session!(gathering)
    separate = for _ <- 1..4, do: Policy.new_session!(model)
    group = Policy.group!(sessions)

    for t <- 1..10 do
      obs = Policies.frames(4, t)
      assert Policy.step_batch!(group, elem(obs, 2)) == each(separate, obs)
      alone = Task.async(fn -> for(s <- sessions, into: <<>>, do: Policy.step!(s, row(obs, 0))) end)
      assert Task.await(alone) == for(s <- separate, into: <<>>, do: Policy.step!(s, row(obs, 0)))
    end
  end

  if Tensor.nx?() do
    test "a tensor gives a tensor", %{model: model} do
      group = Policy.group!(for _ <- 1..2, do: Policy.new_session!(model))
      {:f32, shape, all} = Policies.frames(2)
      obs = all |> Nx.from_binary(:f32) |> Nx.reshape(shape)
      assert %{shape: {2, 7}} = Policy.step_batch!(group, obs)
    end
  end
end
