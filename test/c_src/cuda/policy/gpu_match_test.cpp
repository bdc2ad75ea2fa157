// The recorded match, its rollbacks and its windows through the resident policy on a GPU. Skipped, with a
// message, where there is no device or no recording.
#include <map>

#include "cuda/cuda_test.hpp"
#include "cuda/policy/gpu_calls.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/catch.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

TEST_CASE("the recorded match on the GPU, frame by frame and in one pass", "[cuda][gpu][policy]") {
  if (!have_device() || !have_melee()) return;
  const auto policy = load_64_on_device(melee_policy());
  const Match match = melee_match();
  const auto state = policy->new_state();
  Floats stepped;
  double worst = 0;
  for (std::int64_t i = 0; i < match.frames; ++i) {
    const Floats out = step(*policy, *state, match.obs_at(i));
    worst = std::max(worst, relative_error(out.data(), match.logits_at(i), out.size()));
    stepped.insert(stepped.end(), out.begin(), out.end());
  }
  CHECK(worst <= 1e-5);
  const Floats last = read(*policy, *state);
  CHECK(relative_error(last, match.state()) <= 1e-5);

  for (const std::int64_t cut : {std::int64_t{0}, std::int64_t{1}, std::int64_t{61}, std::int64_t{1999}}) {
    const auto other = policy->new_state();
    Floats parts = prefill(*policy, *other, match.obs_at(0), cut);
    const Floats rest = prefill(*policy, *other, match.obs_at(cut), match.frames - cut);
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(same_bits(parts, stepped));
    CHECK(same_bits(read(*policy, *other), last));
  }
}

TEST_CASE("the recorded rollbacks on the GPU", "[cuda][gpu][policy]") {
  if (!have_device() || !have_melee()) return;
  const auto policy = load_on_device(melee_policy(), 16);  // grows
  const Match trace = melee_rollback();
  std::map<std::int32_t, std::unique_ptr<State>> before;
  const auto state = policy->new_state();
  double worst = 0;
  for (std::int64_t i = 0; i < trace.frames; ++i) {
    auto& kept = before[trace.frame[static_cast<std::size_t>(i)]];
    if (kept) {
      policy->copy_state(*state, *kept);
    } else {
      kept = policy->new_state();
      policy->copy_state(*kept, *state);
    }
    const Floats out = step(*policy, *state, trace.obs_at(i));
    worst = std::max(worst, relative_error(out.data(), trace.logits_at(i), out.size()));
  }
  CHECK(worst <= 1e-5);
}

TEST_CASE("windows of the match on the GPU, one by one and in one call", "[cuda][gpu][policy]") {
  if (!have_device() || !have_melee()) return;
  const auto policy = load_64_on_device(melee_policy());
  const Match match = melee_match();
  const Windows windows = melee_windows();
  const auto count = static_cast<std::int64_t>(windows.end_index.size());
  Floats inputs;
  for (const std::int32_t end : windows.end_index) {
    inputs.insert(inputs.end(), match.obs_at(end + 1 - windows.kLength), match.obs_at(end + 1));
  }
  Floats out = unset(count * match.d_output), alone = out;
  policy->window(inputs.data(), count, windows.kLength, out.data());
  for (std::int64_t i = 0; i < count; ++i) {
    policy->window(inputs.data() + i * windows.kLength * match.d_input, 1, windows.kLength,
                   alone.data() + i * match.d_output);
    CHECK(relative_error(out.data() + i * match.d_output, windows.logits.data() + i * match.d_output,
                         static_cast<std::size_t>(match.d_output)) <= 1e-5);
  }
  CHECK(same_bits(out, alone));
}

}  // namespace exphil::test
