defmodule ExPhil.Native.Policy.TrunksTest do
  # Every recorded policy of exphil/trunks: each of its files against what Axon computed, and each way to play it against lone steps
  # and `sample/3` over their outputs.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.Clock

  @moduletag :shared

  @sets ~w(gated_deltanet_e32_h32_w20 gru_e287_h256_w60 gru_e32_h32_w20 gru_fused_e32_h32_w20 lstm_e32_h32_w20 lstm_fused_e32_h32_w20
           mamba_2_e32_h32_w40 min_gru_e32_h32_w20 min_lstm_e32_h32_w20)
  # A policy with its heads as ExPhil and as Nx save it, and the trunk alone. The set of real size has the first one only.
  @files [
    {"policy.bin", "logits_batch1"},
    {"params.safetensors", "logits_batch1"},
    {"trunk.nx", "trunk_batch1"}
  ]
  # What the last two do not say; see docs/exphil.md.
  @silent %{"mamba_2_e32_h32_w40" => [dialect: :edifice_mamba_ssd, window: 40]}
  @rules [temperature: 0.6, seed: 11]

  defp file(set, name), do: Shared.file("exphil/trunks/#{set}/#{name}")
  defp io(set), do: Shared.read("exphil/trunks/#{set}/io.safetensors")

  defp load(set, backend, options \\ []),
    do: Policy.load!(file(set, "policy.bin"), [backend: backend] ++ options)

  # `count` frames from the recorded windows on, from frame `first`.
  defp frames(set, first, count) do
    {:f32, {8, _seq, width}, bytes} = io(set)["windows"]
    for t <- first..(first + count - 1), do: binary_part(bytes, t * width * 4, width * 4)
  end

  # The actions that the rules choose for the outputs of lone steps: the number of an action and the buttons of the one before it
  # are what a session remembers.
  defp chosen(policy, outs, rules) do
    {actions, _} =
      outs
      |> Enum.with_index()
      |> Enum.map_reduce(%{}, fn {out, number}, held ->
        action = Policy.sample!(policy, out, [frame: number, held: held] ++ rules)
        {action, action.buttons}
      end)

    actions
  end

  defp stepped(policy, frames, options) do
    session = Policy.new_session!(policy, options)
    for frame <- frames, do: Policy.step!(session, frame)
  end

  test "every folder of recorded trunks is here" do
    folders = for path <- Path.wildcard(Shared.file("exphil/trunks/*/policy.bin")), do: path
    assert Enum.map(folders, &(&1 |> Path.dirname() |> Path.basename())) == @sets
  end

  for set <- @sets do
    backend_test "#{set}: the windows of every file are what Axon computed", %{backend: backend} do
      set = unquote(set)
      %{"windows" => windows} = io = io(set)

      for {name, recorded} <- @files, path = file(set, name), File.exists?(path) do
        silent = if name == "policy.bin", do: [], else: Map.get(@silent, set, [])
        policy = Policy.load!(path, [backend: backend] ++ silent)
        assert {name, Policy.info!(policy).groups == []} == {name, recorded == "trunk_batch1"}
        assert relative_error(Policy.window!(policy, windows), io[recorded]) < 1.0e-5, name
      end
    end

    backend_test "#{set}: actions are those of the rules over the outputs of steps", %{backend: backend} do
      policy = load(unquote(set), backend)
      frames = frames(unquote(set), 0, 24)

      for state <- [[], [window: :none]],
          rules <- [@rules, [deterministic_buttons: true, hysteresis: {0.6, 0.4}, seed: 3]] do
        expected = chosen(policy, stepped(policy, frames, state), rules)
        session = Policy.new_session!(policy, state ++ rules ++ [history: 8])
        assert for(frame <- frames, do: Policy.act!(session, frame)) == expected

        # The last frames again, with the same numbers and the buttons held then.
        last = frames |> Enum.drop(17) |> IO.iodata_to_binary()
        assert Policy.resimulate_acts!(session, 7, last) == Enum.drop(expected, 17)
      end

      assert length(Enum.uniq(chosen(policy, stepped(policy, frames, []), @rules))) > 12
    end

    backend_test "#{set}: a batch chooses the actions of lone agents", %{backend: backend} do
      policy = load(unquote(set), backend)

      for state <- [[], [window: :none]] do
        options = fn agent -> state ++ [temperature: 0.6, seed: agent] end
        of_agent = for agent <- 0..4, do: frames(unquote(set), 5 * agent, 6)

        expected =
          for {frames, agent} <- Enum.with_index(of_agent) do
            session = Policy.new_session!(policy, options.(agent))
            for frame <- frames, do: Policy.act!(session, frame)
          end

        batch = fn sessions ->
          for rows <- Enum.zip(of_agent),
              do: Policy.act_batch!(sessions, rows |> Tuple.to_list() |> IO.iodata_to_binary())
        end

        sessions = fn -> for agent <- 0..4, do: Policy.new_session!(policy, options.(agent)) end
        assert batch.(sessions.()) == Enum.zip_with(expected, & &1)
        assert batch.(Policy.group!(sessions.())) == Enum.zip_with(expected, & &1)
      end
    end

    backend_test "#{set}: frames that are gathered have the answers of lone ones", %{backend: backend} do
      plain = load(unquote(set), backend)
      policy = load(unquote(set), backend, gather: true)

      played = fn policy, agent ->
        session = Policy.new_session!(policy, [window: :none, history: 2] ++ @rules)

        for {frame, t} <- Enum.with_index(frames(unquote(set), 3 * agent, 12)),
            do: if(rem(t, 2) == 0, do: Policy.act!(session, frame), else: Policy.step!(session, frame))
      end

      together = 0..15 |> Enum.map(&Task.async(fn -> played.(policy, &1) end)) |> Task.await_many(:infinity)

      assert together == for(agent <- 0..15, do: played.(plain, agent))
      assert Policy.info!(policy).gathered.frames == 16 * 12
    end

    backend_test "#{set}: frames at the ticks of the session's clock are plain frames", %{backend: backend} do
      policy = load(unquote(set), backend)
      frames = frames(unquote(set), 0, 8)

      for state <- [[], [window: :none]] do
        expected = chosen(policy, stepped(policy, frames, state), @rules)
        session = Policy.new_session!(policy, [fps: 200] ++ state ++ @rules)
        clock = Clock.start!(session)

        actions =
          for frame <- frames do
            Clock.wait(clock)
            Policy.act!(session, frame)
          end

        :ok = Clock.stop(clock)
        assert actions == expected
      end
    end
  end
end
