#include "host/policy/prefill_ahead.hpp"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "core/work/background.hpp"
#include "core/work/polling.hpp"

namespace exphil::host {

namespace {

// The state after some frames. Uses the policy only while it runs: a job that was dropped may stay in its
// queue for longer than the policy exists.
class Prefill final : public core::Job {
 public:
  Prefill(core::Policy& policy, const AdvanceNew& advance, const float* frames, std::int64_t seq)
      : advance_(advance),
        state_(policy.new_state()),
        frames_(frames, frames + seq * policy.config().d_input),
        seq_(seq) {}

  void run() noexcept override {
    if (!changes(Phase::waiting, Phase::running)) return;
    try {
      advance_(*state_, frames_.data(), seq_);
    } catch (...) {
      error_ = std::current_exception();
    }
    changes(Phase::running, Phase::ended);
  }

  // It does not run from now on, if it does not now. Whether it has ended.
  bool drop() noexcept { return changes(Phase::waiting, Phase::ended) || has_ended(); }
  // The same, but waits where it runs now.
  void end() noexcept {
    if (drop()) return;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return phase_ == Phase::ended; });
  }

  bool done() {
    if (!has_ended()) return false;
    if (error_) std::rethrow_exception(error_);
    return true;
  }
  core::State& state() { return *state_; }

 private:
  enum class Phase { waiting, running, ended };

  bool changes(Phase from, Phase to) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ != from) return false;
    phase_ = to;
    changed_.notify_all();  // with the lock: end() returns no earlier
    return true;
  }
  bool has_ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return phase_ == Phase::ended;
  }

  const AdvanceNew& advance_;
  const std::unique_ptr<core::State> state_;
  const std::vector<float> frames_;
  const std::int64_t seq_;
  std::exception_ptr error_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::waiting;
};

class HostPrefillAhead final : public core::PrefillAhead {
 public:
  HostPrefillAhead(core::Policy& policy, AdvanceNew advance)
      : policy_(policy), advance_(std::move(advance)) {}
  ~HostPrefillAhead() override {
    if (job_) job_->end();
  }

  // All jobs of a policy have one owner: they wait for each other, and other calls for one of them.
  void begin(const float* frames, std::int64_t seq) override {
    if (core::cores_are_wanted() || (job_ && !job_->drop())) throw core::WouldWait{};
    job_ = std::make_shared<Prefill>(policy_, advance_, frames, seq);
    core::submit_job(core::JobKind::compute, reinterpret_cast<std::uintptr_t>(&policy_), job_);
  }
  bool done() override { return job_->done(); }
  void drop() noexcept override { job_->drop(); }
  core::State& state() override { return job_->state(); }

 private:
  core::Policy& policy_;
  const AdvanceNew advance_;
  std::shared_ptr<Prefill> job_;
};

}  // namespace

std::unique_ptr<core::PrefillAhead> make_prefill_ahead(core::Policy& policy, AdvanceNew advance) {
  return std::make_unique<HostPrefillAhead>(policy, std::move(advance));
}

}  // namespace exphil::host
