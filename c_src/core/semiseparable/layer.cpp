#include "core/semiseparable/layer.hpp"

#include <cmath>

#include "core/error.hpp"

namespace exphil::core {

SemiseparableInput validate_semiseparable(const SemiseparableConfig& config, const TensorView& x,
                                          bool bidirectional) {
  const Shape& shape = x.shape;
  if (shape.rank() != 3 || shape[0] < 0 || shape[1] < 0 || shape[2] != config.hidden) {
    fail(ErrorKind::invalid_argument, "x", "x must be {batch, seq, ", config.hidden, "}; got shape ",
         shape.to_string());
  }
  if (x.dtype != Dtype::f32) {
    fail(ErrorKind::invalid_argument, "x", "x must be f32; got ", dtype_name(x.dtype));
  }
  check_bytes(x, "x");
  const std::int64_t positions = checked_multiply(shape[0], shape[1], "x");
  checked_multiply(checked_multiply(positions, config.rank + 16, "x"), 4 * sizeof(float), "x");
  return {static_cast<const float*>(x.data), shape[0], shape[1], bidirectional};
}

void effective_rank(const float* gates, std::int64_t positions, std::int64_t rank, float* out) {
  for (std::int64_t p = 0; p < positions; ++p, gates += rank) {
    double sum = 0.0;
    for (std::int64_t r = 0; r < rank; ++r) sum += double{gates[r]};
    out[p] = static_cast<float>(sum);
  }
}

double gate_penalty(const float* gates, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::abs(double{gates[i]});
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
}

}  // namespace exphil::core
