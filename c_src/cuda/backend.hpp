// The CUDA devices as backends, opened by nif/ and reported by info/0. Safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.hpp"

namespace exphil::cuda {

// One object per device, kept until the process ends. Throws backend_unavailable with the reason.
std::shared_ptr<core::Backend> open_cuda_backend(int device);

// One scan over these devices, and its gradient (cuda/scan/devices.hpp).
void scan_on_cuda_devices(const std::vector<int>& devices, const core::ScanCall& call);
void scan_grad_on_cuda_devices(const std::vector<int>& devices, const core::ScanGradProblem& problem,
                               const core::ScanGradOutputs& outputs);

// Every device that the driver reports, supported or not ("usable" in its details). Empty where there is
// none. Creates no context, so it is quick and takes no device memory.
std::vector<core::DeviceDescription> cuda_devices();

// "" where device 0 seems usable, as far as is known without creating a context; else the reason.
std::string cuda_unavailable_reason();

}  // namespace exphil::cuda
