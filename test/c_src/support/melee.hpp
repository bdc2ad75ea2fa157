// The recorded match that the tests of every backend replay. Callers check have_shared first.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/trunk/load.hpp"

namespace exphil::test {

// False, after a line on stderr, where the shared melee folder is missing.
bool have_melee();

std::shared_ptr<const core::PolicyWeights> melee_policy();

struct Match {
  std::int64_t frames = 0, d_input = 0, d_output = 0;
  std::vector<std::int32_t> frame;           // frame numbers, in arrival order
  std::vector<float> obs, logits;            // {frames, d_input}, {frames, d_output}
  std::vector<float> ssm_state, conv_state;  // after the last frame; match only
  // Both, as core::Policy has a state's values.
  std::vector<float> state() const {
    std::vector<float> all = ssm_state;
    all.insert(all.end(), conv_state.begin(), conv_state.end());
    return all;
  }

  const float* obs_at(std::int64_t i) const { return obs.data() + i * d_input; }
  const float* logits_at(std::int64_t i) const { return logits.data() + i * d_output; }
};

Match melee_match();

// The frames arrive out of order: the trace jumps back 531 times, and 1,031 of its frames were seen before.
// At every frame seen before (not only at a jump), the recorded run restored the state that it first saved
// before that frame.
Match melee_rollback();

// The last output of the zero-state window of 60 frames that ends with (and includes) each index of the
// match.
struct Windows {
  static constexpr std::int64_t kLength = 60;
  std::vector<std::int32_t> end_index;
  std::vector<float> logits;  // {end_index.size(), d_output}
};
Windows melee_windows();

}  // namespace exphil::test
