// Frames of a policy on the fake driver whose kernels take longer than a caller waits: the same bits, however
// a frame ends, and a session that is as it was where a frame fails. The step's kernel is the fake driver's
// simple one.
#include <algorithm>
#include <thread>

#include "core/session/scratch_step.hpp"
#include "core/session/session.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/device/slow_call.hpp"
#include "cuda/policy/loader.hpp"
#include "support/catch.hpp"
#include "support/policy_forms.hpp"
#include "support/runnable_threads.hpp"

namespace exphil::test {
namespace {

constexpr std::size_t kFrames = 24;
using Floats = std::vector<float>;

// With a controller, so that frames can act.
std::shared_ptr<core::Policy> load() {
  fake().simplify_steps();
  for (const PolicyForm& form : policy_forms({})) {
    if (form.name == "exphil") return cuda::load_policy(cuda::Context::open(0), form.weights, {});
  }
  throw std::logic_error("there is no form named exphil");
}

struct Frame {
  Floats out;
  core::Action action;
  std::vector<std::uint8_t> state;  // after it
};

class Player {
 public:
  explicit Player(std::shared_ptr<core::Policy> policy) : session(policy, options()) {
    const auto width = static_cast<std::size_t>(policy->config().d_input);
    obs_.resize(kFrames * width);
    for (std::size_t i = 0; i < obs_.size(); ++i) obs_[i] = static_cast<float>(i % 13) * 0.25f - 1.0f;
    out.resize(static_cast<std::size_t>(policy->config().d_output));
    width_ = width;
  }
  const float* obs(std::size_t t) const { return obs_.data() + t * width_; }

  // On a thread that must not wait; what came late is finished as `finish` says. Even frames act.
  template <class Finish>
  core::Action play(std::size_t t, Finish finish) {
    try {
      if (t % 2 == 0) return session.act(obs(t), out.data(), false);
      session.step(obs(t), out.data(), false);
      return {};
    } catch (const core::Late& late) {
      return finish(*late.frame);
    } catch (const core::WouldWait&) {
      FAIL("the frame was not sent at once");
      throw;
    }
  }

  core::Session session;
  Floats out;

