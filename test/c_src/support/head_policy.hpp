// Generated policies whose trunks have a matrix state for each head, Mamba-2 and gated DeltaNet, of any size:
// names and shapes of a real checkpoint, random weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/policy.hpp"
#include "support/policy_forms.hpp"
#include "support/policy_grad_case.hpp"

namespace exphil::test {

struct DeltanetSpec {
  std::int64_t d_input = 5, units = 6, heads = 2, taps = 4, n_layer = 2, window = 0;
  bool projects = true;  // else d_input is units
  std::uint64_t seed = 1;
};
SafetensorsWriter deltanet_file(const DeltanetSpec& spec);

struct Mamba2Spec {
  std::int64_t d_input = 5, d_output = 3, d_model = 6, n_layer = 2;
  std::int64_t heads = 2, headdim = 5, d_state = 4, groups = 1, d_conv = 4;
  std::int64_t mlp = 0;  // channels that are gated alone
  bool biases = false;   // of in_proj and out_proj
  bool conv_bias = true;
  bool norm = true, norm_before_gate = false;
  bool skip_of_value = false;  // D has one number for each value
  bool limits = false;         // dt_limit
  std::string prefix = "backbone.";
  std::int64_t window = 0;
  std::uint64_t seed = 1;
};
SafetensorsWriter mamba2_file(const Mamba2Spec& spec);

// Every layout of both trunks, of about this size: `channels` in a head, `keys` in a key.
std::vector<PolicyForm> head_forms(std::int64_t channels, std::int64_t keys, std::int64_t n_layer = 2,
                                   std::int64_t window = 0);
// The same for gradients.
std::vector<NamedPolicy> small_head_policies();

}  // namespace exphil::test
