// Frames of window sessions that were begun ahead: which are, and that all have the bits of whole windows.
// The policy computes on the host and says that it is a device.
#include "core/session/window_ahead.hpp"

#include <condition_variable>
#include <mutex>

#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "host/policy/policy.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/forwarding_policy.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"

namespace exphil {

namespace {

using core::Session;
using Floats = std::vector<float>;

class AheadPolicy final : public test::ForwardingPolicy {
 public:
  explicit AheadPolicy(std::shared_ptr<core::Policy> policy) : ForwardingPolicy(std::move(policy)) {}
  bool on_device() const override { return true; }
  std::unique_ptr<core::SplitStep> split_step() override { return std::make_unique<Split>(*this); }
  std::unique_ptr<core::SplitStep> armed_step(Frames frames) override {
    CHECK(frames == Frames::each_by_itself);
    return split_step();
  }
  std::unique_ptr<core::PrefillAhead> prefill_ahead(std::int64_t seq) override {
    longest = seq;
    return std::make_unique<Ahead>(*this);
  }

  void advance(core::State* const* from, core::State* const* to, std::int64_t count, const float* obs,
               float* out) override {
    steps += count;
    ForwardingPolicy::advance(from, to, count, obs, out);
  }

  // Until so many states were begun, and until the thread has seen that they are there.
  void await_begun(int count) { await(begun_, count); }
  void await_there(int count) { await(there_, count); }

  std::atomic<std::int64_t> steps{0};  // frames, all from such states but those of carried sessions
  std::atomic<std::int64_t> longest{0};
  std::atomic<int> refusals{0};  // so many times in a row a state cannot be begun yet
  std::atomic<bool> late{false}, step_fails{false}, ahead_fails{false}, ahead_takes_long{false};
  // The state that a launch ahead waits with, where there is one, and how many such launches frames had.
  std::atomic<const core::State*> armed{nullptr};
  std::atomic<int> used{0};
  std::atomic<bool> armed_changed{false};  // that state was begun anew meanwhile

 private:
  class Split final : public core::SplitStep {
   public:
    explicit Split(AheadPolicy& policy) : policy_(policy) {}
    void begin(const core::State& from, core::State& to, const float* obs) override {
      if (policy_.armed.exchange(nullptr) == &from) ++policy_.used;
      from_ = const_cast<core::State*>(&from), to_ = &to;
      obs_.assign(obs, obs + policy_.config().d_input);
    }
    bool finish_within(std::chrono::microseconds, float* out) override {
      if (policy_.late) return false;
      return finish(out), true;
    }
    void finish(float* out) override {
      if (policy_.step_fails) core::fail(core::ErrorKind::cuda_error, "", "the step fails");
      policy_.advance(&from_, &to_, 1, obs_.data(), out);
    }
    void arm(const core::State& from) noexcept override { policy_.armed = &from; }
    void disarm() noexcept override { policy_.armed = nullptr; }

   private:
    AheadPolicy& policy_;
    core::State *from_ = nullptr, *to_ = nullptr;
    Floats obs_;
  };
  class Ahead final : public core::PrefillAhead {
   public:
    explicit Ahead(AheadPolicy& policy)
        : policy_(policy), fresh_(policy.new_state()), state_(policy.new_state()) {}
    void begin(const float* frames, std::int64_t seq) override {
      if (policy_.refusals > 0) {
        --policy_.refusals;
        throw core::WouldWait{};
      }
      if (policy_.armed == state_.get()) policy_.armed_changed = true;
      policy_.copy_state(*state_, *fresh_);
      Floats out(static_cast<std::size_t>(seq * policy_.config().d_output));
      policy_.prefill(*state_, frames, seq, out.data());
      seen_ = false;
      policy_.count(policy_.begun_);
      if (policy_.ahead_fails) core::fail(core::ErrorKind::cuda_error, "", "the prefill fails");
    }
    bool done() override {
      if (policy_.ahead_takes_long) return false;
      if (!std::exchange(seen_, true)) policy_.count(policy_.there_);
      return true;
    }
    core::State& state() override { return *state_; }

   private:
    AheadPolicy& policy_;
    const std::unique_ptr<core::State> fresh_, state_;
    bool seen_ = false;
  };

