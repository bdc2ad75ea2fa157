// Frames that are launched ahead of their observation (latency: :armed): the bits of plain frames, however
// the launch ends; and no launch waits on the device while something else uses it. On the fake driver the
// step's kernel is its simple one, which waits as the real one does; on the emulated GPU it is the real one.
// What disturbs the launches of one device leaves those of another as they are.
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "core/session/session_group.hpp"
#include "cuda/armed_player.hpp"
#include "cuda/device/slow_call.hpp"
#include "cuda/emulated_gpu.hpp"
#include "host/policy/policy.hpp"
#include "support/catch.hpp"
#include "support/random_sessions.hpp"

namespace exphil::test {
namespace {

// used: whether the launches ahead of the observations have to be the ones that answer.
// states: whether the kernels write whole states, which the simple steps do not.
void check_frames(bool used, bool states) {
  const SharedPolicy policy = load_armed_policy();
  ArmedPlayer plain(policy, false), armed(policy, true);
  std::vector<Floats> right;
  for (std::size_t t = 0; t < kArmedFrames; ++t) right.push_back(plain.play(t));
  const std::int64_t before = launches();
  for (std::size_t t = 0; t < kArmedFrames; ++t) {
    armed.session.arm();
    CHECK(armed.play(t) == right[t]);
  }
  if (used) CHECK(launches() - before <= static_cast<std::int64_t>(kArmedFrames + kArmedFrames / 8));
  if (states) CHECK(armed.session.export_state() == plain.session.export_state());
}

struct Disturbance {
  std::string name;
  // Called with a session whose next frame is launched, and with a plain one.
  std::function<void(ArmedPlayer&)> run;
  // Whether the new state is written by kernels that the fake driver does not run: there the session takes
  // over a slot with what it held before.
  bool by_other_kernels = false;
};

std::vector<Disturbance> disturbances(const SharedPolicy& policy) {
  const auto context = cuda::Context::open(0);
  const auto kept = std::make_shared<Bytes>(ArmedPlayer(policy, false).session.export_state());
  return {
      {"snapshot and restore", [](ArmedPlayer& p) { p.session.restore(*p.session.snapshot()); }},
      {"restore of another state",
       [](ArmedPlayer& p) {
         const auto snapshot = p.session.snapshot();
         p.session.arm();
         p.play(3);
         p.session.arm();
         p.session.restore(*snapshot);
       }},
      {"roll_back", [](ArmedPlayer& p) { p.session.roll_back(2); }},
      {"resimulate", [](ArmedPlayer& p) { p.session.resimulate(2, p.obs(0), 3, p.out.data()); }, true},
      {"prefill", [](ArmedPlayer& p) { p.session.prefill(p.obs(1), 3, p.out.data()); }, true},
      {"export_state", [](ArmedPlayer& p) { p.session.export_state(); }},
      {"import_state", [kept](ArmedPlayer& p) { p.session.import_state(kept->data(), kept->size()); }},
      {"a step that may wait", [](ArmedPlayer& p) { p.session.step(p.obs(5), p.out.data()); }},
      {"another session's step", [policy](ArmedPlayer&) { ArmedPlayer(policy, false).play(0); }},
      {"another armed session's step",
       [policy](ArmedPlayer&) {
         ArmedPlayer other(policy, true);
         other.session.arm();
         other.play(0);
         other.session.arm();
       }},
      {"step_batch",
       [policy](ArmedPlayer& p) {
         ArmedPlayer other(policy, false);
         const Floats obs(18, 0.5f);
         core::SessionGroup({&p.session, &other.session}).step(obs.data(), p.out.data());
       },
       true},
      {"window", [policy](ArmedPlayer& p) { policy->window(p.obs(0), 2, 2, p.out.data()); }},
      {"an allocation", [context](ArmedPlayer&) { context->device_pool().allocate(12 << 20); }},
      {"a free", [context](ArmedPlayer&) { context->device_pool().trim(); }},
      {"a slow call", [](ArmedPlayer&) { const cuda::SlowCall slow; }},
      {"a synchronised stream", [context](ArmedPlayer&) { cuda::StreamLease(*context).synchronize(); }},
      {"the end of the policy",
       [](ArmedPlayer&) {
         const SharedPolicy other = load_armed_policy();
         ArmedPlayer on_other(other, true);
         on_other.session.arm();
       }},
  };
}

// Each disturbance of a session whose next frame is launched, then three frames: all as a plain session, and
// nothing waits until the launch is over by itself.
void check_disturbances(bool whole_states) {
  const SharedPolicy policy = load_armed_policy();
  const Bytes known = ArmedPlayer(policy, false).session.export_state();
  for (const Disturbance& disturbance : disturbances(policy)) {
    INFO(disturbance.name);
    const std::int64_t timeouts = fake().armed_timeouts();
    std::vector<std::vector<Floats>> outs;
    std::vector<Bytes> states;
    for (const bool armed : {false, true}) {
      ArmedPlayer player(policy, armed);
      outs.emplace_back();
      for (std::size_t t = 0; t < 4; ++t) player.session.arm(), player.play(t);
      player.session.arm();
      disturbance.run(player);
      if (disturbance.by_other_kernels && !whole_states) {
        player.session.import_state(known.data(), known.size());
      }
      for (std::size_t t = 4; t < 7; ++t) outs.back().push_back(player.play(t));
      states.push_back(player.session.export_state());
    }
    CHECK(outs[0] == outs[1]);
    if (whole_states) CHECK(states[0] == states[1]);
    CHECK(fake().armed_timeouts() == timeouts);
  }
}

}  // namespace

TEST_CASE("armed frames have the bits of plain frames", "[.armed_frames]") {
  fake().simplify_steps();
  check_frames(true, false);
  check_disturbances(false);
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("a launch whose time is over leaves the frame to a plain one", "[.armed_over]") {
  fake().simplify_steps();
  check_frames(false, false);
  check_disturbances(false);
}

TEST_CASE("emulated armed frames have the bits of plain frames", "[.armed_emulated]") {
  emulate_launches();
  check_frames(true, true);
  check_disturbances(true);
  CHECK(emulated_launches("policy_step_armed") > 0);
}

TEST_CASE("random operations of emulated armed sessions", "[.armed_sessions]") {
  emulate_launches();
  PolicySpec spec;
  core::PolicyOptions options;
  options.max_sessions = 400;
  check_random_sessions({cuda::load_policy(cuda::Context::open(0), make_policy(spec), options)},
                        session_operations(256), 5, true);
  CHECK(emulated_launches("policy_step_armed") > 0);
}

// Two of four devices. The frame that waits on device 0 is answered by the launch that waited for it.
TEST_CASE("a launch on one device waits while another device is used", "[.armed_devices]") {
  fake().simplify_steps();
  const SharedPolicy here = load_armed_policy(0), there = load_armed_policy(2);
  const auto context = cuda::Context::open(2);
  ArmedPlayer plain(here, false), armed(here, true);
  // The first one takes page-locked memory, which concerns every device.
  ArmedPlayer(there, true).play(0);
  for (std::size_t t = 0; t < 4; ++t) plain.play(t), armed.session.arm(), armed.play(t);
  const std::vector<std::pair<std::string, std::function<void()>>> uses = {
      {"steps", [&] { ArmedPlayer(there, false).play(0); }},
      {"an armed session",
       [&] {
         ArmedPlayer other(there, true);
         other.session.arm();
         other.play(0);
         other.session.arm();
       }},
      {"a snapshot", [&] { ArmedPlayer(there, false).session.snapshot(); }},
      {"an allocation", [&] { context->device_pool().allocate(12 << 20); }},
      {"a free", [&] { context->device_pool().trim(); }},
      {"a slow call", [&] { const cuda::SlowCall slow(&context->armed()); }},
      {"a synchronised stream", [&] { cuda::StreamLease(*context).synchronize(); }},
  };
  for (std::size_t i = 0; i < uses.size(); ++i) {
    INFO(uses[i].first);
    armed.session.arm();
    uses[i].second();
    const std::int64_t before = launches();
    armed.session.arm();  // launches where nothing waits any more
    CHECK(launches() == before);
    CHECK(armed.play(4 + i) == plain.play(4 + i));
  }
  CHECK(fake().armed_timeouts() == 0);
}

TEST_CASE("a launch that waits is dropped with its session and its policy", "[.armed_frames]") {
  fake().simplify_steps();
  const auto context = cuda::Context::open(0);
  const std::size_t device = context->device_pool().held_bytes(),
                    pinned = context->pinned_pool().held_bytes();
  const std::int64_t timeouts = fake().armed_timeouts();
  {
    const SharedPolicy policy = load_armed_policy();
    for (int i = 0; i < 3; ++i) {
      ArmedPlayer player(policy, true);
      player.play(0);
      player.session.arm();
    }
    ArmedPlayer(policy, true).session.arm();
  }
  CHECK(fake().armed_timeouts() == timeouts);
  CHECK(context->device_pool().held_bytes() == device);
  CHECK(context->pinned_pool().held_bytes() == pinned);
}

TEST_CASE("threads that share armed sessions, and allocate meanwhile", "[.armed_frames]") {
  fake().simplify_steps();
  const SharedPolicy policy = load_armed_policy();
  ArmedPlayer first(policy, true), second(policy, true), alone(policy, false);
  const auto context = cuda::Context::open(0);
  std::vector<std::thread> threads;
  for (ArmedPlayer* player : {&first, &second, &first}) {
    threads.emplace_back([&, player] {
      ArmedPlayer own(policy, false);
      Floats out(own.out.size());
      for (int round = 0; round < 300; ++round) {
        if (round % 3 != 0) player->session.arm();
        step_without_waiting(player->session, own.obs(0), out.data());
      }
    });
  }
  threads.emplace_back([&] {
    for (int round = 0; round < 300; ++round) {
      const cuda::SlowCall slow;
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  for (int round = 0; round <= 300; ++round) alone.play(0);
  CHECK(second.play(0) == alone.out);
  for (int round = 0; round < 300; ++round) alone.play(0);
  CHECK(first.play(0) == alone.out);
}

namespace {

core::Error refused(const SharedPolicy& policy, std::int64_t window) {
  core::SessionOptions options;
  options.armed = true, options.window = window;
  return thrown_by([&] { core::Session(policy, options); });
}

void check_over_fake(const char* tag, const char* wait) {
  const RunResult run = run_over_fake(tag, {{"EXPHIL_NATIVE_POLICY", std::string(kSimpleSteps) + wait}});
  INFO(tag << "\n" << run.output);
  CHECK(run.status == 0);
}

}  // namespace

TEST_CASE("an old GPU has no armed frames", "[.armed_refused]") {
  fake().simplify_steps();
  const core::Error error = refused(load_armed_policy(), 0);
  CHECK(error.kind() == core::ErrorKind::unsupported);
  CHECK(contains(error.what(), "compute capability 9.0"));
}

TEST_CASE("armed frames are refused where they cannot be had", "[policy][armed]") {
  const SharedPolicy policy = host::make_policy(*make_policy({}), {});
  for (const std::int64_t window : {0, 3}) {
    const core::Error error = refused(policy, window);
    CHECK(error.kind() == core::ErrorKind::unsupported);
    CHECK(error.argument() == ":latency");
    CHECK(contains(error.what(), "CPU backend"));
  }
}

TEST_CASE("random operations of armed sessions on a GPU", "[cuda][gpu][policy][armed][sessions]") {
  if (!have_device() || cuda::query_device(0).architecture() < 90) return;
  PolicySpec spec;
  spec.d_input = 9, spec.d_model = 34, spec.d_inner = 70, spec.d_state = 5;
  core::PolicyOptions options;
  options.max_sessions = 400;
  const auto weights = in_every_precision(*make_policy(spec));
  std::vector<SharedPolicy> policies;
  for (const auto& chosen : {weights.front(), weights.back()}) {
    policies.push_back(cuda::load_policy(cuda::Context::open(0), chosen, options));
  }
  check_random_sessions(policies, session_operations(20'000), 11, true);
}

TEST_CASE("armed frames on the fake driver", "[cuda][policy][armed][nvrtc]") {
  if (!have_nvrtc()) return;
  check_over_fake("[.armed_frames]", kLongWait);
  check_over_fake("[.armed_over]", kNoWait);
  const RunResult devices = run_over_fake(
      "[.armed_devices]",
      {{"EXPHIL_NATIVE_POLICY", std::string(kSimpleSteps) + kLongWait}, {"FAKE_CUDA_DEVICES", "4"}});
  INFO(devices.output);
  CHECK(devices.status == 0);
  const RunResult old = run_over_fake(
      "[.armed_refused]", {{"EXPHIL_NATIVE_POLICY", kSimpleSteps}, {"FAKE_CUDA_CAPABILITY", "80"}});
  INFO(old.output);
  CHECK(old.status == 0);
}

// The fake driver has one queue for all streams of a device, so in the storm of operations a launch that
// waits is in the way of other streams' work, and waits for less.
TEST_CASE("armed frames run without a GPU", "[cuda][policy][armed][emulated]") {
  for (const auto& [tag, wait] :
       {std::pair("[.armed_emulated]", kLongWait), std::pair("[.armed_sessions]", kShortWait)}) {
    require_emulated(
        tag, {{"EXPHIL_NATIVE_POLICY", std::string(kEmulatedPolicy) + wait}, {"FAKE_CUDA_CAPABILITY", "90"}});
  }
}

}  // namespace exphil::test
