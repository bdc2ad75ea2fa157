# An agent at 60 FPS, as a process with its own frame loop: mix run examples/real_time_loop.exs
#
# Its clock says when a frame comes; a game would have the observation then. The agent answers with 64 logits, long before the
# next frame. Where the game sends its frames instead, as in the README's Bot, the session needs no clock.
alias ExPhil.Native.{Clock, Policy}
alias ExPhil.Native.Tools.Demo

folder = Path.join(System.tmp_dir!(), "exphil_native_example_#{System.pid()}")
{path, _} = Demo.write(folder, frames: 1)
%{"obs" => {:f32, {120, width}, obs}} = Demo.frames(120)
frames = for <<frame::binary-size(width * 4) <- obs>>, do: frame

{:ok, policy} = Policy.load(path)
{:ok, session} = Policy.new_session(policy, fps: 60)
{:ok, clock} = Clock.start(session)

times =
  for frame <- frames do
    Clock.wait(clock)
    {microseconds, {:ok, logits}} = :timer.tc(fn -> Policy.step(session, frame) end)
    # The first 17 logits are the bins of the main stick's x axis; the largest is chosen.
    bins = for <<logit::float-32-little <- binary_part(logits, 0, 17 * 4)>>, do: logit
    _stick_x = Enum.find_index(bins, &(&1 == Enum.max(bins))) / 8 - 1.0
    microseconds
  end

:ok = Clock.stop(clock)
IO.puts("#{length(times)} frames, median step #{times |> Enum.sort() |> Enum.at(div(length(times), 2))} us")
File.rm_rf!(folder)