  void count(int& number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++number;
    changed_.notify_all();
  }
  void await(const int& number, int least) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return number >= least; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0, there_ = 0;
};

constexpr std::int64_t kWindow = 5, kHistory = 3;

// A session whose frames are begun ahead, and one whose frames are whole windows.
class Play {
 public:
  explicit Play(core::Pad pad = core::Pad::repeat, bool armed = false) {
    options.window = kWindow, options.history = kHistory, options.pad = pad;
    whole.emplace(host_, options);
    options.armed = armed;
    session.emplace(policy, options);
  }

  // The next frame of both. ready: when the state before it is there.
  void step(bool ready, bool may_wait = false) {
    if (ready) settle();
    next();
    session->step(obs_.data(), out_.data(), may_wait);
    check_whole();
  }
  // After a call that changes the frames of both: the next frame is a whole window.
  void step_anew() {
    const std::int64_t before = policy->steps;
    step(false, true);
    CHECK(policy->steps == before);
  }
  // Until the state after the last frame is there, or those of so many sessions, and the thread has done with
  // the session.
  void settle(int sessions = 1) {
    policy->await_there(prepared_ += sessions);
    session->recorded();
  }
  void next() {
    obs_ = test::Random(++seed_).vector(static_cast<std::size_t>(host_->config().d_input), -1, 1);
  }
  void check_whole() {
    Floats expected(out_.size());
    whole->step(obs_.data(), expected.data());
    CHECK(out_ == expected);
  }

  core::SessionOptions options;
  const std::shared_ptr<core::Policy> host_ = host::make_policy(*test::make_policy({}), {});
  const std::shared_ptr<AheadPolicy> policy = std::make_shared<AheadPolicy>(host_);
  std::optional<Session> session, whole;
  Floats obs_, out_ = Floats(static_cast<std::size_t>(host_->config().d_output));

