defmodule ExPhil.Native.TestSupport.FakeCuda do
  @moduledoc false
  # The fake driver of the C++ tests (test/c_src/cuda/fake_cuda.cpp) under a VM of its own. A policy's step is a simple
  # one there; the other kernels do nothing, so that only steps of one session have answers.

  import ExUnit.Assertions

  alias ExPhil.Native.TestSupport.{Peer, Policies}

  defp fake_library, do: Path.join(Peer.build(), "libfake_cuda.so")

  @doc "Runs code there. `variables` are further ones of the environment, as FAKE_CUDA_DELAY and FAKE_CUDA_LOST, or other values."
  def run(code, variables \\ []), do: Peer.peer(code, environment() ++ variables)

  # What the code of play/3 finds: a model, frames, a plain session's answers to them by calls that wait, and its state.
  @prelude """
  alias ExPhil.Native.{Clock, Policy}
  model = Policy.load!(path, backend: :cuda)
  %{d_input: d_input} = Policy.info!(model)
  frames = for k <- 1..count, do: for(i <- 1..d_input, into: <<>>, do: <<:math.sin(k * i)::float-32-little>>)
  plain = Policy.new_session!(model)
  outs = for frame <- frames, do: Policy.step_batch!([plain], frame)
  state = Policy.export_state!(plain)
  """

  @doc """
  What code prints there that plays a small policy: it finds `model`, `count` `frames`, and the `outs` and the `state` that are right.
  Fails where the VM does.
  """
  def play(count, code, variables \\ []) do
    given = "path = #{inspect(Policies.checkpoint())}\ncount = #{count}\n"
    {output, status} = run(given <> @prelude <> code, variables)
    assert {status, output} == {0, output}
    output
  end

  @doc "Whether the fake driver is built, and NVRTC is there."
  def available? do
    File.exists?(fake_library()) and
      match?({"true" <> _, 0}, run("IO.puts(ExPhil.Native.info().backends.cuda.available)"))
  end

  defp environment do
    [
      {"EXPHIL_NATIVE_LIBCUDA", fake_library()},
      {"EXPHIL_NATIVE_CACHE", Path.join(Peer.build(), "kernel_cache")},
      {"EXPHIL_NATIVE_POLICY", "team=1,inline_obs=0,batch_agents=1"},
      {"FAKE_CUDA_STEPS", "1"} | Peer.library()
    ]
  end
end
