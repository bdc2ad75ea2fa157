// The walks of GRU and LSTM over 32 sequences of 60 frames on the GPU, and back, with each number of
// sequences of a team; 0: as the library chooses. Their checks are the tests of tag [gpu][recurrent].
//   make build/bench/gpu_recurrent
//   EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_recurrent [UNITS [SEQUENCES]]
// Events around a launch, after a fill of 256 MB that empties the L2. The numbers in memory are zeros.
#include <cstdio>
#include <cstdlib>

#include "bench/gpu_scan_cases.hpp"
#include "core/error.hpp"
#include "cuda/device/places.hpp"
#include "cuda/recurrent/walk.hpp"

namespace {

using namespace exphil;
using formulas::Cell;

constexpr long long kSeq = 60;
constexpr int kRuns = 201;

// Everything that a walk and the walk back read and write, as a policy has it.
class Operands {
 public:
  Operands(cuda::Context& context, Cell cell, int units, long long sequences) : context_(context) {
    forward.sequences = back.sequences = sequences;
    forward.seq = back.seq = kSeq, forward.units = back.units = units;
    const long long rows = sequences * kSeq;
    forward.sums_row = back.sums_row = units;
    forward.weights.u_unit = units, forward.weights.u_k = 1;
    for (int g = 0; g < formulas::gates_of(cell); ++g) {
      forward.weights.u[g] = take(units, units);
      forward.x[g] = back.x[g] = take(rows, units);
      back.h[g] = forward.h[g] = take(rows, units);
      back.d_x[g] = take(rows, units), back.d_h[g] = take(rows, units);
    }
    back.weights = forward.weights;
    for (int s = 0; s < formulas::states_of(cell); ++s) {
      back.before[s] = forward.before[s] = take(rows, units);
    }
    forward.out = take(rows, units), back.d_out = take(rows, units);
  }

  CUdeviceptr any() const { return buffers_.front().address(); }
  recurrent::WalkArguments forward{};
  recurrent::WalkBackArguments back{};

 private:
  float* take(long long rows, int units) {
    const std::size_t bytes = static_cast<std::size_t>(rows) * static_cast<std::size_t>(units) * 4;
    buffers_.push_back(context_.device_pool().allocate(bytes));
    context_.check(cuda::driver().cuMemsetD32Async(buffers_.back().address(), 0, bytes / 4, nullptr),
                   "cuMemsetD32Async");
    return cuda::as_pointer<float>(buffers_.back().address());
  }

  cuda::Context& context_;
  std::vector<cuda::DeviceBuffer> buffers_;
};

void time_cell(cuda::Context& context, const char* name, Cell cell, int units, long long sequences) {
  const Operands operands(context, cell, units, sequences);
  bench::Timer timer(context);
  const cuda::DeviceBuffer unused = context.device_pool().allocate(4);
  for (int rows = 0; rows <= 4; ++rows) {
    cuda::RecurrentTuning tuning;
    tuning.rows = rows;
    const auto time = [&](const auto& enqueue) {
      return timer.median_us(kRuns, enqueue, unused.address(), unused.bytes());
    };
    const double forward = time(
        [&](int, CUstream stream) { cuda::enqueue_walk(context, stream, cell, operands.forward, tuning); });
    const double back = time(
        [&](int, CUstream stream) { cuda::enqueue_walk_back(context, stream, cell, operands.back, tuning); });
    const cuda::RecurrentPlan plan =
        cuda::plan_walk(context.properties(), cuda::Walk::forward, cell, units, sequences, tuning);
    std::printf("%-5s %4d units, %4lld sequences, teams of %d, %d a team: walk %7.1f us, back %7.1f us%s\n",
                name, units, sequences, plan.team, plan.rows, forward, back, rows == 0 ? "  (chosen)" : "");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int units = argc > 1 ? std::atoi(argv[1]) : 256;
    const long long sequences = argc > 2 ? std::atoll(argv[2]) : 32;
    const auto context = cuda::Context::open(0);
    const cuda::ContextGuard guard(*context);
    std::printf("%s\n", context->properties().name.c_str());
    time_cell(*context, "gru", Cell::gru, units, sequences);
    time_cell(*context, "lstm", Cell::lstm, units, sequences);
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
