// An associative scan, validated. `validate_associative` turns the caller's tensors and options into an
// AssociativeProblem or throws. Backends take only these and do not check again. Plain data: safe to share
// while the caller's tensors are valid.
//
//   cumsum              y_t = x_0 + ... + x_t               f32 f16 bf16 c64 s32 s64
//   cumprod             y_t = x_0 * ... * x_t               f32 f16 bf16
//   cummax, cummin      y_t = the largest, smallest so far  f32 f16 bf16 s32 s64
//   linear_recurrence   y_t = a_t y_(t-1) + x_t             f32 f16 bf16 c64 (a, x and y_-1 of one type)
//
// along one axis; from the last element to the first with `reverse`. y_-1 is the initial state of the
// recurrence, 0 where none is given, and the same for both directions of Direction::both. f16 and bf16
// accumulate in f32; c64 in two f32; integer sums wrap around. NaN and infinity propagate as in the
// sequential definition: every result from the first NaN on is NaN, also for cummax and cummin.
#pragma once

#include <cstdint>
#include <optional>

#include "core/device_ranges.hpp"
#include "core/direction.hpp"
#include "core/tensor.hpp"
#include "kernels/associative/ops.cuh"

namespace exphil::core {

using AssociativeOp = associative::Op;

inline constexpr int kMaxAssociativeRank = 4;
inline constexpr std::int64_t kMinBlockSize = 32, kMaxBlockSize = 8192;

struct AssociativeInputs {
  TensorView x;                                            // b of the linear recurrence
  std::optional<TensorView> a;                             // linear recurrence only, as the next
  std::optional<TensorView> initial_state = std::nullopt;  // of x's shape without the scanned axis
};

struct AssociativeOptions {
  std::int64_t axis = 0;  // negative counts from the last
  Direction direction = Direction::forward;
  bool compensated = false;     // cumsum of floating-point numbers: tracks the rounding error
  std::int64_t block_size = 0;  // elements of time per block; 0: chosen by length and device
};

// The tensor is {outer, length, inner} with the scanned axis in the middle. Host memory, row-major.
struct AssociativeProblem {
  AssociativeOp op = AssociativeOp::cumsum;
  Dtype dtype = Dtype::f32;
  std::int64_t outer = 0, length = 0, inner = 0;
  Direction direction = Direction::forward;
  bool compensated = false;
  std::int64_t block_size = 0;
  const void* x = nullptr;
  const void* a = nullptr;
  const void* initial = nullptr;  // {outer, inner}, or null for 0
  DeviceRanges on_device;         // the inputs that are in device memory

  std::int64_t elements() const { return outer * length * inner; }
  std::int64_t sequences() const { return outer * inner; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * dtype_size(dtype); }
};

// Host memory, caller-owned, of the input's shape and dtype. `y` is the result of `forward` and `reverse`;
// with `both`, y runs from the first element and y_reverse from the last.
struct AssociativeOutputs {
  void* y = nullptr;
  void* y_reverse = nullptr;
};

const char* associative_op_name(AssociativeOp op);  // "cumsum"

// Throws core::Error (invalid_argument, unsupported, limit_exceeded) naming the argument, what was expected
// and what was given.
AssociativeProblem validate_associative(AssociativeOp op, const AssociativeInputs& inputs,
                                        const AssociativeOptions& options);

}  // namespace exphil::core
