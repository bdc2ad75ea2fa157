defmodule ExPhil.Native.TestSupport.FakeCuda do
  @moduledoc false
  # The fake driver of the C++ tests (test/c_src/cuda/fake_cuda.cpp) under a VM of its own. A policy's step is a simple
  # one there; the other kernels do nothing, so that only steps of one session have answers.

  alias ExPhil.Native.TestSupport.Peer

  @library Path.expand("build/libfake_cuda.so")

  @doc "Runs code there. `variables` are further ones of the environment, as FAKE_CUDA_DELAY and FAKE_CUDA_LOST."
  def run(code, variables \\ []), do: Peer.peer(code, variables ++ environment())

  @doc "Whether the fake driver is built, and NVRTC is there."
  def available? do
    File.exists?(@library) and
      match?({"true" <> _, 0}, run("IO.puts(ExPhil.Native.info().backends.cuda.available)"))
  end

  defp environment do
    [
      {"EXPHIL_NATIVE_LIBCUDA", @library},
      {"EXPHIL_NATIVE_CACHE", Path.expand("build/kernel_cache")},
      {"EXPHIL_NATIVE_POLICY", "team=1,inline_obs=0,batch_agents=1"},
      {"FAKE_CUDA_STEPS", "1"} | Peer.library()
    ]
  end
end
