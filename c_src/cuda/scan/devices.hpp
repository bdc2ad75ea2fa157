// One scan on host tensors, over several devices. As many sequences as there are devices, or more, are split
// by sequence, with the bits of one device. Of fewer, each goes to several devices, and its time is split: a
// device copies its steps while the others copy theirs, and begins with the state that the part before it
// ends with. What that state is takes no waiting for that part's answers: each part in the middle finds from
// zero what it ends with and how much of an earlier state is left by then, and states go from part to part by
// those two. The answers are those of one device but for rounding.
#pragma once

#include <memory>
#include <vector>

#include "core/scan/call.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Parts of less time cost more in launches and copies than they gain.
inline constexpr std::int64_t kLeastSteps = 64;

// As run_scan(), on these different devices, at least one. Any thread. Throws core::Error.
void run_scan_on(const std::vector<std::shared_ptr<Context>>& contexts, const core::ScanCall& call);

}  // namespace exphil::cuda
