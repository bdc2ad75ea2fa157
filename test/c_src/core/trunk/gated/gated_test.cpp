// GRU, LSTM, minGRU and minLSTM policies of Edifice and ExPhil: the oracle against what Axon computed (f32),
// and the states that Axon draws.
#include <cmath>
#include <string>

#include "core/policy/reference.hpp"
#include "support/catch.hpp"
#include "support/gated_policy.hpp"
#include "support/numbers.hpp"

namespace exphil {

namespace {

using core::PolicyWeights;
using Doubles = std::vector<double>;

// The outputs of every frame of window `index`.
Doubles outputs(const PolicyWeights& weights, const std::vector<float>& windows, std::int64_t index,
                std::int64_t seq) {
  const core::PolicyConfig& c = weights.config;
  Doubles outs(static_cast<std::size_t>(seq * c.d_output));
  core::policy_reference_window(weights, windows.data() + index * seq * c.d_input, seq, outs.data());
  return outs;
}

Doubles last_outputs(const PolicyWeights& weights, const std::vector<float>& windows, std::int64_t seq) {
  Doubles all;
  for (std::int64_t i = 0; i < 8; ++i) {
    const Doubles outs = outputs(weights, windows, i, seq);
    all.insert(all.end(), outs.end() - weights.config.d_output, outs.end());
  }
  return all;
}

}  // namespace

TEST_CASE("the oracle gives the recorded answers of GRU, LSTM, minGRU and minLSTM policies",
          "[policy_reference][gated][exphil]") {
  if (!test::have_trunks()) return;
  for (const test::RecordedTrunk& set : test::recorded_trunks()) {
    INFO(set.name);
    const auto policy = set.load();
    CHECK(policy->config.window == set.seq);
    CHECK(policy->config.groups.size() == 6);
    const std::vector<float> windows = set.io("windows");
    CHECK(test::relative_error(last_outputs(*policy, windows, set.seq), set.io("logits_batch1")) < 3e-6);
    if (set.name == "gru_e287_h256_w60") continue;  // has no other file
    const auto plain = set.load("params.safetensors");
    CHECK(test::relative_error(last_outputs(*plain, windows, set.seq), set.io("logits_batch1")) < 3e-6);
  }
}

TEST_CASE("the oracle gives the recorded hidden states of trunks without heads",
          "[policy_reference][gated][exphil]") {
  if (!test::have_trunks()) return;
  for (const test::RecordedTrunk& set : test::recorded_trunks()) {
    if (set.name == "gru_e287_h256_w60") continue;  // has the policy alone
    INFO(set.name);
    const std::vector<float> windows = set.io("windows");
    const auto trunk = set.load("trunk.nx");
    CHECK(trunk->config.groups.empty());
    CHECK(test::relative_error(last_outputs(*trunk, windows, set.seq), set.io("trunk_batch1")) < 3e-6);
    if (set.name.compare(0, 3, "min") == 0) continue;
    Doubles every = outputs(*trunk, windows, 0, set.seq);
    const Doubles second = outputs(*trunk, windows, 1, set.seq);
    every.insert(every.end(), second.begin(), second.end());
    CHECK(test::relative_error(every, set.io("trunk_every_frame_batch1")) < 3e-6);
  }
}

TEST_CASE("states begin with what Axon draws from the stored keys, bit for bit", "[gated][exphil]") {
  if (!test::have_trunks()) return;
  for (const test::RecordedTrunk& set : test::recorded_trunks()) {
    const auto policy = set.load();
    const core::Network& network = policy->network();
    std::vector<float> h0, c0;
    for (const core::StatePart& part : network.states) {
      const auto units = part.initial.begin() + part.columns * (part.initial.empty() ? 0 : 1);
      h0.insert(h0.end(), part.initial.begin(), units);
      c0.insert(c0.end(), units, part.initial.end());
    }
    INFO(set.name);
    const bool drawn = set.name.find("fused") == std::string::npos && set.name.compare(0, 3, "min") != 0;
    CHECK(h0 == (drawn ? set.io("h0_batch1") : std::vector<float>()));
    CHECK(c0 == (drawn && set.name.compare(0, 4, "lstm") == 0 ? set.io("c0_batch1") : std::vector<float>()));
    CHECK(policy->config.constants.empty() != drawn);
  }
}

}  // namespace exphil
