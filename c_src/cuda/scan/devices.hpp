// One scan on host tensors, or its gradient, over several devices. As many sequences as there are devices, or
// more, are split by sequence, with the bits of one device. Of fewer, each goes to several devices, and its
// time is split (time_parts.hpp): a device copies its steps while the others copy theirs, and scans them from
// zero while it waits for the state before them. The answers are those of one device but for rounding.
#pragma once

#include <memory>
#include <vector>

#include "core/scan/gradient.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Parts of less time cost more in launches and copies than they gain.
inline constexpr std::int64_t kLeastSteps = 64, kLeastGradientSteps = 256;

// As run_scan(), on these different devices, at least one. Any thread. Throws core::Error.
void run_scan_on(const std::vector<std::shared_ptr<Context>>& contexts, const core::ScanCall& call);

// As run_scan_grad(), likewise. Gradients of what all sequences and steps share are sums over the devices, in
// the order of sequences and time.
void run_scan_grad_on(const std::vector<std::shared_ptr<Context>>& contexts,
                      const core::ScanGradProblem& problem, const core::ScanGradOutputs& outputs);

}  // namespace exphil::cuda
