// The backends of this build and this machine, and the choice between them. Every call is safe from any
// thread. The first call that concerns CUDA opens the driver, which takes a large part of a second.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "nif/codec.hpp"

namespace exphil::nif {

// :auto is CUDA where there is a device and the host elsewhere; the others are that backend or an error.
enum class BackendChoice { automatic, cuda, host };

template <>
struct Decoder<BackendChoice> {
  static BackendChoice decode(Call& call, Term term, const char* argument);
};

// The devices of one backend that a call names, in its order: :all that can be used, a list of indices, or
// one.
struct DeviceChoice {
  bool all = false;
  std::vector<std::int64_t> indices;  // different ones, at least one
};

template <>
struct Decoder<DeviceChoice> {
  static DeviceChoice decode(Call& call, Term term, const char* argument);
};

// The backend that :auto selects; any other choice is returned unchanged. Never automatic.
BackendChoice resolve(BackendChoice choice);

// The backend's object for one device, valid until the library unloads. Throws backend_unavailable with the
// reason.
core::Backend& open_backend(BackendChoice choice, std::int64_t device);

// Those of several devices. Of the host backend :all is its only one.
std::vector<core::Backend*> open_backends(BackendChoice choice, const DeviceChoice& devices);

// The same for a call whose inputs may be in device memory. Throws unsupported where the backend computes on
// the host.
core::Backend& open_backend(BackendChoice choice, std::int64_t device, const core::DeviceRanges& inputs);
std::vector<core::Backend*> open_backends(BackendChoice choice, const DeviceChoice& devices,
                                          const core::DeviceRanges& inputs);

// A scan on these backends, of one device or of several GPUs, and its gradient.
void scan_on(const std::vector<core::Backend*>& backends, const core::ScanCall& call);
void scan_grad_on(const std::vector<core::Backend*>& backends, const core::ScanGradProblem& problem,
                  const core::ScanGradOutputs& outputs);

// Whether a call with this choice (an atom) may wait for a GPU. Opens nothing: true while unknown.
bool may_use_cuda(ErlNifEnv* env, Term choice);

struct CudaStatus {
  std::vector<core::DeviceDescription> devices;  // every one the driver reports
  std::string reason;                            // why they cannot be used; "" where device 0 can
  bool usable() const { return reason.empty(); }
};
const CudaStatus& cuda_status();

}  // namespace exphil::nif
