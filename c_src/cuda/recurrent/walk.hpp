// Gated recurrences (GRU, LSTM, minGRU, minLSTM: kernels/common/cells.cuh) over whole sequences on a CUDA
// device, and their gradient: one launch each, on device memory, without synchronisation
// (kernels/recurrent/arguments.cuh has the layouts). Used by the gradient of policies. Any thread, with the
// context current.
//
// The same arguments give the same bits in every run. Results of a sequence have the same bits in any batch.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/recurrent/arguments.cuh"

namespace exphil::cuda {

// Values that a test or a benchmark may force; those left out are chosen. Only `team` may change bits.
struct RecurrentTuning {
  int team = 0, rows = 0;
  int held = -1;  // recurrent::Held
  // All threads wait at barriers where some need only come: for racecheck, which reports hazards otherwise.
  bool meets = false;
};

// How walk.cu (back: walk_back.cu) is compiled and launched for a recurrent cell.
struct RecurrentPlan {
  int team = 1, rows = 1;
  int threads = 32, gates = 32;  // of a block: that multiply, and that compute gates
  int product_registers = 0;     // of a thread that multiplies, where it takes some of the others'
  recurrent::Held held = recurrent::kInL2;
  std::size_t shared_bytes = 0;  // of a block
  std::int64_t blocks = 0;
  KernelSpec spec;
};

enum class Walk { forward, back };

// Throws limit_exceeded for units whose state does not fit in a block's shared memory.
RecurrentPlan plan_walk(const DeviceProperties& device, Walk direction, formulas::Cell cell, int units,
                        std::int64_t sequences, const RecurrentTuning& tuning = {});

// The first call with a plan's kernel compiles it. Beside the launch before it a walk reads weights, biases
// and initial states, which that one then must not write; back it begins after.
void enqueue_walk(Context& context, CUstream stream, formulas::Cell cell,
                  const recurrent::WalkArguments& arguments, const RecurrentTuning& tuning = {},
                  Begin begin = Begin::after);
void enqueue_walk_back(Context& context, CUstream stream, formulas::Cell cell,
                       const recurrent::WalkBackArguments& arguments, const RecurrentTuning& tuning = {});

// Each kernel in each form, for the test that compiles them.
std::vector<KernelSpec> recurrent_kernel_variants();

}  // namespace exphil::cuda
