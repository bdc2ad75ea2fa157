// Paced sessions: the prediction of frames, that scratch steps change no answer, and that they end. Nothing
// here depends on how fast the machine is: what takes time is awaited for long enough.
#include "core/session/pace.hpp"

#include <atomic>
#include <functional>
#include <thread>

#include "core/session/frame_times.hpp"
#include "core/session/scratch_step.hpp"
#include "core/session/session.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/policy.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/forwarding_policy.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/runnable_threads.hpp"

namespace exphil {

namespace {

using core::FrameTimes;
using core::Session;
using std::chrono::milliseconds;
using Floats = std::vector<float>;
using Clock = std::chrono::steady_clock;

constexpr core::MicroHertz k200 = 200'000'000;  // 200 FPS

// A host policy that counts its steps. Scratch steps come from the pacing thread.
class CountingPolicy final : public test::ForwardingPolicy {
 public:
  CountingPolicy() : ForwardingPolicy(host::make_policy(*test::make_policy({}), {})) {}
  void advance(core::State* const* from, core::State* const* to, std::int64_t count, const float* obs,
               float* out) override {
    if (std::this_thread::get_id() != caller_) {
      ++scratch;
      if (fails) throw std::bad_alloc();
    }
    ForwardingPolicy::advance(from, to, count, obs, out);
  }

  std::atomic<int> scratch{0};
  std::atomic<bool> fails{false};

