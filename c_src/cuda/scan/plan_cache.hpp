// The plans of the scans that ran last, with their loaded kernels. Planning a scan and finding its kernels by
// name takes the host 5 to 15 us, which a launch that depends on nothing else shows in full. Used by
// forward.cpp and backward.cpp. Any thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

template <class Plan>
class PlanCache {
 public:
  // What `make` returns for scans of this shape in this context, from an earlier call where there was one.
  // Two threads may make the same plan at once; what `make` throws is not remembered.
  template <class Make>
  std::shared_ptr<const Plan> get(const Context& context, const core::ScanShape& shape, const Make& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const Plans& plans = of_context_[&context];
      const auto found = plans.find(shape);
      if (found != plans.end()) return found->second;
    }
    auto made = std::make_shared<const Plan>(make());
    const std::lock_guard<std::mutex> lock(mutex_);
    Plans& plans = of_context_[&context];
    if (plans.size() >= kMostPlans) plans.clear();
    return plans.try_emplace(shape, std::move(made)).first->second;
  }

  // Plans kept for each context; one more, and they are made again.
  static constexpr std::size_t kMostPlans = 256;

 private:
  using Plans = std::unordered_map<core::ScanShape, std::shared_ptr<const Plan>>;
  std::mutex mutex_;
  std::map<const Context*, Plans> of_context_;  // contexts exist until the process ends
};

}  // namespace exphil::cuda
