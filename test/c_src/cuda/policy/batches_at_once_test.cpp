// Two batches of one policy at the same time, as two launches of a gatherer are: the second one begins and
// ends while the first is under way. On an emulated GPU and on a real one.
#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/session/gatherer.hpp"
#include "core/session/session.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/agent_states.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/catch.hpp"
#include "support/gathered.hpp"
#include "support/policy.hpp"
#include "support/policy_grad_checks.hpp"

namespace exphil::test {
namespace {

using Floats = std::vector<float>;
using Weights = std::shared_ptr<const core::PolicyWeights>;

constexpr int kRounds = 4;

// Players that play frames of their own, with what the policy keeps of them.
struct Players {
  Players(core::Policy& of, std::int64_t number, unsigned first_frame)
      : policy(of),
        count(number),
        frame(first_frame),
        states(of, number),
        memory(of.group_memory(number)),
        out(static_cast<std::size_t>(number * of.config().d_output)) {}

  Floats next_obs() {
    return Random(++frame).vector(static_cast<std::size_t>(count * policy.config().d_input), -2, 2);
  }
  // In one call. Where `meanwhile` is given, it runs while the call is under way.
  template <class Meanwhile>
  bool play(const Meanwhile& meanwhile) {
    const Floats obs = next_obs();
    core::State* const* const all = states.all.data();
    const auto is_right = [&] { return meanwhile(), true; };
    return keep(policy.advance_group_if(is_right, {all, all, memory.get()}, count, obs.data(), out.data()));
  }
  void play() {
    const Floats obs = next_obs();
    core::State* const* const all = states.all.data();
    policy.advance_group(all, all, count, nullptr, obs.data(), out.data(), memory.get());
    keep(true);
  }
  void play_alone() {
    const Floats obs = next_obs();
    const core::PolicyConfig& config = policy.config();
    for (std::int64_t i = 0; i < count; ++i) {
      policy.step(states.all.data() + i, 1, obs.data() + i * config.d_input,
                  out.data() + i * config.d_output);
    }
    keep(true);
  }
  bool keep(bool played) {
    if (played) found.insert(found.end(), out.begin(), out.end());
    return played;
  }
  // All answers, then the states.
  Floats all() {
    Floats values = found;
    states.read(policy, &values);
    return values;
  }

