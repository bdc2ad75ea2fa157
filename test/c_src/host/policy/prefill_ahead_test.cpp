// States that background threads compute between the frames of sessions with a window.
#include "host/policy/prefill_ahead.hpp"

#include "core/session/session.hpp"
#include "core/work/background.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/policy.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/runnable_threads.hpp"
#include "support/waiting.hpp"

namespace exphil {

namespace {

using Floats = std::vector<float>;

// Some 100,000 weights, so that a window of 60 frames is worth a job.
std::shared_ptr<core::Policy> policy_worth_a_job() {
  test::PolicySpec spec;
  spec.d_input = 32, spec.d_model = 64, spec.d_inner = 128, spec.n_layer = 3;
  return host::make_policy(*test::make_policy(spec), {});
}

Floats frames_for(const core::Policy& policy, std::int64_t count, std::uint64_t seed) {
  return test::Random(seed).vector(static_cast<std::size_t>(count * policy.config().d_input), -1, 1);
}

Floats values_of(core::Policy& policy, const core::State& state) {
  Floats values(static_cast<std::size_t>(policy.config().state_floats()));
  policy.read_state(state, values.data());
  return values;
}

TEST_CASE("a state computed ahead on the host is that of a prefill", "[host][policy][window]") {
  const test::RunnableThreads quiet(1);
  const auto policy = policy_worth_a_job();
  const auto ahead = policy->prefill_ahead(130);
  for (const std::int64_t seq : {1, 59, 64, 130}) {
    const Floats frames = frames_for(*policy, seq, static_cast<std::uint64_t>(seq));
    ahead->begin(frames.data(), seq);
    REQUIRE(test::eventually([&] { return ahead->done(); }));
    const auto state = policy->new_state();
    Floats out(static_cast<std::size_t>(seq * policy->config().d_output));
    policy->prefill(*state, frames.data(), seq, out.data());
    CHECK(values_of(*policy, ahead->state()) == values_of(*policy, *state));
  }
}

TEST_CASE("a short window is not begun ahead on the host", "[host][policy][window]") {
  CHECK(policy_worth_a_job()->prefill_ahead(5) == nullptr);
}

TEST_CASE("no state is begun ahead where threads wait for a core", "[host][policy][window]") {
  const auto policy = policy_worth_a_job();
  const auto ahead = policy->prefill_ahead(59);
  const Floats frames = frames_for(*policy, 59, 1);
  const test::RunnableThreads busy(1000);
  REQUIRE(test::eventually(core::cores_are_wanted));  // the answer before may count for a while
  CHECK_THROWS_AS(ahead->begin(frames.data(), 59), core::WouldWait);
}

TEST_CASE("what was dropped is not computed, or keeps the next one waiting", "[host][policy][window]") {
  const test::RunnableThreads quiet(1);
  struct OneThread {
    OneThread() { core::set_threads(1); }
    ~OneThread() { core::set_threads(0); }
  } one_thread;
  const auto policy = policy_worth_a_job();
  test::Gate runs, goes_on;
  std::atomic<int> computed{0};
  auto ahead = host::make_prefill_ahead(*policy, [&](core::State&, const float*, std::int64_t) {
    runs.open();
    goes_on.wait();
    ++computed;
  });
  const Floats frames = frames_for(*policy, 1, 1);
  ahead->begin(frames.data(), 1);
  runs.wait();
  SECTION("while it waits for a thread") {
    std::atomic<int> others{0};
    auto other =
        host::make_prefill_ahead(*policy, [&](core::State&, const float*, std::int64_t) { ++others; });
    other->begin(frames.data(), 1);
    other->drop();
    other->begin(frames.data(), 1);  // at once
    other.reset();                   // does not wait for the one that runs
    goes_on.open();
    REQUIRE(test::eventually([] { return core::job_counts().waiting + core::job_counts().running == 0; }));
    CHECK(others == 0);
    CHECK(computed == 1);
    return;
  }
  CHECK_FALSE(ahead->done());
  ahead->drop();
  CHECK_THROWS_AS(ahead->begin(frames.data(), 1), core::WouldWait);
  goes_on.open();
  SECTION("and then the next one is computed") {
    REQUIRE(test::eventually([&] { return ahead->done(); }));
    ahead->begin(frames.data(), 1);
    REQUIRE(test::eventually([&] { return ahead->done(); }));
    CHECK(computed == 2);
  }
  SECTION("and its end is awaited where the object ends") {
    ahead.reset();
    CHECK(computed == 1);
  }
}

TEST_CASE("a state that could not be computed is an error of the call that asks for it",
          "[host][policy][window]") {
  const test::RunnableThreads quiet(1);
  const auto policy = policy_worth_a_job();
  const auto ahead = host::make_prefill_ahead(
      *policy, [](core::State&, const float*, std::int64_t) { throw std::bad_alloc(); });
  const Floats frames = frames_for(*policy, 1, 1);
  ahead->begin(frames.data(), 1);
  CHECK(test::eventually([&] {
    try {
      return ahead->done() && false;
    } catch (const std::bad_alloc&) {
      return true;
    }
  }));
}

TEST_CASE("frames of a window session on the host are steps from states computed ahead",
          "[host][policy][window]") {
  const test::RunnableThreads quiet(1);
  const auto policy = policy_worth_a_job();
  core::SessionOptions options;
  options.window = 60, options.pad = core::Pad::none;
  core::Session session(policy, options);
  REQUIRE(session.begins_windows());
  const Floats frames = frames_for(*policy, 100, 3);
  const auto width = policy->config().d_input;
  Floats out(static_cast<std::size_t>(policy->config().d_output)), expected(out.size());
  CHECK_THROWS_AS(session.step(frames.data(), out.data(), false), core::WouldWait);
  session.step(frames.data(), out.data());
  for (std::int64_t t = 1; t < 100; ++t) {
    REQUIRE(test::eventually([&] { return session.splits_frames(); }));
    REQUIRE(test::eventually([] { return core::job_counts().waiting + core::job_counts().running == 0; }));
    session.recorded();  // its thread has done with it
    session.step(frames.data() + t * width, out.data(), false);
    const std::int64_t seq = std::min<std::int64_t>(t + 1, 60);
    policy->window(frames.data() + (t + 1 - seq) * width, 1, seq, expected.data());
    CHECK(out == expected);
  }
}

}  // namespace

}  // namespace exphil
