defmodule ExPhil.Native.PlayBesideTest do
  # Sixteen agents at 60 FPS beside processes that scan without a pause. Before scans had threads of their own nine
  # frames of ten were late here, the hundredth of the steps that took longest 148 ms. `make test` runs it
  # when nothing else runs. The bounds are wide for machines with other work; without any, no frame is late
  # (bench/results/play_beside_scans.md).
  use ExPhil.Native.TestSupport.BackendCase, async: false

  alias ExPhil.Native.TestSupport.PlayBeside

  @moduletag :alone

  test "beside scans most frames are on time" do
    path = Policies.checkpoint(d_model: 128, d_inner: 256, d_state: 16, n_layer: 4)
    model = Mamba.load!(path, backend: :host)
    %{d_input: d_input} = Mamba.info(model)

    loops = PlayBeside.start(PlayBeside.scan(8, 1024, 512, 16, :host), 4)
    frames = PlayBeside.play(model, 16, 10, PlayBeside.floats(d_input + 1) |> binary_part(0, 4 * d_input))
    scans = PlayBeside.stop(loops)

    assert length(frames) == 16 * 600
    # The scans went on while the agents played.
    assert scans > 0.0

    steps = frames |> Enum.map(&elem(&1, 0)) |> Enum.sort()
    late = Enum.count(frames, fn {_, _, answered} -> answered > PlayBeside.frame() end)
    assert Enum.at(steps, div(9 * length(steps), 10)) < PlayBeside.frame()
    assert late <= div(length(frames), 10)
  end
end
