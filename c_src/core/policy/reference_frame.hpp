// One frame of a policy in double, with everything that the gradient needs again. The forward reference and
// its gradient share it. T is the type of the weights: float, or double for training in float64.
#pragma once

#include <vector>

#include "core/policy/reference.hpp"

namespace exphil::core {

struct PolicyLayerFrame {
  std::vector<double> in, normed;  // {d_model}: the layer's input, and its norm
  std::vector<double> x, z;        // {d_inner}: the halves of in_proj
  std::vector<double> past;        // {d_inner, d_conv - 1}: the convolution's inputs before this frame
  std::vector<double> v, s;        // {d_inner}: the convolution, and silu of it
  std::vector<double> projected;   // {dt_rank + 2 d_state}: dt, B, C
  std::vector<double> dt_sum, dt;  // {d_inner}: before softplus, and clipped
  double mean_dt = 0;
  std::vector<double> h_before, h_after;  // {d_inner, d_state}
  std::vector<double> y, gated;           // {d_inner}: before silu(z) and after
};

struct PolicyFrame {
  std::vector<double> obs;
  std::vector<PolicyLayerFrame> layers;
  std::vector<double> hidden, final;             // {d_model}: before norm_f and after
  std::vector<std::vector<double>> head_hidden;  // of each head, after relu
  std::vector<double> out;                       // {d_output}
};

// Advances the state by one frame.
template <class T>
PolicyFrame policy_reference_frame(const PolicyConfig& config, const PolicyValues<T>& weights,
                                   PolicyReferenceState& state, const float* obs);

// Of RMSNorm and LayerNorm: the mean that is subtracted, and 1 / sqrt(mean of squares + epsilon).
struct NormScale {
  double mean = 0, scale = 0;
};
NormScale norm_scale(const PolicyConfig& config, const std::vector<double>& in);

}  // namespace exphil::core
