# A policy step with rollback: mix run examples/rollback.exs
#
# Netcode predicts the other player's input and goes back a few frames when it was wrong. The agent keeps a snapshot
# from before each of the last frames, restores the right one, and steps again with the real input.
alias ExPhil.Native.Policy
alias ExPhil.Native.Tools.Demo

folder = Path.join(System.tmp_dir!(), "exphil_native_example_#{System.pid()}")
{path, _} = Demo.write(folder, frames: 1)
{:ok, policy} = Policy.load(path)
{:ok, session} = Policy.new_session(policy)

%{"obs" => {:f32, {20, width}, obs}} = Demo.frames(20)
frames = for <<frame::binary-size(width * 4) <- obs>>, do: frame

# Frames 0 to 19 as predicted, with a snapshot before each of the last 7.
{answers, snapshots} =
  frames
  |> Enum.with_index()
  |> Enum.map_reduce(%{}, fn {frame, number}, snapshots ->
    {:ok, snapshot} = Policy.snapshot(session)
    {:ok, answer} = Policy.step(session, frame)
    {answer, snapshots |> Map.put(number, snapshot) |> Map.delete(number - 7)}
  end)

# Frame 15 was wrong: go back, and play 15 to 19 again. Here the frames are the same, so the bits must be too.
{:ok, _} = Policy.restore(session, snapshots[15])
again = for frame <- Enum.drop(frames, 15), do: Policy.step!(session, frame)

true = again == Enum.drop(answers, 15)
IO.puts("rolled back 5 frames; the replayed answers are the same bits")
File.rm_rf!(folder)
