# An agent at 60 FPS, as a process: mix run examples/real_time_loop.exs
#
# The game would send each frame; a timer does here. The agent answers with 64 logits, long before the next frame.
alias ExPhil.Native.Policy
alias ExPhil.Native.Tools.Demo

defmodule Bot do
  use GenServer

  def init({path, frames}) do
    {:ok, policy} = Policy.load(path, backend: :auto)
    {:ok, session} = Policy.new_session(policy)
    :timer.send_interval(16, :frame)
    {:ok, %{session: session, frames: frames, times: []}}
  end

  def handle_info(:frame, %{frames: [frame | frames]} = bot) do
    {microseconds, {:ok, logits}} = :timer.tc(fn -> Policy.step(bot.session, frame) end)
    # The first 17 logits are the bins of the main stick's x axis; the largest is chosen.
    bins = for <<logit::float-32-little <- binary_part(logits, 0, 17 * 4)>>, do: logit
    _stick_x = Enum.find_index(bins, &(&1 == Enum.max(bins))) / 8 - 1.0
    {:noreply, %{bot | frames: frames, times: [microseconds | bot.times]}}
  end

  def handle_info(:frame, bot), do: {:stop, {:shutdown, {:played, bot.times}}, bot}
end

folder = Path.join(System.tmp_dir!(), "exphil_native_example_#{System.pid()}")
{path, _} = Demo.write(folder, frames: 1)
%{"obs" => {:f32, {120, width}, obs}} = Demo.frames(120)
frames = for <<frame::binary-size(width * 4) <- obs>>, do: frame

{:ok, bot} = GenServer.start(Bot, {path, frames})
reference = Process.monitor(bot)

receive do
  {:DOWN, ^reference, :process, _, {:shutdown, {:played, times}}} ->
    sorted = Enum.sort(times)
    IO.puts("#{length(times)} frames, median step #{Enum.at(sorted, div(length(sorted), 2))} us")
end

File.rm_rf!(folder)
