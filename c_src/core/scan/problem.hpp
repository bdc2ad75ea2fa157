// A selective scan, validated. `validate_scan` turns the caller's tensors and options into a ScanProblem or
// throws; backends take only ScanProblems and check nothing again. Plain data: safe to share while the
// caller's tensors live.
//
// Shapes and the recurrence are those of the README and of Gu & Dao, "Mamba" (2023), section 3.2:
//   dt' = clip(softplus(dt + dt_bias)); h_t = Abar h_(t-1) + Bbar x_t; y_t = <C_t, h_t> + D x_t; y_t *=
//   silu(z_t)
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "core/direction.hpp"
#include "core/limits.hpp"
#include "core/tensor.hpp"
#include "kernels/common/formulas.cuh"

namespace exphil::core {

// Which way time is cut. automatic: the backend decides by shape. Forced values are for tests and benchmarks.
enum class ScanAlgorithm { automatic, sequential, chunked };

struct ScanInputs {
  TensorView x, dt, a, b, c;
  std::optional<TensorView> d, z, dt_bias, initial_state;
};

struct ScanOptions {
  formulas::Discretization discretization = formulas::Discretization::zoh;
  bool dt_softplus = false;
  // dt' is clamped to [dt_min, dt_max], applied last.
  float dt_min = -std::numeric_limits<float>::infinity();
  float dt_max = std::numeric_limits<float>::infinity();
  Direction direction = Direction::forward;
  ScanAlgorithm algorithm = ScanAlgorithm::automatic;
};

// How b or c is laid out. groups is 1 for {batch, seq, state}.
struct ProjectionLayout {
  bool constant = false;  // {dim, state}
  std::int64_t groups = 1;
};

// All pointers are host memory, row-major. x, dt, z, y have dtype `dtype` (f32, f16, bf16); b and c too
// unless `complex`; a, d, dt_bias and states are f32, and where `complex` is true a, b, c and states are c64.
// d, z, dt_bias and initial_state are null where left out.
struct ScanProblem {
  std::int64_t batch = 0, seq = 0, dim = 0, state = 0;
  Dtype dtype = Dtype::f32;
  bool complex = false;
  bool full_matrix = false;  // a is {dim, state, state}
  ProjectionLayout b_layout, c_layout;
  const void *x = nullptr, *dt = nullptr, *b = nullptr, *c = nullptr, *z = nullptr;
  const float *a = nullptr, *d = nullptr, *dt_bias = nullptr, *initial_state = nullptr;
  ScanOptions options;

  // Sizes of the results, already known not to overflow.
  std::int64_t y_elements() const { return batch * seq * dim; }
  std::int64_t state_floats() const { return batch * dim * state * (complex ? 2 : 1); }
};

// Where the results go (host memory, caller-owned). Null members are not computed. With direction `both`,
// y_reverse is required and no state may be asked for.
struct ScanOutputs {
  void* y = nullptr;
  void* y_reverse = nullptr;
  float* final_state = nullptr;  // {batch, dim, state}
  float* states = nullptr;       // {batch, seq, dim, state}: h after each step
};

// Throws core::Error (invalid_argument, unsupported, limit_exceeded) naming the argument, what was expected
// and what came.
ScanProblem validate_scan(const ScanInputs& inputs, const ScanOptions& options);

}  // namespace exphil::core
