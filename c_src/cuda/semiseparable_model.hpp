// The AR-SSM layer resident on a CUDA device. Callers: the CUDA backend, tests. Any thread, several at once.
#pragma once

#include <memory>
#include <vector>

#include "core/semiseparable_model.hpp"
#include "cuda/context.hpp"

namespace exphil::cuda {

std::unique_ptr<core::SemiseparableModel> load_semiseparable(std::shared_ptr<Context> context,
                                                             const core::SemiseparableWeights& weights);

// Every variant of kernels/semiseparable.cu, for the all-architectures compile test.
std::vector<KernelSpec> semiseparable_kernel_variants();

}  // namespace exphil::cuda