  core::Policy& policy;
  const std::int64_t count;
  unsigned frame;
  AgentStates states;
  std::unique_ptr<core::GroupMemory> memory;
  Floats out, found;
};

Floats played_alone(core::Policy& policy, std::int64_t count, unsigned first_frame) {
  Players agents(policy, count, first_frame);
  for (int i = 0; i < kRounds; ++i) agents.play_alone();
  return agents.all();
}

std::size_t held_bytes() {
  return fake().device_bytes() + fake().pinned_bytes();
}

// Frames of `inner` are computed during those of `outer`, or before and after them.
void check_two_at_once(const Weights& weights, std::int64_t outer_count, std::int64_t inner_count,
                       const std::string& settings, bool emulated) {
  CAPTURE(settings, outer_count, inner_count);
  const Environment tuning("EXPHIL_NATIVE_POLICY", (settings + ",guess=2").c_str());
  const auto policy = load_on_device(weights, 2 * (outer_count + inner_count));
  CHECK(policy->batches_at_once() == 2);
  const Floats outer_alone = played_alone(*policy, outer_count, 0),
               inner_alone = played_alone(*policy, inner_count, 50);
  Players outer(*policy, outer_count, 0), inner(*policy, inner_count, 50);
  policy->reserve_batch(std::max(outer_count, inner_count), 2);
  const std::size_t bytes = emulated ? held_bytes() : 0;
  for (int i = 0; i < kRounds; ++i) {
    const bool at_once = i % 3 != 2;
    if (at_once) CHECK(outer.play([&] { std::thread([&] { inner.play(); }).join(); }));
    if (!at_once) outer.play(), inner.play();
  }
  if (emulated) CHECK(held_bytes() == bytes);
  CHECK(same_bits(outer.all(), outer_alone));
  CHECK(same_bits(inner.all(), inner_alone));
}

const std::string kSettings = "team=1,cluster=0,inline_obs=0,fused_limit=1,window_blocks=1,frames_late=0";

TEST_CASE("two batches of a policy at the same time on an emulated GPU", "[.emulated_at_once]") {
  emulate_launches();
  const auto gru = make_gated(spec_of("gru", 41, 34));
  check_two_at_once(gru, 5, 18, kSettings, true);
  check_two_at_once(gru, 33, 20, kSettings + ",agents_together=16,ahead_rows=2", true);
  check_two_at_once(gru, 20, 33, kSettings + ",batch_frame=2", true);
  check_two_at_once(make_policy(PolicySpec{}), 20, 12, kSettings, true);
  CHECK(emulated_launches("policy_cell_ahead") > 0);
}

// Where memory is reserved for one batch, a second one waits for the first, and has the same memory.
TEST_CASE("a batch for which nothing is reserved waits for the one under way", "[.emulated_at_once]") {
  emulate_launches();
  const Environment tuning("EXPHIL_NATIVE_POLICY", (kSettings + ",guess=2,batch_frame=0").c_str());
  const auto policy = load_on_device(make_gated(spec_of("gru", 41, 34)), 100);
  const Floats outer_alone = played_alone(*policy, 20, 0), inner_alone = played_alone(*policy, 20, 50);
  for (const bool more : {false, true}) {
    Players outer(*policy, 20, 0), inner(*policy, 20, 50);
    policy->reserve_batch(20, 1);
    if (more) policy->reserve_batch(10, 2);  // too few
    const std::size_t bytes = held_bytes();
    for (int i = 0; i < kRounds; ++i) {
      std::thread second;
      CHECK(outer.play([&] { second = std::thread([&] { inner.play(); }); }));
      second.join();
    }
    CHECK(held_bytes() == bytes);
    CHECK(same_bits(outer.all(), outer_alone));
    CHECK(same_bits(inner.all(), inner_alone));
  }
}

// A group's frame that is computed in other streams than the one before waits for what that one left to
// compute.
TEST_CASE("a group's frames in other streams follow one another", "[.emulated_at_once]") {
  emulate_launches();
  for (const char* more :
       {",batch_frame=0", ",batch_frame=2", ",batch_frame=0,agents_together=8,ahead_rows=2"}) {
    CAPTURE(more);
    const Environment tuning("EXPHIL_NATIVE_POLICY", (kSettings + ",guess=2" + more).c_str());
    const auto policy = load_on_device(make_gated(spec_of("gru", 41, 34)), 100);
    policy->reserve_batch(20, 2);
    Players outer(*policy, 20, 0), inner(*policy, 20, 50);
    const auto waits_of = [&](const auto& play) {
      const std::int64_t before = fake().calls("cuStreamWaitEvent");
      play();
      return fake().calls("cuStreamWaitEvent") - before;
    };
    const auto play = [&] { inner.play(); };
    const auto play_beside = [&] {
      std::int64_t waits = 0;
      CHECK(outer.play([&] { std::thread([&] { waits = waits_of(play); }).join(); }));
      return waits;
    };
    play(), play();
    const std::int64_t in_same = waits_of(play), in_others = play_beside(), in_same_others = play_beside(),
                       back = waits_of(play);
    CHECK(in_others > in_same);
    CHECK(in_same_others == in_same);
    CHECK(back == in_others);
    CHECK(waits_of(play) == in_same);
  }
}

// Launches of tens of frames take milliseconds here, so that the next one begins beside them.
TEST_CASE("frames that gather on an emulated GPU have the bits of lone steps", "[.emulated_at_once]") {
  constexpr std::size_t kThreads = 3, kEach = 12, kAll = kThreads * kEach;
  emulate_launches();
  const Environment tuning("EXPHIL_NATIVE_POLICY", kSettings.c_str());
  const std::shared_ptr<core::Policy> policy = load_on_device(make_gated(spec_of("gru", 41, 34)), 100);
  const auto gatherer = std::make_shared<core::Gatherer>(policy, 16);
  CHECK(gatherer->at_once() == 2);
  std::vector<std::unique_ptr<core::Session>> sessions;
  while (sessions.size() < kAll) {
    sessions.push_back(std::make_unique<core::Session>(policy, core::SessionOptions{}, gatherer));
  }
  const Floats obs = Random(1).vector(kAll * 41, -2, 2);
  std::vector<Floats> last(kAll);
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < kAll; first += kEach) {
    threads.emplace_back([&, first] {
      for (int round = 0; round < 12; ++round) {
        std::vector<std::future<GatheredAnswer>> answers;
        for (std::size_t i = first; i < first + kEach; ++i) {
          answers.push_back(submit(*sessions[i], obs.data() + i * 41));
        }
        for (std::size_t k = 0; k < kEach; ++k) last[first + k] = answers[k].get().out;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kAll; ++i) {
    core::Session lone(policy);
    Floats out(last[i].size());
    for (int round = 0; round < 12; ++round) lone.step(obs.data() + i * 41, out.data());
    wrong += !same_bits(out, last[i]);
  }
  CHECK(wrong == 0);
}

TEST_CASE("two batches of a policy at the same time run without a GPU", "[cuda][policy][emulated][gather]") {
  for (const char* capability : {"90", "80"}) {  // with clusters a frame may be one launch
    require_emulated("[.emulated_at_once]", {{"FAKE_CUDA_CAPABILITY", capability}});
  }
}

TEST_CASE("two batches of a policy at the same time on the GPU", "[cuda][gpu][policy][gather]") {
  if (!have_device()) return;
  for (const std::int64_t count : {70, 300, 1000}) {
    check_two_at_once(make_gated(spec_of("gru", 256, 256)), count, 130, "pinned_answers=1,fused_limit=1",
                      false);
    check_two_at_once(make_policy(PolicySpec{}), count, 130, "pinned_answers=1,fused_limit=1", false);
  }
}

}  // namespace
}  // namespace exphil::test