 private:
  const std::thread::id caller_ = std::this_thread::get_id();
};

core::SessionOptions paced(core::MicroHertz rate) {
  core::SessionOptions options;
  options.pace = rate;
  return options;
}

// Plays frames at 200 FPS until the condition holds. False where it does not in minutes.
bool play_until(const std::vector<Session*>& sessions, const std::function<bool()>& done) {
  const std::int64_t width = sessions[0]->policy()->config().d_input;
  Floats out(static_cast<std::size_t>(sessions[0]->policy()->config().d_output));
  const Clock::time_point start = Clock::now();
  for (int t = 0; !done(); ++t) {
    const Floats obs =
        test::Random(static_cast<std::uint64_t>(t)).vector(static_cast<std::size_t>(width), -1, 1);
    for (Session* session : sessions) session->step(obs.data(), out.data());
    std::this_thread::sleep_until(start + (t + 1) * milliseconds(5));
    if (t > 60'000) return false;
  }
  return true;
}

// Asks again and again. False where the answer is no for minutes.
bool happens_in_minutes(const std::function<bool()>& happened) {
  const Clock::time_point end = Clock::now() + std::chrono::minutes(5);
  while (!happened()) {
    if (Clock::now() > end) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("frame times: early frames are followed at once, late ones slowly", "[policy][pace]") {
  const milliseconds period(16);
  FrameTimes times(period);
  CHECK(times.next() == Clock::time_point::max());
  const Clock::time_point start = Clock::now();
  const auto due = [&] { return std::chrono::duration<double, std::milli>(times.next() - start).count(); };
  times.arrived(start);
  CHECK(due() == 16);
  times.arrived(start + milliseconds(17));  // a little late
  CHECK(due() == Approx(32.125));
  times.arrived(start + milliseconds(31));  // early
  CHECK(due() == Approx(47));
  times.arrived(start + milliseconds(53));  // far too late, once
  CHECK(due() == Approx(63));
  times.arrived(start + milliseconds(69));
  CHECK(due() == Approx(79));
  times.arrived(start + milliseconds(85));  // the third time it is the new rhythm
  CHECK(due() == Approx(101));
  times.missed();
  CHECK(due() == Approx(117));
  times.arrived(start + milliseconds(101 + 160));  // frames were missing
  CHECK(due() == Approx(277));
  times.arrived(start + milliseconds(262));  // twice in one frame: too early to be the next one
  CHECK(due() == Approx(277 + 0.125));
  times.forget();
  CHECK(times.next() == Clock::time_point::max());
}

TEST_CASE("a paced session answers as any other, and scratch steps run before its frames", "[policy][pace]") {
  const test::RunnableThreads idle(0);
  const auto policy = std::make_shared<CountingPolicy>();
  Session session(policy, paced(k200)), second(policy, paced(k200)), plain(policy);
  CHECK(play_until({&session, &plain, &second}, [&] { return policy->scratch >= 20; }));
  CHECK(session.export_state() == plain.export_state());
  CHECK(second.export_state() == plain.export_state());

  policy->fails = true;  // out of memory in a scratch step is nobody's error
  const int before = policy->scratch;
  CHECK(play_until({&session, &plain}, [&] { return policy->scratch >= before + 5; }));
  CHECK(session.export_state() == plain.export_state());
}

TEST_CASE("scratch steps end when frames do, and go on with them", "[policy][pace]") {
  const test::RunnableThreads idle(0);
  const auto policy = std::make_shared<CountingPolicy>();
  Session session(policy, {});
  const long unpaced = policy.use_count();
  session.set_pace(k200);
  CHECK(play_until({&session}, [&] { return policy->scratch >= 3; }));
  // Missing frames: the thread goes to sleep after eight of them.
  int seen = -1;
  CHECK(happens_in_minutes([&] {
    const int before = seen;
    std::this_thread::sleep_for(milliseconds(200));
    return (seen = policy->scratch) == before;
  }));
  CHECK(play_until({&session}, [&] { return policy->scratch >= seen + 3; }));
  session.set_pace(0);
  // The thread holds the policy until its last scratch step has ended.
  CHECK(happens_in_minutes([&] {
    std::this_thread::sleep_for(milliseconds(1));
    return policy.use_count() == unpaced;
  }));
  const int ended = policy->scratch;
  int frames = 0;
  CHECK(play_until({&session}, [&] { return ++frames > 50; }));
  CHECK(policy->scratch == ended);
  session.set_pace(k200);
  CHECK(play_until({&session}, [&] { return policy->scratch > ended; }));
}

TEST_CASE("frames that the caller has prepared for do not wake the pace", "[policy][pace]") {
  const test::RunnableThreads idle(0);
  const auto policy = std::make_shared<CountingPolicy>();
  Session session(policy, paced(k200));
  CHECK(play_until({&session}, [&] { return policy->scratch >= 3; }));
  // Until nothing happened for 60 frames, which is longer than the thread goes on without one.
  int quiet = 0, seen = -1;
  CHECK(play_until({&session}, [&] {
    session.caller_has_warmed();
    quiet = policy->scratch == seen ? quiet + 1 : 0;
    seen = policy->scratch;
    return quiet > 60;
  }));
  CHECK(play_until({&session}, [&] { return policy->scratch > seen; }));
}

TEST_CASE("a pace makes no scratch step where threads wait for a core", "[policy][pace]") {
  const auto policy = std::make_shared<CountingPolicy>();
  Session session(policy, paced(k200)), plain(policy);
  {
    const test::RunnableThreads idle(0);
    CHECK(play_until({&session, &plain}, [&] { return policy->scratch >= 3; }));
  }
  {
    const test::RunnableThreads busy(100'000);
    // Until nothing happened for 60 frames: the last poll may go on for a while.
    int quiet = 0, seen = -1;
    CHECK(play_until({&session, &plain}, [&] {
      quiet = policy->scratch == seen ? quiet + 1 : 0;
      seen = policy->scratch;
      return quiet > 60;
    }));
  }
  const int rested = policy->scratch;
  const test::RunnableThreads idle(0);
  CHECK(play_until({&session, &plain}, [&] { return policy->scratch >= rested + 3; }));
  CHECK(session.export_state() == plain.export_state());
}

TEST_CASE("a thread that awaits a step takes part in it, with the same bits", "[policy][pace]") {
  const test::RunnableThreads idle(0);
  test::PolicySpec spec;
  spec.d_model = 128, spec.d_inner = 256;  // beyond what one core does alone
  const std::shared_ptr<core::Policy> policy = host::make_policy(*test::make_policy(spec), {});
  Session helped(policy, {}), plain(policy, {});
  std::atomic<bool> stop{false};
  std::atomic<int> parts{0}, awaits{0};
  std::thread helper([&] {
    policy->await_step(true);
    awaits = 1;
    while (!stop) parts += policy->help_step(milliseconds(1)) ? 1 : 0;
    policy->await_step(false);
  });
  while (awaits == 0) std::this_thread::yield();
  // Until some steps had help; where there is one core, none has.
  const auto steps = [&](Session& session, std::uint64_t seed) {
    Floats out(static_cast<std::size_t>(policy->config().d_output));
    session.step(test::Random(seed).vector(static_cast<std::size_t>(policy->config().d_input), -1, 1).data(),
                 out.data());
    return out;
  };
  std::vector<Floats> answers;
  const Clock::time_point end = Clock::now() + std::chrono::minutes(5);
  while (answers.size() < 100 || (parts < 20 && core::threads() > 1 && Clock::now() < end)) {
    answers.push_back(steps(helped, answers.size()));
  }
  stop = true;
  helper.join();
  CHECK((parts >= 20 || core::threads() == 1));
  std::size_t same = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) same += answers[i] == steps(plain, i) ? 1u : 0u;
  CHECK(same == answers.size());
  CHECK(helped.export_state() == plain.export_state());
}

TEST_CASE("a policy that computes in the calling thread makes no bounded scratch step", "[policy][pace]") {
  const auto policy = std::make_shared<CountingPolicy>();
  core::ScratchStep scratch(policy);
  std::thread([&] {
    core::PollingPlace place;
    CHECK_FALSE(scratch.run_until(Clock::now() + std::chrono::seconds(5), place));
    CHECK(policy->scratch == 0);
    scratch.run();
    CHECK(policy->scratch == 1);
  }).join();
}

TEST_CASE("paced sessions come and go on many threads", "[policy][pace][storm]") {
  const std::shared_ptr<core::Policy> policy = host::make_policy(*test::make_policy({}), {});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Floats obs = test::Random(7).vector(static_cast<std::size_t>(policy->config().d_input), -1, 1);
      Floats out(static_cast<std::size_t>(policy->config().d_output));
      for (int round = 0; round < 20; ++round) {
        const auto own = i % 2 == 0 ? policy : host::make_policy(*test::make_policy({}), {});
        Session session(own, paced(1'000'000'000)), plain(own);
        for (int t = 0; t < 10; ++t) {
          session.step(obs.data(), out.data());
          plain.step(obs.data(), out.data());
          if (t == 5) session.set_pace(500'000'000);
          std::this_thread::sleep_for(milliseconds(1));
        }
        wrong += session.export_state() != plain.export_state();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a pace outside the range is refused", "[policy][pace]") {
  for (const double fps : {0.0, -60.0, 10'001.0, 1e300}) {
    const test::CaughtError error = test::error_of([&] { core::pace_rate(fps); });
    CHECK(error.kind == core::ErrorKind::invalid_argument);
    CHECK(error.argument == ":fps");
  }
  CHECK(core::pace_rate(60) == 60'000'000);
}

}  // namespace exphil
