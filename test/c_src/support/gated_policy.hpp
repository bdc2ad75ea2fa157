// Generated GRU, LSTM, minGRU and minLSTM policies of any size, in each of Edifice's layouts: names and
// shapes of a real checkpoint, random weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/policy.hpp"
#include "support/policy_forms.hpp"
#include "support/policy_grad_case.hpp"

namespace exphil::test {

struct GatedSpec {
  std::string architecture = "gru";  // "gru", "lstm", "min_gru", "min_lstm"
  bool fused = false;                // Edifice's layout for fused kernels, of GRU and LSTM
  bool projects = false;             // has an input projection, of minGRU and minLSTM: else d_input is units
  bool heads = false;                // ExPhil's six, with few bins
  std::int64_t d_input = 5, units = 6, n_layer = 2, window = 0;
  std::uint64_t seed = 1;
};

SafetensorsWriter gated_file(const GatedSpec& spec);

// Writes a file and loads it, as a user would.
std::shared_ptr<const core::PolicyWeights> make_gated(const GatedSpec& spec);

// Each architecture in each layout, with and without heads, of the sizes of `spec`.
std::vector<GatedSpec> gated_specs(const GatedSpec& spec);
std::vector<PolicyForm> gated_forms(const GatedSpec& spec);

// The same for gradients: small, with frames wider and narrower than the units.
std::vector<NamedPolicy> small_gated_policies();

// A recorded policy of shared/exphil/trunks.
struct RecordedTrunk {
  std::string name;
  std::int64_t seq = 0;
  std::string path(const char* file) const;
  std::vector<float> io(const char* tensor) const;
  std::shared_ptr<const core::PolicyWeights> load(const char* file = "policy.bin") const;
};
bool have_trunks();
std::vector<RecordedTrunk> recorded_trunks();

}  // namespace exphil::test
