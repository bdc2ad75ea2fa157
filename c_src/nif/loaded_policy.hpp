// A model with one set of weights on its devices, and the handle that holds it. Used by resources.hpp.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/backend.hpp"
#include "core/session/repeated_lists.hpp"
#include "core/session/session.hpp"

namespace exphil::nif {

// Where the weights of a model go, and how.
struct LoadPlan {
  std::vector<core::Backend*>
      backends;  // of each device, the first one first; valid until the library unloads
  core::PolicyOptions options;
  bool gathers = false;  // frames of many processes, one launch
};

// A model with one set of weights on one device. After an update these are in the VM's memory, after a step
// of training where they are trained, and become a policy that plays when a call needs one.
struct LoadedPolicy {
  std::shared_ptr<core::Policy> policy;            // null until then: see PolicyHandle::loaded()
  std::shared_ptr<core::PolicyTraining> training;  // has the weights as they are after its last step
  core::Backend* backend = nullptr;                // valid until the library unloads
  core::DeviceDescription device;
  LoadPlan plan;  // for the next weights
  // In the VM's memory: see trainable(). Null if not f32. Of training, those that it began with.
  std::shared_ptr<const core::PolicyWeights> weights;
  std::atomic<bool> replaced{false};         // update() put other weights into the model
  std::shared_ptr<core::Gatherer> gatherer;  // of `policy`, where the model gathers frames; else null
  core::RepeatedLists repeated;              // lists whose first session is here
  // Of a model on several devices. This object is on the first one, which also computes what is of no
  // session; each of the others has an object of its own, which knows only its own device.
  std::vector<std::shared_ptr<LoadedPolicy>> others;
  std::shared_ptr<core::Replicas> replicas;  // null where there are none

  static std::shared_ptr<LoadedPolicy> load(const LoadPlan& plan,
                                            const std::shared_ptr<const core::PolicyWeights>& weights);
  std::vector<const LoadedPolicy*> on_devices() const;  // this one first

  const core::PolicyConfig& config() const { return weights ? weights->config : policy->config(); }
  // The weights, for the gradient and to be read and replaced. Throws unsupported where they were rounded.
  const core::PolicyWeights& trainable() const;
  // core::PolicyGradient::run() of the weights, where they are.
  void grad(const core::PolicySequences& sequences, const float* d_outs,
            const core::PolicyGradOutputs& outputs);
  // What the policy and the gradient hold on this device, as far as they are made.
  std::size_t resident_bytes() const;
  // The same model with other weights, or with weights that are trained; not loaded yet.
  std::shared_ptr<LoadedPolicy> with(std::shared_ptr<const core::PolicyWeights> next_weights,
                                     std::shared_ptr<core::PolicyTraining> trained) const;
  // With a policy that plays, made once. Throws what a backend's load throws.
  std::shared_ptr<LoadedPolicy> load_now();
  // core::Policy::window(), of many windows a part on each device.
  void window(const float* windows, std::int64_t count, std::int64_t seq, float* out) const;
  // Its sessions end, on every device.
  void set_replaced() {
    replaced.store(true);
    for (const auto& other : others) other->replaced.store(true);
  }

 private:
  std::shared_ptr<const core::PolicyWeights> weights_to_load() const;

  mutable std::mutex making_;  // of both
  std::shared_ptr<LoadedPolicy> loaded_;
  std::shared_ptr<const core::PolicyGradient> gradient_;  // of `weights`
};

// A model. update() and a step of training replace what it holds; a call keeps what it found.
class PolicyHandle {
 public:
  PolicyHandle() = default;
  explicit PolicyHandle(std::shared_ptr<LoadedPolicy> loaded) : loaded_(std::move(loaded)) {}
  // As it is; it may have no `policy`.
  std::shared_ptr<LoadedPolicy> found() const { return std::atomic_load(&loaded_); }
  // One that has. After an update or a step of training this loads the weights, so not on a normal scheduler.
  std::shared_ptr<LoadedPolicy> loaded() {
    std::shared_ptr<LoadedPolicy> before = found();
    if (before->policy != nullptr) return before;
    std::shared_ptr<LoadedPolicy> made = before->load_now();
    const bool newest = std::atomic_compare_exchange_strong(&loaded_, &before, made) || before == made;
    if (!newest) made->set_replaced();
    return made;
  }
  void replace(std::shared_ptr<LoadedPolicy> next) {
    std::atomic_exchange(&loaded_, std::move(next))->set_replaced();
  }
  std::shared_ptr<LoadedPolicy> take() { return std::move(loaded_); }

 private:
  std::shared_ptr<LoadedPolicy> loaded_;
};

}  // namespace exphil::nif
