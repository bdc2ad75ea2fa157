// What sessions and groups reserve on a device, so that none of their frames allocates: by the calls of the
// fake driver. Kernels are not run.
#include <memory>
#include <string>
#include <vector>

#include "core/session/gatherer.hpp"
#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using Sessions = std::vector<std::unique_ptr<core::Session>>;

std::shared_ptr<core::Policy> load(std::int64_t max_sessions, std::int64_t d_input = 41) {
  fake().simplify_steps();
  return load_on_device(make_gated(spec_of("gru", d_input, 34)), max_sessions);
}

Sessions sessions_of(const std::shared_ptr<core::Policy>& policy, std::size_t count, std::int64_t window = 0,
                     const std::shared_ptr<core::Gatherer>& gatherer = nullptr) {
  core::SessionOptions options;
  options.window = window;
  Sessions made;
  while (made.size() < count) made.push_back(std::make_unique<core::Session>(policy, options, gatherer));
  return made;
}

std::vector<core::Session*> first_of(const Sessions& sessions, std::size_t count) {
  std::vector<core::Session*> first;
  for (std::size_t i = 0; i < count; ++i) first.push_back(sessions[i].get());
  return first;
}

std::int64_t allocations() {
  return fake().calls("cuMemAlloc") + fake().calls("cuMemHostAlloc");
}

// Of a frame of the group.
std::int64_t allocations_of(core::SessionGroup& group, const core::PolicyConfig& config) {
  const std::vector<float> obs(group.size() * static_cast<std::size_t>(config.d_input), 0.5f);
  std::vector<float> out(group.size() * static_cast<std::size_t>(config.d_output));
  const std::int64_t before = allocations();
  group.step(obs.data(), out.data());
  return allocations() - before;
}
// A launch of a gatherer is a frame of such a group.
std::int64_t allocations_of(const Sessions& sessions, std::size_t count) {
  core::SessionGroup group(first_of(sessions, count));
  return allocations_of(group, sessions[0]->policy()->config());
}

TEST_CASE("no batch of at most as many agents as were reserved allocates", "[.reserve]") {
  const auto policy = load(1024, 300);  // blocks that earlier policies left are too small
  const Sessions sessions = sessions_of(policy, 300);
  policy->reserve_batch(300, 1);
  for (const std::size_t count : {100, 300, 70}) {
    CAPTURE(count);
    CHECK(allocations_of(sessions, count) == 0);
  }
}

TEST_CASE("no launch of sessions that gather allocates, however many sessions there are", "[.reserve]") {
  for (const int cores : {2, 16}) {  // on 16 two launches may be under way
    const auto policy = load(1024);
    const auto gatherer = std::make_shared<core::Gatherer>(policy, cores);
    const Sessions sessions = sessions_of(policy, 1024, 0, gatherer);
    for (const std::size_t count : {512, 1024, 3, 100}) {
      CAPTURE(cores, count);
      CHECK(allocations_of(sessions, count) == 0);
    }
  }
}

TEST_CASE("no frame of a kept group allocates", "[.reserve]") {
  const auto policy = load(200);
  for (const std::int64_t window : {0, 20}) {
    CAPTURE(window);
    const Sessions sessions = sessions_of(policy, 200, window);
    core::SessionGroup group(first_of(sessions, 200));
    group.keep();
    for (int frame = 0; frame < 3; ++frame) CHECK(allocations_of(group, policy->config()) == 0);
  }
}

TEST_CASE("what a policy keeps of groups counts as its memory", "[.reserve]") {
  const auto policy = load(200);
  const Sessions sessions = sessions_of(policy, 100);
  policy->reserve_batch(100, 1);
  const std::size_t without = policy->resident_bytes();
  {
    core::SessionGroup group(first_of(sessions, 100));
    group.keep();
    CHECK(policy->resident_bytes() >= without + 100 * 2 * 3 * 34 * sizeof(float));  // gates of two layers
  }
  CHECK(policy->resident_bytes() == without);
}

TEST_CASE("no launch of windows that gather allocates", "[.reserve]") {
  const auto policy = load(64);
  const auto gatherer = std::make_shared<core::Gatherer>(policy);
  const Sessions sessions = sessions_of(policy, 64, 100, gatherer);
  for (const std::size_t count : {1, 10, 20, 40, 64}) {
    CAPTURE(count);
    CHECK(allocations_of(sessions, count) == 0);
  }
}

TEST_CASE("no launch of windows of several lengths allocates", "[.reserve]") {
  const auto policy = load(64);
  const auto gatherer = std::make_shared<core::Gatherer>(policy);
  Sessions sessions;
  for (std::int64_t i = 0; i < 48; ++i) {
    sessions.push_back(std::move(sessions_of(policy, 1, 100 - 7 * (i % 9), gatherer).front()));
  }
  for (const std::size_t count : {2, 10, 48}) {
    CAPTURE(count);
    CHECK(allocations_of(sessions, count) == 0);
  }
}

TEST_CASE("frames do not allocate", "[cuda][policy][gather]") {
  const std::string settings = "cluster=0,team=1,inline_obs=0,fused_limit=1,batch_frame=2";
  for (const char* capability : {"90", "80"}) {  // with clusters up to 160 agents are one launch
    for (const char* windows : {"", ",window_blocks=0"}) {
      require_emulated("[.reserve]",
                       {{"EXPHIL_NATIVE_POLICY", settings + windows}, {"FAKE_CUDA_CAPABILITY", capability}});
    }
  }
}

}  // namespace
}  // namespace exphil::test
