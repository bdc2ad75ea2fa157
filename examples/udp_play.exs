# A policy plays a game that runs in another OS process and sends its frames by UDP: mix run examples/udp_play.exs
#
# The game is a small program that takes the place of a real one. It sends an observation every 16.67 ms. Some are
# lost, some arrive twice, and some arrive after the next one. It counts the actions that reach it before the next
# frame is due.
#
# The agent follows ExPhil's rules: each frame number is played once, a repeated one is answered with the same
# action, and a frame older than the last one is not played. A lost frame is missing in the policy's window.
alias ExPhil.Native.{Policy, Safetensors}

game = ~S"""
[port, width, count] = Enum.map(System.argv(), &String.to_integer/1)
{:ok, socket} = :gen_udp.open(0, [:binary, active: true])
period = 16_667
now = fn -> System.monotonic_time(:microsecond) end
start = now.() + period
due = fn n -> start + n * period end

send_frame = fn n ->
  obs = for i <- 1..width, into: <<>>, do: <<:math.sin(n / 20 + i)::float-32-little>>
  :gen_udp.send(socket, {127, 0, 0, 1}, port, <<n::32, obs::binary>>)
end

# Counts the actions that arrive until `time`; sends the frame that a message names.
wait = fn wait, time, in_time ->
  receive do
    {:udp, ^socket, _, _, <<n::32, _action::binary>>} ->
      wait.(wait, time, if(now.() < due.(n + 1), do: MapSet.put(in_time, n), else: in_time))

    {:late, n} ->
      send_frame.(n)
      wait.(wait, time, in_time)
  after
    max(0, div(time - now.(), 1000)) -> in_time
  end
end

in_time =
  Enum.reduce(0..(count - 1), MapSet.new(), fn n, in_time ->
    in_time = wait.(wait, due.(n), in_time)

    cond do
      rem(n, 20) == 13 -> :lost
      rem(n, 30) == 17 -> Process.send_after(self(), {:late, n}, 25)
      rem(n, 15) == 7 -> Enum.each(1..2, fn _ -> send_frame.(n) end)
      true -> send_frame.(n)
    end

    in_time
  end)

# Says that the game has ended, until the agent says so too: it has played all that came before. At most a minute.
ended = fn ended, in_time, left ->
  :gen_udp.send(socket, {127, 0, 0, 1}, port, "end")
  in_time = wait.(wait, now.() + 3 * period, in_time)

  receive do
    {:udp, ^socket, _, _, "end"} -> in_time
  after
    0 -> if left == 0, do: in_time, else: ended.(ended, in_time, left - 1)
  end
end

in_time = ended.(ended, wait.(wait, due.(count), in_time), 1200)
IO.puts("game: #{count} frames, #{MapSet.size(in_time)} actions before the next frame was due")
"""

defmodule UdpAgent do
  alias ExPhil.Native.Policy

  # What each frame was, how long the policy took, and the last frame with its answer.
  defstruct session: nil,
            socket: nil,
            last: -1,
            answer: nil,
            played: 0,
            repeated: 0,
            late: 0,
            lost: 0,
            times: []

  def run(session, socket, port), do: run(%__MODULE__{session: session, socket: socket}, port)

  defp run(agent, port) do
    receive do
      {:udp, _, address, from, <<number::32, obs::binary>>} ->
        agent = frame(agent, number, obs)
        if number == agent.last, do: :gen_udp.send(agent.socket, address, from, agent.answer)
        run(agent, port)

      {:udp, _, address, from, "end"} ->
        :gen_udp.send(agent.socket, address, from, "end")
        run(agent, port)

      {^port, {:data, line}} ->
        IO.write(line)
        run(agent, port)

      {^port, {:exit_status, 0}} ->
        agent
    end
  end

  defp frame(%{last: last} = agent, last, _), do: %{agent | repeated: agent.repeated + 1}

  defp frame(%{last: last} = agent, n, _) when n < last,
    do: %{agent | late: agent.late + 1, lost: agent.lost - 1}

  defp frame(agent, n, obs) do
    {microseconds, action} = :timer.tc(fn -> Policy.act!(agent.session, obs) end)
    if rem(n, 30) == 0, do: IO.puts("frame #{n}: #{describe(action)}, #{microseconds} us")

    %{
      agent
      | last: n,
        answer: <<n::32, encode(action)::binary>>,
        played: agent.played + 1,
        lost: agent.lost + n - agent.last - 1,
        times: [microseconds | agent.times]
    }
  end

  defp encode(action) do
    {x, y} = action.main
    pressed = for {_button, on} <- Enum.sort(action.buttons), into: <<>>, do: <<if(on, do: 1, else: 0)>>
    <<pressed::binary, x::float-32-little, y::float-32-little>>
  end

  defp describe(action) do
    {x, y} = action.main
    pressed = for {button, true} <- action.buttons, do: button
    "buttons #{inspect(pressed)}, main stick #{x}, #{y}"
  end
