// A Policy over the scalar oracle, for tests of sessions. It detects two concurrent calls on one state, and
// may split its frames as a policy on a device does, whose answers come late or fail.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/policy/policy.hpp"
#include "core/policy/reference.hpp"
#include "support/policy.hpp"

namespace exphil::test {

struct OracleState final : core::State {
  explicit OracleState(const core::PolicyConfig& config) : values(config) {}
  core::PolicyReferenceState values;
  std::atomic<int> users{0};
};

// A Policy over the scalar oracle. It detects two concurrent calls on one state.
class OracleModel final : public core::Policy {
 public:
  explicit OracleModel(std::shared_ptr<const core::PolicyWeights> weights) : weights_(std::move(weights)) {}

  const core::PolicyConfig& config() const override { return weights_->config; }
  std::uint64_t fingerprint() const override { return weights_->fingerprint; }
  std::size_t resident_bytes() const override { return 0; }
  std::unique_ptr<core::State> new_state() override { return std::make_unique<OracleState>(config()); }
  void copy_state(core::State& to, const core::State& from) override {
    const Exclusive use(this, of(to));
    of(to).values = static_cast<const OracleState&>(from).values;
  }
  void read_state(const core::State& state, float* to) override {
    const core::PolicyReferenceState& values = static_cast<const OracleState&>(state).values;
    for (std::size_t i = 0; i < values.values.size(); ++i) to[i] = static_cast<float>(values.values[i]);
  }
  void write_state(core::State& state, const float* from) override {
    core::PolicyReferenceState& values = of(state).values;
    values.values.assign(from, from + values.values.size());
  }
  void advance(core::State* const* from, core::State* const* to, std::int64_t count, const float* obs,
               float* out) override {
    std::unique_lock<std::mutex> alone(batches_, std::defer_lock);
    if (count > 1 && guesses) alone.lock();
    advance_alone(from, to, count, obs, out);
  }
  void advance_alone(core::State* const* from, core::State* const* to, std::int64_t count, const float* obs,
                     float* out) {
    const int advancing = ++advancing_;
    for (int most = most_advancing; most < advancing;) most_advancing.compare_exchange_weak(most, advancing);
    const std::unique_ptr<std::atomic<int>, Leave> leaves(&advancing_);
    if (on_advance) on_advance(count);
    for (std::int64_t i = 0; i < count; ++i) {
      if (from[i] != to[i]) copy_state(*to[i], *from[i]);
      prefill(*to[i], obs + i * config().d_input, 1, out + i * config().d_output);
    }
  }
  bool advance_group_if(const std::function<bool()>& is_right, const core::GroupStates& states,
                        std::int64_t count, const float* obs, float* out) override {
    if (!guesses) return false;
    const std::lock_guard<std::mutex> alone(batches_);
    if (!is_right()) return ++wrong_guesses, false;
    ++right_guesses;
    advance_alone(states.from, states.to, count, obs, out);
    return true;
  }
  void advance_chain(core::State& from, core::State* const* to, std::int64_t seq, const float* frames,
                     float* out) override {
    core::State* before = &from;
    for (std::int64_t t = 0; t < seq; before = to[t++]) {
      advance(&before, to + t, 1, frames + t * config().d_input, out + t * config().d_output);
    }
  }
  void reserve_chain(std::int64_t) override {}
  std::unique_ptr<core::GroupMemory> group_memory(std::int64_t) override {
    if (on_group_memory) on_group_memory();
    return nullptr;
  }
  bool on_device() const override { return splits; }
  int batches_at_once() const override { return at_once; }
  void reserve_batch(std::int64_t, int batches) override { reserved_at_once = batches; }
  std::unique_ptr<core::SplitStep> split_step() override {
    return splits ? std::make_unique<Split>(*this) : nullptr;
  }
  void prefill(core::State& state, const float* frames, std::int64_t seq, float* out) override {
    const Exclusive use(this, of(state));
    std::vector<double> row(static_cast<std::size_t>(config().d_output));
    for (std::int64_t t = 0; t < seq; ++t) {
      core::policy_reference_step(*weights_, of(state).values, frames + t * config().d_input, row.data());
      for (std::size_t k = 0; k < row.size(); ++k) {
        out[t * config().d_output + static_cast<std::int64_t>(k)] = static_cast<float>(row[k]);
      }
    }
  }
  void window(const float*, std::int64_t, std::int64_t, float*) override {}
  std::unique_ptr<core::FrameRing> new_ring(std::int64_t) override { return nullptr; }

  std::atomic<int> collisions{0};
  // Of the sessions that are made from now on. A late frame comes only where it is waited for without a
  // bound.
  bool splits = false;
  // Batches that it can use at the same time, set before any call; what was reserved last, and the most
  // advances that were under way at the same time.
  int at_once = 1;
  std::atomic<int> reserved_at_once{0}, most_advancing{0};
  std::atomic<bool> late{false}, fails{false};
  std::atomic<int> dropped{0};  // frames
  // Whether it begins with the frame of a group that is perhaps not the call's, and holds what other batches
  // wait for meanwhile, as a policy on a device does. Set before any call.
  bool guesses = false;
  std::atomic<int> right_guesses{0}, wrong_guesses{0};
  // Called first by each advance, with its agents; what it throws, the advance throws. Set before any call.
  std::function<void(std::int64_t)> on_advance;
  std::function<void()> on_group_memory;  // the same of group_memory()

 private:
  struct Leave {
    void operator()(std::atomic<int>* advancing) const { --*advancing; }
  };
  static OracleState& of(core::State& state) { return static_cast<OracleState&>(state); }
  struct Exclusive {
    Exclusive(OracleModel* policy, OracleState& state) : state_(state) {
      if (state_.users++ != 0) ++policy->collisions;
    }
    ~Exclusive() { --state_.users; }
    OracleState& state_;
  };
  class Split final : public core::SplitStep {
   public:
    explicit Split(OracleModel& policy) : policy_(policy) {}
    ~Split() override { policy_.dropped += to_ != nullptr; }
    void begin(const core::State& from, core::State& to, const float* obs) override {
      if (to_ != nullptr) ++policy_.collisions;  // the frame before has not ended
      from_ = const_cast<core::State*>(&from);
      to_ = &to;
      obs_.assign(obs, obs + policy_.config().d_input);
    }
    bool finish_within(std::chrono::microseconds, float* out) override {
      if (policy_.late) return false;
      finish(out);
      return true;
    }
    void finish(float* out) override {
      core::State* const to = std::exchange(to_, nullptr);
      if (policy_.late) std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (policy_.fails) core::fail(core::ErrorKind::cuda_error, "", "the frame fails");
      policy_.advance(&from_, &to, 1, obs_.data(), out);
    }

   private:
    OracleModel& policy_;
    core::State *from_ = nullptr, *to_ = nullptr;
    std::vector<float> obs_;
  };
  std::shared_ptr<const core::PolicyWeights> weights_;
  std::mutex batches_;
  std::atomic<int> advancing_{0};
};

// Of its frames and outputs.
constexpr std::size_t kOracleIn = 5, kOracleOut = 3;

inline std::shared_ptr<OracleModel> make_oracle(std::uint64_t seed = 1) {
  PolicySpec spec;
  spec.seed = seed;
  return std::make_shared<OracleModel>(make_policy(spec));
}

}  // namespace exphil::test
