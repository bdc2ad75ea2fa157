// Sessions that gather over the oracle, and launches that a test holds. Used by
// core/session/gatherer_test.cpp and gatherer_beside_test.cpp.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/session/gatherer.hpp"
#include "core/session/session.hpp"
#include "support/gathered.hpp"
#include "support/numbers.hpp"
#include "support/oracle_policy.hpp"

namespace exphil::test {

constexpr std::size_t kFrames = 700;
inline const float* obs(std::size_t t) {
  static const std::vector<float> all = Random(1).vector(kFrames * kOracleIn, -1, 1);
  return all.data() + t * kOracleIn;
}

// The launches of a policy, which go on one by one as a test lets them.
class Launches {
 public:
  explicit Launches(OracleModel& policy) {
    policy.on_advance = [this](std::int64_t agents) { begin(agents); };
  }
  // Until `count` launches have begun. The last of them waits where hold() was called before.
  void until_begun(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return sizes_.size() >= count; });
  }
  void hold() { set(true); }
  void release() { set(false); }
  // Launches of so many agents go on all the same, until all do.
  void let(std::int64_t agents) {
    const std::lock_guard<std::mutex> lock(mutex_);
    let_.push_back(agents);
    changed_.notify_all();
  }
  void fail_number(std::size_t number) {  // from 1 on
    const std::lock_guard<std::mutex> lock(mutex_);
    fails_ = number;
  }
  void fail_agents(std::int64_t agents) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fails_with_ = agents;
  }
  std::vector<std::int64_t> sizes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sizes_;
  }

 private:
  void begin(std::int64_t agents) {
    std::unique_lock<std::mutex> lock(mutex_);
    sizes_.push_back(agents);
    changed_.notify_all();
    const std::size_t number = sizes_.size();
    changed_.wait(lock, [&] { return !held_ || std::count(let_.begin(), let_.end(), agents) > 0; });
    if (number == fails_ || agents == fails_with_)
      core::fail(core::ErrorKind::cuda_error, "", "the launch fails");
  }
  void set(bool held) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ = held;
    let_.clear();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> let_;
  std::size_t fails_ = 0;
  std::int64_t fails_with_ = 0;
  bool held_ = false;
};

// Cores of a machine where one thread launches and answers, and of one where several do.
constexpr int kFewCores = 2, kManyCores = 16;

// `count` sessions that gather, each after a frame of its own, and the launches since.
struct Fleet {
  explicit Fleet(std::size_t count, std::shared_ptr<OracleModel> of = make_oracle(), int cores = kFewCores)
      : policy(std::move(of)), gatherer(std::make_shared<core::Gatherer>(policy, cores)), launches(*policy) {
    for (std::size_t i = 0; i < count; ++i) {
      sessions.push_back(std::make_unique<core::Session>(policy, core::SessionOptions{}, gatherer));
    }
  }
  core::Session& at(std::size_t i) { return *sessions[i]; }

  const std::shared_ptr<OracleModel> policy;
  const std::shared_ptr<core::Gatherer> gatherer;
  Launches launches;
  std::vector<std::unique_ptr<core::Session>> sessions;
};

// Of a session that plays these frames alone: the last answer, and the state after it.
inline std::pair<std::vector<float>, std::vector<std::uint8_t>> alone(
    const std::vector<std::size_t>& frames) {
  core::Session session(make_oracle());
  std::vector<float> out(kOracleOut);
  for (const std::size_t t : frames) session.step(obs(t), out.data());
  return {out, session.export_state()};
}

}  // namespace exphil::test