end

# An untrained policy of ExPhil's shape, as its safetensors export would be: in practice, a file that ExPhil saved.
{width, model, inner, state, rank} = {24, 32, 64, 8, 2}

layers = [
  {"input_projection", {width, model}},
  {"mamba_block_1_in_proj", {model, 2 * inner}},
  {"mamba_block_1_ssm_bc_proj", {inner, 2 * state}},
  {"mamba_block_1_ssm_dt_rank", {inner, rank}},
  {"mamba_block_1_ssm_dt_proj", {rank, inner}},
  {"mamba_block_1_out_proj", {inner, model}},
  {"mamba_block_1_conv_dw_conv", {4, 1, inner}}
]

heads =
  for {name, outs} <- [buttons: 8, main_x: 17, main_y: 17, c_x: 17, c_y: 17, shoulder: 5], do: {name, outs}

hidden = for {name, _} <- heads, do: {"#{name}_hidden", {model, 16}}
logits = for {name, outs} <- heads, do: {"#{name}_logits", {16, outs}}
:rand.seed(:exsss, 60)

random = fn shape, scale ->
  {:f32, shape,
   for(_ <- 1..Tuple.product(shape), into: <<>>, do: <<scale * :rand.normal()::float-32-little>>)}
end

tensors =
  for {name, shape} <- layers ++ hidden ++ logits, reduce: %{} do
    all ->
      bias = {elem(shape, tuple_size(shape) - 1)}
      inputs = div(Tuple.product(shape), elem(bias, 0))

      Map.merge(all, %{
        "#{name}.kernel" => random.(shape, 1 / :math.sqrt(inputs)),
        "#{name}.bias" => random.(bias, 0.1)
      })
  end
  |> Map.put("mamba_block_1_norm.gamma", {:f32, {model}, :binary.copy(<<1.0::float-32-little>>, model)})
  |> Map.put("mamba_block_1_norm.beta", random.({model}, 0.1))

path = Path.join(System.tmp_dir!(), "exphil_native_udp_#{System.pid()}.safetensors")
:ok = Safetensors.write(path, tensors)
policy = Policy.load!(path, dialect: :edifice_mamba, window: 20)
File.rm!(path)

session = Policy.new_session!(policy, seed: 1)
{:ok, socket} = :gen_udp.open(0, [:binary, active: true])
{:ok, own} = :inet.port(socket)
arguments = ["-e", game] ++ Enum.map([own, width, 120], &Integer.to_string/1)

port =
  Port.open({:spawn_executable, System.find_executable("elixir")}, [:binary, :exit_status, args: arguments])

agent = UdpAgent.run(session, socket, port)
median = agent.times |> Enum.sort() |> Enum.at(div(length(agent.times), 2))

IO.puts(
  "agent: #{agent.played} frames played, #{agent.repeated} repeated, #{agent.late} late, #{agent.lost} lost, " <>
    "median act #{median} us"
)
