# Decides which tests this machine can run, and prints which are excluded and why. Tags:
#   :gpu       needs a CUDA device that this build can use
#   :shared    needs the shared data: ../shared from the project's root, or EXPHIL_SHARED
#   :property  needs PropEr
#   :cc        needs a C compiler
#   :prlimit   needs prlimit
#   :gnuplot   needs gnuplot
#   :nx        needs the real Nx
#   :axon      needs Axon
#   :bound     needs a VM that can bind its schedulers to cores
#   :latency   measures time, when nothing else of the tests runs: `make test_latency` runs it
#   :either    takes seconds and runs the same code with and without the CUDA backend: `make test_without_cuda` leaves it out
#   :nodes     needs other VMs as nodes: OTP's :peer and epmd
#   :fake_cuda needs the fake driver of the C++ tests, and NVRTC
alias ExPhil.Native.TestSupport.{FakeCuda, FleetNodes, Properties, Shared}
alias ExPhil.Native.Tools.Machine

info = ExPhil.Native.info()

unless info.nif.loaded do
  IO.puts(:stderr, "The native library is not loaded: #{info.nif.reason}")
  System.halt(1)
end

cuda = info.backends.cuda

left_out =
  [
    {:gpu, not cuda.available, "no CUDA device: #{cuda.reason}"},
    {:shared, Shared.path() == nil, "the shared data is neither in ../shared nor where EXPHIL_SHARED points"},
    {:property, not Properties.available?(), "PropEr is not installed (Debian: erlang-proper)"},
    {:cc, System.find_executable("cc") == nil, "no C compiler"},
    {:prlimit, System.find_executable("prlimit") == nil, "prlimit is not installed (Debian: util-linux)"},
    {:gnuplot, System.find_executable("gnuplot") == nil, "gnuplot is not installed (Debian: gnuplot-nox)"},
    {:nx, not ExPhil.Native.Tensor.nx?(), "Nx is not available"},
    {:axon, not Code.ensure_loaded?(Axon), "Axon is not available"},
    {:bound, not Machine.can_bind?(),
     "this VM knows no CPU topology, as where there is no /sys, and cannot bind its schedulers"},
    {:nodes, FleetNodes.unavailable() != nil, FleetNodes.unavailable()},
    {:fake_cuda, not FakeCuda.available?(),
     "build/libfake_cuda.so is missing (make build/c_src_tests), or NVRTC"}
  ]
  |> Enum.filter(fn {_tag, missing?, _why} -> missing? end)

for {tag, _, why} <- left_out, do: IO.puts("Leaving out tests tagged #{inspect(tag)}: #{why}")

# Only what hangs reaches these limits, on however slow and busy a machine: no test waits for a time, and none measures
# one, except those of latency.
ExUnit.start(
  exclude: [:latency | for({tag, _, _} <- left_out, do: tag)],
  timeout: 1_800_000,
  assert_receive_timeout: 600_000
)
