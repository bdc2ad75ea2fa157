// The products of one block while it is lowered: which phases become outputs, activations and biases of which
// product. The part of cuda/policy/lower_block.cpp that knows products.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/policy/lower.hpp"
#include "cuda/policy/lower_vectors.hpp"

namespace exphil::cuda {

unsigned bits_of(float value);

class ProductLowering {
 public:
  ProductLowering(const core::PolicyConfig& config, LoweredVectors& vectors, policy::Network* to, int* counts)
      : config_(config), vectors_(vectors), to_(to), counts_(counts) {}

 protected:
  policy::Product& product(const LoweredPhase& phase);
  LoweredPhase& push(policy::Kind kind);
  const core::Norm* norm_to(const core::Span& span) const;
  // The product of a vector: a new one, or one that reads the same already.
  LoweredPhase& product_of(const core::Span& span, bool adds);
  // A norm that another phase than a product reads.
  void diagonal(const core::Norm& norm);
  void append(LoweredPhase* phase, const core::Span& out, core::WeightId weight, core::WeightId bias,
              std::int64_t first_row, policy::Activation activation);
  // The output of a product that writes a vector, which has no activation yet and one reader.
  policy::Output& output_of(const core::Span& span, const char* what);
  void activate(const core::Span& in, const core::Span& out, core::WeightId bias, float lowest,
                float highest);
  std::int64_t readers(const core::Span& span) const;
  // What a product reads is normalised first.
  void set_norm(LoweredPhase* phase, const core::Norm& norm);
  // The bias of what one product writes and only another one reads goes through that one.
  void pass_bias(LoweredPhase* reader);
  void find_bias(const LoweredPhase& phase);

  const core::PolicyConfig& config_;
  LoweredVectors& vectors_;
  policy::Network* to_;
  int* const counts_;  // of each kind of phase in the network
  const core::Block* block_ = nullptr;
  std::vector<const core::Norm*> norms_;
  LoweredBlock made_;
  LoweredRows* found_ = nullptr;  // of the output that output_of() has returned
};

}  // namespace exphil::cuda
