// Generated Mamba-3 policies of any size, and the recorded policies of Mamba-2 and Mamba-3.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/head_policy.hpp"

namespace exphil::test {

struct Mamba3Spec {
  std::int64_t d_input = 5, d_output = 3, d_model = 6, n_layer = 2;
  std::int64_t heads = 2, headdim = 5, d_state = 4, groups = 1;
  std::int64_t ranks = 1;
  std::int64_t angles = 1;
  bool mimo = false, norm = false;
  double floor = -1;  // negative: the file says none
  std::string prefix = "backbone.";
  std::int64_t window = 0;
  std::uint64_t seed = 1;
};
SafetensorsWriter mamba3_file(const Mamba3Spec& spec);

// Every layout, of about this size.
std::vector<PolicyForm> mamba3_forms(std::int64_t channels, std::int64_t keys, std::int64_t n_layer = 2,
                                     std::int64_t window = 0);
// With those of head_policy.hpp.
std::vector<PolicyForm> matrix_forms(std::int64_t channels, std::int64_t keys, std::int64_t n_layer = 2,
                                     std::int64_t window = 0);
std::vector<NamedPolicy> small_matrix_policies();

// The recorded policies of shared/mamba23, and the parts of a state in their order.
bool have_mamba23();
struct RecordedMixer {
  std::string name;
  bool gradients;
  bool is_mamba3() const { return name.compare(0, 6, "mamba3") == 0; }
};
std::vector<RecordedMixer> recorded_mixers();
std::string mixer_path(const std::string& name, const char* file = "policy.safetensors");
std::shared_ptr<const core::PolicyWeights> load_mixer(const std::string& name);
// f64, or f32 where the file is small.
std::vector<double> mixer_values(const std::string& path, const std::string& tensor);
// The greatest error of a state after the last frame, in parts of the largest value of each kind of part;
// angles on the circle.
double mixer_state_error(const std::string& name, const core::PolicyConfig& config,
                         const std::vector<double>& state);

}  // namespace exphil::test
