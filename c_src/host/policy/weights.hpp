// A policy's weights in the CPU's layout: one arena of panels, in the order in which a step reads them.
// Immutable after construction; safe to share.
#pragma once

#include <memory>
#include <vector>

#include "core/policy/config.hpp"
#include "host/policy/layer_kernels.hpp"
#include "host/recurrence/sequence.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

struct PackedLayer {
  Norm norm;
  PackedMatrix in_x, in_z, x_proj, dt_proj, out_proj;  // in_proj in its two halves; dt_proj without bias
  const float *conv = nullptr, *conv_bias = nullptr;   // {d_conv, padded(d_inner)}, {padded(d_inner)}
  const float *a = nullptr, *a_bounds = nullptr,
              *d = nullptr,            // d: null where the policy has no skip
                  *dt_bias = nullptr;  // a by pack_a; {padded(d_inner)} each
};

// The scan of every layer of the policy.
ScanRule scan_rule_of(const core::PolicyConfig& config);

class PackedWeights {
 public:
  explicit PackedWeights(const core::PolicyWeights& weights);

  const core::PolicyConfig& config() const { return config_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  std::size_t bytes() const { return arena_.bytes(); }
  const ScanRule& rule() const { return rule_; }
  const PackedMatrix& input_proj() const { return input_proj_; }
  const std::vector<PackedLayer>& layers() const { return layers_; }
  const Norm& norm_f() const { return norm_f_; }
  // The matrix of the heads' last product. Its input is the hidden state or, where heads_hidden() has
  // outputs, relu of that product. If both have no outputs, the hidden state is the policy's output.
  const PackedMatrix& heads_hidden() const { return heads_hidden_; }
  const PackedMatrix& head() const { return head_; }

 private:
  float* take(std::int64_t floats);
  PackedMatrix matrix(const float* from, const float* bias, std::int64_t outs, std::int64_t depth);
  const float* vector(const std::vector<float>& from, std::int64_t count);
  Norm norm(const std::vector<float>& weight, const std::vector<float>& bias);
  PackedLayer layer(const core::PolicyLayerWeights& from);
  void pack_heads(const std::vector<core::PolicyHead>& heads);

  core::PolicyConfig config_;
  std::uint64_t fingerprint_;
  ScanRule rule_;
  AlignedBuffer arena_;
  std::int64_t used_ = 0;
  PackedMatrix input_proj_, heads_hidden_, head_;
  std::vector<PackedLayer> layers_;
  Norm norm_f_;
};

}  // namespace exphil::host