 private:
  std::uint64_t seed_ = 0;
  int prepared_ = 0;
};

TEST_CASE("frames of a window session are steps from states that were computed ahead", "[session][window]") {
  for (const core::Pad pad : {core::Pad::repeat, core::Pad::zeros, core::Pad::none}) {
    Play play(pad);
    CHECK(play.policy->longest == kWindow - 1);
    play.step(false, true);
    for (int t = 1; t < 20; ++t) play.step(true, t % 3 == 0);
    CHECK(play.policy->steps == 19);
  }
}

TEST_CASE("frames begun ahead are dropped where others are played", "[session][window]") {
  Play play;
  play.step(false, true);
  play.step(true);
  play.step(true);
  play.settle();
  SECTION("rolled back") {
    for (auto* session : {&*play.session, &*play.whole}) session->roll_back(2);
  }
  SECTION("played again") {
    const Floats frames = test::Random(99).vector(2 * play.obs_.size(), -1, 1);
    for (auto* session : {&*play.session, &*play.whole}) {
      Floats out(2 * play.out_.size());
      session->resimulate(2, frames.data(), 2, out.data());
    }
  }
  SECTION("restored") {
    for (auto* session : {&*play.session, &*play.whole}) {
      const auto snapshot = session->snapshot();
      Floats out(play.out_.size());
      session->step(play.obs_.data(), out.data());
      if (session == &*play.session) play.settle();
      session->restore(*snapshot);
    }
  }
  SECTION("imported") {
    const auto bytes = play.whole->export_state();
    for (auto* session : {&*play.session, &*play.whole}) session->import_state(bytes.data(), bytes.size());
  }
  SECTION("filled") {
    const Floats frames = test::Random(98).vector(7 * play.obs_.size(), -1, 1);
    for (auto* session : {&*play.session, &*play.whole}) {
      Floats out(7 * play.out_.size());
      session->prefill(frames.data(), 7, out.data());
    }
  }
  play.step_anew();
  play.step(true);
}

TEST_CASE("frames of a group are steps where their states were computed ahead", "[session][window]") {
  Play play;
  Session second(play.policy, play.options), second_whole(play.host_, play.options);
  Session carried(play.policy, {}), carried_alone(play.host_, {});
  play.step(false, true);
  play.settle();
  core::SessionGroup group({&second, &*play.session, &carried});
  const std::size_t width = play.obs_.size(), outputs = play.out_.size();
  for (std::uint64_t t = 0; t < 4; ++t) {
    const Floats obs = test::Random(70 + t).vector(3 * width, -1, 1);
    Floats out(3 * outputs), expected(3 * outputs);
    const std::int64_t before = play.policy->steps;
    group.step(obs.data(), out.data());
    // That of the second one was not begun before the first frame; one is carried.
    CHECK(play.policy->steps == before + (t == 0 ? 2 : 3));
    second_whole.step(obs.data(), expected.data());
    play.whole->step(obs.data() + width, expected.data() + outputs);
    carried_alone.step(obs.data() + 2 * width, expected.data() + 2 * outputs);
    CHECK(out == expected);
    play.settle(2);
    second.recorded();
  }
}

TEST_CASE("a window whose frames could not be begun ahead is answered whole", "[session][window]") {
  Play play;
  SECTION("failed") {
    play.policy->ahead_fails = true;
    play.step(false, true);
    play.policy->await_begun(1);
    play.session->recorded();
    play.step_anew();
    play.policy->ahead_fails = false;
  }
  SECTION("under way") {
    play.policy->ahead_takes_long = true;
    play.step(false, true);
    play.policy->await_begun(1);
    play.next();
    CHECK_THROWS_AS(play.session->step(play.obs_.data(), play.out_.data(), false), core::WouldWait);
    play.session->step(play.obs_.data(), play.out_.data());
    play.check_whole();
    CHECK(play.policy->steps == 0);
    play.policy->ahead_takes_long = false;
  }
}

TEST_CASE("a state that cannot be begun yet is tried again", "[session][window]") {
  Play play;
  play.policy->refusals = 3;
  play.step(false, true);
  play.step(true);
  CHECK(play.policy->refusals == 0);
  CHECK(play.policy->steps == 1);
}

// Rolled back before each frame. The first frame of all counts too: nothing was begun for it.
TEST_CASE("frames are not begun where those before were begun in vain", "[session][window]") {
  Play play;
  play.step(false, true);
  for (const int passed : {1, 3, 7, 15, 15}) {
    play.settle();
    for (int t = 0; t <= passed; ++t) {
      for (auto* session : {&*play.session, &*play.whole}) session->roll_back(1);
      play.step_anew();
    }
  }
  play.step(true);
  for (auto* session : {&*play.session, &*play.whole}) session->roll_back(1);
  play.step_anew();
  play.step(true);
}

TEST_CASE("a step from a state computed ahead may fail or be late", "[session][window]") {
  Play play;
  play.step(false, true);
  play.settle();
  play.next();
  SECTION("failed: the frame is played again") {
    play.policy->step_fails = true;
    CHECK(test::error_of([&] { play.session->step(play.obs_.data(), play.out_.data(), false); }).kind ==
          core::ErrorKind::cuda_error);
    play.policy->step_fails = false;
    play.session->step(play.obs_.data(), play.out_.data());
  }
  SECTION("late") {
    play.policy->late = true;
    try {
      play.session->step(play.obs_.data(), play.out_.data(), false);
      FAIL("it was not late");
    } catch (const core::Late& late) {
      play.policy->late = false;
      late.frame->answer(play.out_.data());
    }
  }
  SECTION("late, and another call comes first") {
    play.policy->late = true;
    CHECK_THROWS_AS(play.session->step(play.obs_.data(), play.out_.data(), false), core::Late);
    CHECK(play.session->recorded() == 2);
    play.policy->late = false;
    play.whole->step(play.obs_.data(), play.out_.data());
    play.next();
    play.session->step(play.obs_.data(), play.out_.data());
  }
  play.check_whole();
}

TEST_CASE("an armed window is launched ahead from the state that is there, and not from others",
          "[session][window]") {
  Play play(core::Pad::repeat, true);
  play.session->arm();
  CHECK(play.policy->armed == nullptr);
  play.step(false, true);
  for (int t = 1; t < 20; ++t) {
    play.settle();
    if (t % 4 != 0) play.session->arm();
    CHECK((play.policy->armed != nullptr) == (t % 4 != 0));
    play.next();
    play.session->step(play.obs_.data(), play.out_.data(), false);
    play.check_whole();
  }
  CHECK(play.policy->used == 15);
  play.settle();
  play.session->arm();
  for (auto* session : {&*play.session, &*play.whole}) session->roll_back(1);
  play.step_anew();
  play.step(true);
  CHECK(play.policy->used == 15);
  CHECK_FALSE(play.policy->armed_changed);
  play.settle();
  play.session->arm();
  play.session.reset();
  CHECK(play.policy->armed == nullptr);
}

TEST_CASE("a session may end while its next frame is begun", "[session][window]") {
  for (int i = 0; i < 50; ++i) {
    Play play;
    play.step(false, true);
    if (i % 2 == 0) play.policy->await_begun(1);
  }
}

}  // namespace

}  // namespace exphil
