// The AR-SSM layer resident on a CUDA device. Callers: the CUDA backend, tests. Any thread, concurrently.
#pragma once

#include <memory>
#include <vector>

#include "core/semiseparable/layer.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

std::unique_ptr<core::SemiseparableLayer> load_semiseparable(std::shared_ptr<Context> context,
                                                             const core::SemiseparableWeights& weights);

// Every variant of kernels/semiseparable/gates.cu, for the all-architectures compile test.
std::vector<KernelSpec> semiseparable_kernel_variants();

}  // namespace exphil::cuda
