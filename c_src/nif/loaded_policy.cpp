// A model on its devices: its weights on each, its sessions where they find room, and what is of no session.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/trunk/load.hpp"
#include "nif/resources.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

std::shared_ptr<LoadedPolicy> load_onto(core::Backend& backend,
                                        const std::shared_ptr<const core::PolicyWeights>& weights,
                                        const LoadPlan& plan) {
  auto loaded = std::make_shared<LoadedPolicy>();
  loaded->backend = &backend;
  loaded->device = backend.describe();
  loaded->plan = plan;
  loaded->policy = backend.load(weights, plan.options);
  if (plan.gathers) loaded->gatherer = std::make_shared<core::Gatherer>(loaded->policy);
  if (weights->config.precision == core::Precision::f32) loaded->weights = weights;
  return loaded;
}

bool is_device_lost(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const core::Error& known) {
    return known.kind() == ErrorKind::device_lost;
  } catch (...) {
    return false;
  }
}

SessionHandle session_at(const std::shared_ptr<LoadedPolicy>& first, const core::SessionOptions& options,
                         core::Replicas::Place place) {
  const auto loaded = place.device() == 0 ? first : first->others[place.device() - 1];
  return {loaded,
          std::make_shared<core::Session>(loaded->policy, options, loaded->gatherer, std::move(place))};
}

// Where the fewest sessions are. A device that is found lost leaves the session to the others.
SessionHandle session_anywhere(const std::shared_ptr<LoadedPolicy>& first,
                               const core::SessionOptions& options) {
  core::Replicas& replicas = *first->replicas;
  for (std::size_t tries = 1;; ++tries) {
    core::Replicas::Place place = core::Replicas::least_loaded(first->replicas);
    const std::size_t device = place.device();
    try {
      return session_at(first, options, std::move(place));
    } catch (const core::Error& error) {
      if (error.kind() != ErrorKind::device_lost || tries == replicas.devices()) throw;
      replicas.set_lost(device);
    }
  }
}

}  // namespace

const core::PolicyWeights& LoadedPolicy::trainable() const {
  const core::Precision precision = config().precision;
  if (precision != core::Precision::f32) {
    fail(ErrorKind::unsupported, ":precision",
         "the policy was loaded with precision: :", core::precision_name(precision),
         ", whose weights are not those of the file: load it with precision: :f32 to train it, or to read or",
         " replace its weights");
  }
  return *weights;
}

void LoadedPolicy::grad(const core::PolicySequences& sequences, const float* d_outs,
                        const core::PolicyGradOutputs& outputs) {
  if (training) return training->grad(sequences, d_outs, outputs);
  const auto gradient = [this] {
    const std::lock_guard<std::mutex> lock(making_);
    if (!gradient_) gradient_ = backend->gradient(weights);
    return gradient_;
  }();
  gradient->run(sequences, d_outs, outputs);
}

std::size_t LoadedPolicy::resident_bytes() const {
  const std::lock_guard<std::mutex> lock(making_);
  return (policy ? policy->resident_bytes() : 0) + (gradient_ ? gradient_->resident_bytes() : 0);
}

std::shared_ptr<LoadedPolicy> LoadedPolicy::with(std::shared_ptr<const core::PolicyWeights> next_weights,
                                                 std::shared_ptr<core::PolicyTraining> trained) const {
  auto next = std::make_shared<LoadedPolicy>();
  next->training = std::move(trained);
  next->backend = backend, next->device = device, next->plan = plan;
  next->weights = std::move(next_weights);
  return next;
}

// On all devices or on none.
std::shared_ptr<LoadedPolicy> LoadedPolicy::load(const LoadPlan& plan,
                                                 const std::shared_ptr<const core::PolicyWeights>& weights) {
  std::shared_ptr<LoadedPolicy> first = load_onto(*plan.backends[0], weights, plan);
  for (std::size_t i = 1; i < plan.backends.size(); ++i) {
    first->others.push_back(load_onto(*plan.backends[i], weights, plan));
  }
  if (!first->others.empty()) first->replicas = std::make_shared<core::Replicas>(plan.backends.size());
  return first;
}

std::vector<const LoadedPolicy*> LoadedPolicy::on_devices() const {
  std::vector<const LoadedPolicy*> all{this};
  for (const auto& other : others) all.push_back(other.get());
  return all;
}

// Of `training`: as update_policy() with the tensors that a checkpoint would have.
std::shared_ptr<const core::PolicyWeights> LoadedPolicy::weights_to_load() const {
  if (training == nullptr) return weights;
  core::PolicyValues<float> values = core::copy_of(weights->values);  // also what is not trained
  training->read(&values, nullptr, nullptr);
  return core::replace_weights(*weights, std::move(values));
}

std::shared_ptr<LoadedPolicy> LoadedPolicy::load_now() {
  const std::lock_guard<std::mutex> lock(making_);
  if (!loaded_) {
    loaded_ = load(plan, weights_to_load());
    if (training == nullptr) loaded_->gradient_ = gradient_;
  }
  return loaded_;
}

// A part that finds its device lost leaves the windows to the devices that are left: they are of no session.
void LoadedPolicy::window(const float* windows, std::int64_t count, std::int64_t seq, float* out) const {
  if (!replicas || count < 2) return policy->window(windows, count, seq, out);
  const auto all = on_devices();
  for (std::size_t tries = 1;; ++tries) {
    const std::vector<std::size_t> devices = replicas->alive();
    const auto parts = std::min(static_cast<std::int64_t>(devices.size()), count);
    const auto errors = replicas->run(static_cast<std::size_t>(parts), [&](std::size_t part) {
      const auto number = static_cast<std::int64_t>(part);
      const std::int64_t begin = count * number / parts, end = count * (number + 1) / parts;
      all[devices[part]]->policy->window(windows + begin * seq * config().d_input, end - begin, seq,
                                         out + begin * config().d_output);
    });
    bool again = false;
    for (std::size_t part = 0; part < errors.size(); ++part) {
      if (!errors[part]) continue;
      if (!is_device_lost(errors[part]) || tries == all.size()) std::rethrow_exception(errors[part]);
      replicas->set_lost(devices[part]);
      again = true;
    }
    if (!again) return;
  }
}

SessionHandle make_session(const std::shared_ptr<LoadedPolicy>& loaded, const core::SessionOptions& options,
                           std::optional<std::int64_t> device) {
  if (!device && loaded->replicas) return session_anywhere(loaded, options);
  const std::vector<const LoadedPolicy*> all = loaded->on_devices();
  std::string indices;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!device || all[i]->device.index == *device) {
      if (loaded->replicas) return session_at(loaded, options, {loaded->replicas, i});
      return {loaded, std::make_shared<core::Session>(loaded->policy, options, loaded->gatherer)};
    }
    indices += (indices.empty() ? "" : ", ") + std::to_string(all[i]->device.index);
  }
  fail(ErrorKind::invalid_argument, ":device", "the policy is not on device ", *device, "; it is on ",
       indices);
}

}  // namespace exphil::nif
