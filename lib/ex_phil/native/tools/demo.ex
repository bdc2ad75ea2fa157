defmodule ExPhil.Native.Tools.Demo do
  @moduledoc """
  A policy and an observation stream generated from a seed, so that there is something to play without a download.

  The policy is an untrained Mamba, as `ExPhil.Native.Policy.init/2` makes it: its answers are meaningless, but its shapes, its cost
  and its numerical range are those of a trained one. The stream resembles two characters of a platform fighter: positions
  that move smoothly, one-hot action buckets, a controller.

  The same seed gives the same bytes on every run and every machine. `mix exphil.play`, the examples and the tests
  use it. Every function but `write/2` returns the same for the same arguments, and does nothing else.
  """

  alias ExPhil.Native.{Policy, Safetensors}

  @typedoc "A tensor as `{type, shape, binary}`; see `ExPhil.Native.Tensor`."
  @type tensor :: {atom(), tuple(), binary()}

  @d_input 287
  @d_output 64
  @d_model 256
  @n_layer 2
  @actions 128

  @doc "Floats in one observation of `frames/2`, the input size of `policy/1`."
  @spec d_input() :: pos_integer()
  def d_input, do: @d_input

  @doc """
  The tensors of a policy by their checkpoint names: 2 layers, d_model 256, state 16, 287 inputs, 64 outputs.

      iex> tensors = ExPhil.Native.Tools.Demo.policy(1)
      iex> {:f32, {512, 16}, _} = tensors["backbone.layers.1.mixer.A_log"]
      iex> map_size(tensors)
      25
  """
  @spec policy(seed :: integer()) :: %{String.t() => tensor()}
  def policy(seed \\ 1) do
    sizes = [d_input: @d_input, d_output: @d_output, d_model: @d_model, layers: @n_layer]
    :mamba1 |> Policy.init!(sizes ++ [seed: seed, backend: :host]) |> Policy.weights!()
  end

  @doc """
  `count` observations: `"obs"` {count, 287} f32 and `"frame"` {count} s32, as in a recorded match.

      iex> %{"obs" => {:f32, {3, 287}, obs}, "frame" => {:s32, {3}, _}} = ExPhil.Native.Tools.Demo.frames(3)
      iex> byte_size(obs)
      3444
  """
  @spec frames(count :: non_neg_integer(), seed :: integer()) :: %{String.t() => tensor()}
  def frames(count, seed \\ 1) do
    start = {player(-40.0), player(40.0), List.duplicate(0.0, 9), random(seed)}

    {obs, _} =
      Enum.reduce(List.duplicate(:frame, count), {<<>>, start}, fn :frame, {obs, scene} ->
        {one, two, controller, _} = scene = advance(scene)
        {<<obs::binary, encode(one)::binary, encode(two)::binary, floats(controller)::binary>>, scene}
      end)

    numbers = for n <- 0..(count - 1)//1, into: <<>>, do: <<n::32-signed-little>>
    %{"obs" => {:f32, {count, @d_input}, obs}, "frame" => {:s32, {count}, numbers}}
  end

  @doc """
  Writes `policy.safetensors` and `frames.safetensors` into `folder` and returns their paths.

  Options: `:seed` (1) and `:frames` (600, ten seconds at 60 FPS).
  """
  @spec write(Path.t(), keyword()) :: {policy :: Path.t(), frames :: Path.t()}
  def write(folder, options \\ []) do
    options = Keyword.validate!(options, seed: 1, frames: 600)
    File.mkdir_p!(folder)
    policy = Path.join(folder, "policy.safetensors")
    frames = Path.join(folder, "frames.safetensors")
    write_by_rename(policy, policy(options[:seed]))
    write_by_rename(frames, frames(options[:frames], options[:seed]))
    {policy, frames}
  end

  # By rename, so that another process never reads an incomplete file.
  defp write_by_rename(path, tensors) do
    part = "#{path}.#{System.pid()}.#{System.unique_integer([:positive])}"
    :ok = Safetensors.write(part, tensors)
    File.rename!(part, path)
  end

  # ---- the stream: two characters that wander, jump, get hit and lose stocks -------------------------------

  defp player(x) do
    %{
      x: x,
      y: 0.0,
      vx: 0.0,
      vy: 0.0,
      percent: 0.0,
      shield: 60.0,
      stocks: 4,
      jumps: 2,
      action: 0,
      since: 0,
      lasts: 1
    }
  end

  defp advance({one, two, controller, random}) do
    {one, random} = move(one, two.x, random)
    {two, random} = move(two, one.x, random)
    {controller, random} = Enum.map_reduce(controller, random, &drift/2)
    {one, two, controller, random}
  end

  defp move(player, rival_x, random) do
    {player, random} = choose_action(player, random)
    {push, random} = :rand.uniform_s(random)
    {hit, random} = :rand.uniform_s(random)
    # Attracted by the rival and the middle of the stage, slowed by friction.
    vx = 0.92 * player.vx + 1.2 * (push - 0.5) + 0.002 * (rival_x - player.x) - 0.001 * player.x
    vy = if player.y > 0.0 or player.vy > 0.0, do: player.vy - 0.09, else: 0.0
    y = max(player.y + vy, 0.0)
    landed = y == 0.0 and vy <= 0.0
    percent = player.percent + if(hit < 0.01, do: 9.0, else: 0.0)
    player = %{player | x: player.x + vx, y: y, vx: vx, vy: if(landed, do: 0.0, else: vy), percent: percent}
    player = %{player | jumps: if(landed, do: 2, else: player.jumps), since: player.since + 1}
    {lose_stock(%{player | shield: shield(player)}), random}
  end

  defp choose_action(%{since: since, lasts: lasts} = player, random) when since < lasts, do: {player, random}

  defp choose_action(player, random) do
    {action, random} = :rand.uniform_s(@actions, random)
    {lasts, random} = :rand.uniform_s(36, random)
    player = %{player | action: action - 1, since: 0, lasts: lasts + 4}
    jumps? = rem(action, 6) == 0 and player.jumps > 0
    {if(jumps?, do: %{player | vy: 2.4, jumps: player.jumps - 1}, else: player), random}
  end

  defp shield(%{action: action, shield: shield}) when rem(action, 9) == 0, do: max(shield - 0.28, 0.0)
  defp shield(%{shield: shield}), do: min(shield + 0.07, 60.0)

  defp lose_stock(%{percent: percent, stocks: stocks} = player) when percent > 140.0 do
    %{
      player
      | percent: 0.0,
        stocks: if(stocks > 1, do: stocks - 1, else: 4),
        x: 0.0,
        y: 30.0,
        vx: 0.0,
        vy: 0.0
    }
  end

  defp lose_stock(player), do: player

  # A stick or a trigger: a first-order lag towards a random target, within [-1, 1].
  defp drift(value, random) do
    {target, random} = :rand.uniform_s(random)
    {0.8 * value + 0.2 * (2 * target - 1), random}
  end

  # 11 numbers of about unit size, then one of 128 action buckets.
  defp encode(player) do
    facing = if player.vx < 0, do: -1.0, else: 1.0
    airborne = if player.y > 0.0, do: 1.0, else: 0.0

    numbers = [
      player.x / 100,
      player.y / 100,
      facing,
      player.percent / 100,
      player.shield / 60,
      player.stocks / 4,
      player.jumps / 2,
      airborne,
      player.since / 60,
      player.vx / 5,
      player.vy / 5
    ]

    before = 4 * player.action
    rest = 4 * (@actions - 1) - before
    <<floats(numbers)::binary, 0::unit(8)-size(before), 1.0::float-32-little, 0::unit(8)-size(rest)>>
  end

  defp floats(values), do: for(value <- values, into: <<>>, do: <<value::float-32-little>>)

  # exsss is one fixed algorithm, unlike the default of :rand, which may change with Erlang.
  defp random(seed), do: :rand.seed_s(:exsss, seed)
end
