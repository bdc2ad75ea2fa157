// A policy that is another one in all it does, for tests that watch or change some of its calls.
#pragma once

#include <memory>
#include <utility>

#include "core/policy/policy.hpp"

namespace exphil::test {

class ForwardingPolicy : public core::Policy {
 public:
  explicit ForwardingPolicy(std::shared_ptr<core::Policy> policy) : policy_(std::move(policy)) {}
  const core::PolicyConfig& config() const override { return policy_->config(); }
  std::uint64_t fingerprint() const override { return policy_->fingerprint(); }
  std::size_t resident_bytes() const override { return policy_->resident_bytes(); }
  std::unique_ptr<core::State> new_state() override { return policy_->new_state(); }
  void copy_state(core::State& to, const core::State& from) override { policy_->copy_state(to, from); }
  void read_state(const core::State& state, float* values) override { policy_->read_state(state, values); }
  void write_state(core::State& state, const float* values) override { policy_->write_state(state, values); }
  void advance(core::State* const* from, core::State* const* to, std::int64_t count, const float* obs,
               float* out) override {
    policy_->advance(from, to, count, obs, out);
  }
  void advance_chain(core::State& from, core::State* const* to, std::int64_t seq, const float* frames,
                     float* out) override {
    policy_->advance_chain(from, to, seq, frames, out);
  }
  void reserve_chain(std::int64_t seq) override { policy_->reserve_chain(seq); }
  void prefill(core::State& state, const float* frames, std::int64_t seq, float* out) override {
    policy_->prefill(state, frames, seq, out);
  }
  std::unique_ptr<core::FrameRing> new_ring(std::int64_t slots) override { return policy_->new_ring(slots); }
  void window(const float* windows, std::int64_t count, std::int64_t seq, float* out) override {
    policy_->window(windows, count, seq, out);
  }

 protected:
  core::Policy& policy() const { return *policy_; }

 private:
  const std::shared_ptr<core::Policy> policy_;
};

}  // namespace exphil::test