 private:
  static core::SessionOptions options() {
    core::SessionOptions options;
    options.history = 4;
    options.rules.seed = 7;
    return options;
  }
  Floats obs_;
  std::size_t width_;
};

// The frames of calls that wait.
std::vector<Frame> expected(const std::shared_ptr<core::Policy>& policy) {
  Player player(policy);
  std::vector<Frame> all;
  for (std::size_t t = 0; t < kFrames; ++t) {
    core::Action action;
    if (t % 2 == 0) action = player.session.act(player.obs(t), player.out.data());
    if (t % 2 == 1) player.session.step(player.obs(t), player.out.data());
    all.push_back({player.out, action, player.session.export_state()});
  }
  return all;
}

void check_frame(const Frame& frame, const Frame& right) {
  CHECK(frame.out == right.out);
  CHECK(frame.action.bins == right.action.bins);
  CHECK(frame.action.buttons == right.action.buttons);
  CHECK(frame.state == right.state);
}

}  // namespace

TEST_CASE("late frames have the bits of frames in time", "[.late_frames]") {
  const auto policy = load();
  const std::vector<Frame> right = expected(policy);
  Player player(policy);
  fake().delay(kFakeHeld, 3);
  int late_frames = 0;
  for (std::size_t t = 0; t < kFrames; ++t) {
    const core::Action action = player.play(t, [&](core::LateFrame& late) {
      ++late_frames;
      core::Action answer;
      std::thread([&] { answer = late.answer(player.out.data()); }).join();
      return answer;
    });
    check_frame({player.out, action, player.session.export_state()}, right[t]);
  }
  CHECK(late_frames == kFrames / 3);
  player.session.roll_back(4);
  CHECK(player.session.export_state() == right[kFrames - 5].state);
  fake().delay(0, 1);
}

TEST_CASE("a late frame that nobody answers for is finished by the next call", "[.late_frames]") {
  const auto policy = load();
  const std::vector<Frame> right = expected(policy);
  const std::size_t pinned = fake().pinned_bytes();
  {
    Player player(policy);
    fake().delay(kFakeHeld, 1);
    for (std::size_t t = 0; t < kFrames; ++t) {
      player.play(t, [&](core::LateFrame&) {
        CHECK_THROWS_AS(player.session.step(player.obs(t), player.out.data(), false), core::WouldWait);
        return core::Action();
      });
      CHECK(player.session.export_state() == right[t].state);
    }
    player.play(0, [](core::LateFrame&) { return core::Action(); });
  }
  fake().delay(0, 1);
  CHECK(fake().pinned_bytes() == pinned);
  CHECK(fake().context_depth() == 0);
  CHECK(expected(policy)[3].state == right[3].state);
}

TEST_CASE("a frame that fails leaves the session as it was", "[.late_frames]") {
  const auto policy = load();
  const std::vector<Frame> right = expected(policy);
  Player player(policy);
  player.play(0, [](core::LateFrame&) { return core::Action(); });
  const auto finish = [&](core::LateFrame& late) { return late.answer(player.out.data()); };
  fake().fail_next("cuLaunchKernel", kInvalidValue, 0);
  CHECK(thrown_by([&] { player.play(1, finish); }).kind() == core::ErrorKind::cuda_error);
  CHECK(player.session.export_state() == right[0].state);
  fake().delay(kFakeHeld, 1);
  bool answered = false;
  const core::Error failed = thrown_by([&] {
    player.play(1, [&](core::LateFrame& late) {
      answered = true;
      fake().fail_next("cuStreamSynchronize", kInvalidValue, 0);
      return late.answer(player.out.data());
    });
  });
  CHECK(answered);
  CHECK(failed.kind() == core::ErrorKind::cuda_error);
  CHECK(player.session.export_state() == right[0].state);
  fake().delay(0, 1);
  player.play(1, finish);
  CHECK(player.out == right[1].out);
  CHECK(player.session.export_state() == right[1].state);
}

TEST_CASE("no frame is sent while the driver may be busy with a slow call", "[.late_frames]") {
  const auto policy = load();
  Player player(policy);
  {
    const cuda::SlowCall slow;
    CHECK_THROWS_AS(player.session.step(player.obs(0), player.out.data(), false), core::WouldWait);
  }
  player.session.step(player.obs(0), player.out.data(), false);
  CHECK(player.session.export_state() == [&] {
    Player other(policy);
    other.session.step(other.obs(0), other.out.data());
    return other.session.export_state();
  }());
}

TEST_CASE("a scratch step changes no session, and never waits for long", "[.late_frames]") {
  using Clock = std::chrono::steady_clock;
  const test::RunnableThreads idle(0);
  const auto policy = load();
  const std::vector<Frame> right = expected(policy);
  Player player(policy);
  core::ScratchStep scratch(policy);
  scratch.measure();
  // Steps until one came and went in its time, which a busy machine may take from some of them.
  const auto comes = [&] {
    for (int i = 0; i < 10'000; ++i) {
      core::PollingPlace place;
      if (scratch.run_until(Clock::now() + std::chrono::milliseconds(5), place)) return true;
    }
    return false;
  };
  for (std::size_t t = 0; t < kFrames; ++t) {
    CHECK(comes());
    player.play(t, [&](core::LateFrame& late) { return late.answer(player.out.data()); });
    CHECK(player.out == right[t].out);
    CHECK(player.session.export_state() == right[t].state);
  }

  // By the number of launches, which every step that is sent makes.
  const auto sent = [&](Clock::time_point end) {
    const auto before = fake().calls("cuLaunchKernel");
    core::PollingPlace place;
    CHECK_FALSE(scratch.run_until(end, place));
    return fake().calls("cuLaunchKernel") - before;
  };
  const Clock::time_point later = Clock::now() + std::chrono::hours(1);
  CHECK(sent(Clock::now()) == 0);
  {
    const cuda::SlowCall slow;
    CHECK(sent(later) == 0);
  }
  fake().delay(kFakeHeld, 1);
  CHECK(sent(later) == 1);
  CHECK(sent(later) == 0);  // the last one has not ended
  fake().delay(0, 1);
  CHECK(comes());
  CHECK(player.session.export_state() == right[kFrames - 1].state);
}

TEST_CASE("threads that share sessions finish each other's late frames", "[.late_frames]") {
  const auto policy = load();
  Player shared(policy), alone(policy);
  fake().delay(kFakeHeld, 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Floats out(shared.out.size());
      for (int round = 0; round < 50; ++round) {
        try {
          shared.session.step(shared.obs(0), out.data(), false);
        } catch (const core::Late& late) {
          if (round % 5 != 0) late.frame->answer(out.data());
        } catch (const core::WouldWait&) {
          shared.session.step(shared.obs(0), out.data());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  fake().delay(0, 1);
  for (int round = 0; round < 200; ++round) alone.session.step(alone.obs(0), alone.out.data());
  CHECK(shared.session.export_state() == alone.session.export_state());
}

TEST_CASE("a device that is lost while a frame is late is an error, and unlocks the session",
          "[.late_lost]") {
  const auto policy = load();
  Player player(policy);
  fake().delay(kFakeHeld, 1);
  const core::Error lost = thrown_by([&] {
    player.play(0, [&](core::LateFrame& late) {
      fake().fail_next("cuStreamSynchronize", kIllegalAddress, 0);
      return late.answer(player.out.data());
    });
  });
  CHECK(lost.kind() == core::ErrorKind::device_lost);
  for (const bool may_wait : {false, true}) {
    const core::Error later =
        thrown_by([&] { player.session.step(player.obs(0), player.out.data(), may_wait); });
    CHECK(later.kind() == core::ErrorKind::device_lost);
  }
}

TEST_CASE("frames that a slow device answers late", "[cuda][policy][late][nvrtc]") {
  if (!have_nvrtc()) return;
  for (const char* tag : {"[.late_frames]", "[.late_lost]"}) {
    require_passed(run_over_fake(tag, {{"EXPHIL_NATIVE_POLICY", "team=1,inline_obs=0,batch_agents=1"}}));
  }
}

}  // namespace exphil::test
