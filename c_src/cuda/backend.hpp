// CUDA devices as core/ sees them: what nif/ opens, and what info/0 reports. Safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.hpp"

namespace exphil::cuda {

// One object per device, kept until the process ends. Throws backend_unavailable with the reason in words.
std::shared_ptr<core::Backend> open_cuda_backend(int device);

// Every device the driver reports, whether the backend supports it or not ("usable" in its details says).
// Empty where there is none. Creates no context, so it is quick and takes no device memory.
std::vector<core::DeviceDescription> cuda_devices();

// "" where device 0 can be opened as far as can be told without creating a context; else why not.
std::string cuda_unavailable_reason();

}  // namespace exphil::cuda
