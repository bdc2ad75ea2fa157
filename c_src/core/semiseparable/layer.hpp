// An adaptive-rank semiseparable layer resident on a backend: the interface of every backend, and the check
// of its input. Stateless between calls: any thread, several concurrently. Same inputs give the same bits,
// whatever else is in the batch.
#pragma once

#include <cstdint>
#include <memory>

#include "core/semiseparable/weights.hpp"
#include "core/tensor.hpp"

namespace exphil::core {

// x {batch, seq, hidden} f32, host memory.
struct SemiseparableInput {
  const float* x = nullptr;
  std::int64_t batch = 0, seq = 0;
  bool bidirectional = false;  // k = causal cumsum + anti-causal cumsum; both include position t
};

// Host memory, caller-owned.
struct SemiseparableOutputs {
  float* y = nullptr;      // {batch, seq, hidden}
  float* gates = nullptr;  // {batch, seq, rank}
};

class SemiseparableLayer {
 public:
  virtual ~SemiseparableLayer() = default;
  virtual const SemiseparableConfig& config() const = 0;
  virtual std::size_t resident_bytes() const = 0;
  virtual void forward(const SemiseparableInput& input, const SemiseparableOutputs& outputs) = 0;
};

// Throws invalid_argument for anything but f32 {batch, seq, hidden}, limit_exceeded for sizes whose products
// do not fit.
SemiseparableInput validate_semiseparable(const SemiseparableConfig& config, const TensorView& x,
                                          bool bidirectional);

// For gates {positions, rank}: the sum at each position (the effective rank), and the mean of all absolute
// values, accumulated in double; 0 where there are none.
void effective_rank(const float* gates, std::int64_t positions, std::int64_t rank, float* out);
double gate_penalty(const float* gates, std::int64_t count);

}  // namespace exphil::core
