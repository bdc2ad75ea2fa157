// Generated Mamba policies of any size: names and shapes of a real checkpoint, values of Mamba's
// initialisation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/trunk/load.hpp"
#include "support/safetensors_writer.hpp"

namespace exphil::test {

struct PolicySpec {
  std::int64_t d_input = 5, d_output = 3, d_model = 6, d_inner = 12, n_layer = 2;
  std::int64_t d_state = 4, d_conv = 4, dt_rank = 2;
  bool projection_bias = false, conv_bias = true;
  std::string prefix = "backbone.";
  std::uint64_t seed = 1;
};

SafetensorsWriter policy_file(const PolicySpec& spec);

// Writes a file and loads it with load_weights, as a user would.
std::shared_ptr<const core::PolicyWeights> load_policy(const SafetensorsWriter& file,
                                                       const core::PolicyLoadOptions& options = {});
std::shared_ptr<const core::PolicyWeights> make_policy(const PolicySpec& spec);

}  // namespace exphil::test
