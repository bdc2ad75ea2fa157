#include "support/rollback_case.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using core::Session;
using Floats = std::vector<float>;

}  // namespace

// The recorded run restored, before a frame number that it had seen, the state from when it was first seen.
// So the session stays on the frames as they were first seen: for a frame seen before it goes back, answers,
// and plays those frames again.
void check_recorded_rollbacks(std::shared_ptr<core::Policy> policy, const Match& trace) {
  constexpr std::int64_t kHistory = 16;
  core::SessionOptions options;
  options.history = kHistory;
  Session session(std::move(policy), options);
  const auto d_input = static_cast<std::size_t>(trace.d_input),
             d_output = static_cast<std::size_t>(trace.d_output);
  Floats first_seen, out(d_output), again(kHistory * d_output);
  std::int64_t seen = 0, went_back = 0;
  double worst = 0;
  const std::int32_t start = trace.frame[0];
  for (std::int64_t i = 0; i < trace.frames; ++i) {
    const std::int64_t number = trace.frame[static_cast<std::size_t>(i)] - start;
    REQUIRE((number >= 0 && number <= seen));
    const std::int64_t back = seen - number;
    if (back == 0) {
      session.step(trace.obs_at(i), out.data());
      first_seen.insert(first_seen.end(), trace.obs_at(i), trace.obs_at(i) + d_input);
      ++seen;
    } else {
      session.resimulate(back, trace.obs_at(i), 1, out.data());
      float* const frames = first_seen.data() + static_cast<std::size_t>(number) * d_input;
      if (back == 1) {  // a frame that is new comes from the last answer
        std::copy(trace.obs_at(i), trace.obs_at(i) + d_input, frames);
      } else {
        session.resimulate(1, frames, back, again.data());
      }
      ++went_back;
    }
    worst = std::max(worst, relative_error(out.data(), trace.logits_at(i), out.size()));
  }
  CHECK(worst <= 1e-5);
  CHECK(went_back == 1031);
}

void check_long_resimulation(std::shared_ptr<core::Policy> policy) {
  constexpr std::int64_t kFrames = 75;
  const core::PolicyConfig& config = policy->config();
  const Floats frames = Random(13).vector(static_cast<std::size_t>(kFrames * config.d_input), -1.0f, 1.0f);
  Floats out(static_cast<std::size_t>(kFrames * config.d_output)), expected = out;
  core::SessionOptions options;
  options.history = kFrames;
  Session session(policy, options), other(policy);
  session.resimulate(0, frames.data(), kFrames, out.data());
  session.resimulate(kFrames, frames.data(), kFrames, out.data());
  for (std::int64_t t = 0; t < kFrames; ++t) {
    other.step(frames.data() + t * config.d_input, expected.data() + t * config.d_output);
  }
  CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
  CHECK(session.export_state() == other.export_state());
}

}  // namespace exphil::test
