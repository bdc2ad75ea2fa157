// The weights of an adaptive-rank semiseparable layer, H = T + U V^T:
//
//   t = depthwise_conv(x, kernel 3, padding 1)
//   g = sigmoid(W2 relu(W1 x + b1) + b2)            one gate for each position and rank
//   u = (U x) g;  v = (V x) g;  k = cumsum over time of u
//   y = t + O (k v) + o
//
// Immutable after load_semiseparable; safe to share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.hpp"

namespace exphil::core {

class Safetensors;

struct SemiseparableConfig {
  std::int64_t hidden = 0, rank = 0;
  std::int64_t gate_hidden = 0;  // rows of W1
};

// f32, row-major, {out, in} for matrices as PyTorch stores them.
struct SemiseparableWeights {
  SemiseparableConfig config;
  std::vector<float> gate_in, gate_in_bias;    // W1 {gate_hidden, hidden}, b1
  std::vector<float> gate_out, gate_out_bias;  // W2 {rank, gate_hidden}, b2
  std::vector<float> u, v;                     // U, V {rank, hidden}
  std::vector<float> conv;                     // T {hidden, 3}: taps for t - 1, t, t + 1
  std::vector<float> output, output_bias;      // O {hidden, rank}, o {hidden}
};

inline constexpr std::int64_t kMaxSemiseparableSize = std::int64_t{1} << 20;  // of each dimension

// Reads complexity_gate.0.{weight,bias}, complexity_gate.2.{weight,bias}, U_proj.weight, V_proj.weight,
// T_conv.weight {hidden, 1, 3}, output_proj.{weight,bias}. Every dimension is inferred from the shapes and
// cross-checked. F32, F16 and BF16 tensors are accepted. Throws invalid_checkpoint naming the tensor that is
// missing, unexpected, misshapen, of a wrong dtype or, with check_finite, not finite.
std::shared_ptr<const SemiseparableWeights> load_semiseparable(const Safetensors& file, bool check_finite);
std::shared_ptr<const SemiseparableWeights> load_semiseparable(
    const std::map<std::string, TensorView>& tensors, bool check_finite);

}  // namespace exphil::core
