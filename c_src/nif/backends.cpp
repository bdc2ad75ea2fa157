#include "nif/backends.hpp"

#include <algorithm>
#include <atomic>

#include "host/backend.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/backend.hpp"
#endif

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

namespace {

enum class Cuda : int { unknown, absent, present };
std::atomic<Cuda> known_cuda{Cuda::unknown};

CudaStatus find_cuda() {
  CudaStatus status;
#ifdef EXPHIL_CUDA
  status.devices = cuda::cuda_devices();
  status.reason = cuda::cuda_unavailable_reason();
  if (status.devices.empty() && status.reason.empty()) status.reason = "the CUDA driver reports no device";
#else
  status.reason = "this build has no CUDA backend: cuda.h and nvrtc.h were not found when it was built";
#endif
  return status;
}

core::Backend& open_cuda(std::int64_t device) {
  const CudaStatus& status = cuda_status();
  if (status.devices.empty()) {
    fail(ErrorKind::backend_unavailable, ":backend",
         "the backend cuda is not available here: ", status.reason);
  }
  if (device < 0 || device >= static_cast<std::int64_t>(status.devices.size())) {
    fail(ErrorKind::backend_unavailable, ":device", "there is no CUDA device ", device, "; this machine has ",
         status.devices.size());
  }
#ifdef EXPHIL_CUDA
  return *cuda::open_cuda_backend(static_cast<int>(device));  // kept there until the process ends
#else
  fail(ErrorKind::internal, "", "a CUDA device without a CUDA backend");
#endif
}

}  // namespace

BackendChoice Decoder<BackendChoice>::decode(Call& call, Term term, const char* argument) {
  const std::string name = Decoder<Atom>::decode(call, term, argument).name;
  if (name == "auto") return BackendChoice::automatic;
  if (name == "cuda") return BackendChoice::cuda;
  if (name == "host") return BackendChoice::host;
  fail(ErrorKind::invalid_argument, argument, argument, " must be :auto, :cuda or :host, got :", name);
}

DeviceChoice Decoder<DeviceChoice>::decode(Call& call, Term term, const char* argument) {
  DeviceChoice choice;
  ErlNifSInt64 index = 0;
  if (enif_get_int64(call.env(), term, &index) != 0) {
    choice.indices = {index};
    return choice;
  }
  if (enif_is_atom(call.env(), term)) {
    choice.all = Decoder<Atom>::decode(call, term, argument).name == "all";
    if (!choice.all)
      fail(ErrorKind::invalid_argument, argument, argument, " must be an index, a list, or :all");
    return choice;
  }
  choice.indices = Decoder<std::vector<std::int64_t>>::decode(call, term, argument);
  if (choice.indices.empty()) {
    fail(ErrorKind::invalid_argument, argument, argument, " must name at least one device, got []");
  }
  std::vector<std::int64_t> sorted = choice.indices;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    fail(ErrorKind::invalid_argument, argument, argument, " must name different devices, got ", *twice,
         " twice");
  }
  return choice;
}

BackendChoice resolve(BackendChoice choice) {
  if (choice != BackendChoice::automatic) return choice;
  return cuda_status().usable() ? BackendChoice::cuda : BackendChoice::host;
}

core::Backend& open_backend(BackendChoice choice, std::int64_t device) {
  if (resolve(choice) == BackendChoice::cuda) return open_cuda(device);
  if (device != 0) {
    fail(ErrorKind::backend_unavailable, ":device", "the host backend has only device 0, not ", device);
  }
  return *host::host_backend();  // kept there until the process ends
}

std::vector<core::Backend*> open_backends(BackendChoice choice, const DeviceChoice& devices) {
  std::vector<std::int64_t> indices = devices.indices;
  if (devices.all && resolve(choice) == BackendChoice::cuda) {
    for (const core::DeviceDescription& device : cuda_status().devices) {
      const std::pair<std::string, std::string> usable("usable", "true");
      if (std::find(device.details.begin(), device.details.end(), usable) != device.details.end())
        indices.push_back(device.index);
    }
  }
  if (indices.empty()) indices.push_back(0);  // the host's; of CUDA an error that says why there is none
  std::vector<core::Backend*> backends;
  for (const std::int64_t index : indices) backends.push_back(&open_backend(choice, index));
  return backends;
}

core::Backend& open_backend(BackendChoice choice, std::int64_t device, const core::DeviceRanges& inputs) {
  return *open_backends(choice, {false, {device}}, inputs).front();
}

std::vector<core::Backend*> open_backends(BackendChoice choice, const DeviceChoice& devices,
                                          const core::DeviceRanges& inputs) {
  std::vector<core::Backend*> backends = open_backends(choice, devices);
  if (!inputs.empty() && !backends.front()->waits_for_device()) {
    const std::string& argument = inputs.front().argument;
    fail(ErrorKind::unsupported, argument, argument, " is in device memory, and the call runs on the host");
  }
  return backends;
}

#ifdef EXPHIL_CUDA
namespace {
std::vector<int> indices_of(const std::vector<core::Backend*>& backends) {
  std::vector<int> devices;
  for (const core::Backend* backend : backends) devices.push_back(backend->describe().index);
  return devices;
}
}  // namespace
#else
namespace {
[[noreturn]] void fail_without_cuda() {
  fail(ErrorKind::internal, "", "several devices without a CUDA backend");
}
}  // namespace
#endif

void scan_on(const std::vector<core::Backend*>& backends, const core::ScanCall& call) {
  if (backends.size() == 1) return backends.front()->scan(call);
#ifdef EXPHIL_CUDA
  cuda::scan_on_cuda_devices(indices_of(backends), call);
#else
  fail_without_cuda();
#endif
}

void scan_grad_on(const std::vector<core::Backend*>& backends, const core::ScanGradProblem& problem,
                  const core::ScanGradOutputs& outputs) {
  if (backends.size() == 1) return backends.front()->scan_grad(problem, outputs);
#ifdef EXPHIL_CUDA
  cuda::scan_grad_on_cuda_devices(indices_of(backends), problem, outputs);
#else
  fail_without_cuda();
#endif
}

bool may_use_cuda(ErlNifEnv* env, Term choice) {
  if (enif_is_identical(choice, enif_make_atom(env, "host"))) return false;
  if (enif_is_identical(choice, enif_make_atom(env, "cuda"))) return true;
  return known_cuda.load(std::memory_order_relaxed) != Cuda::absent;
}

const CudaStatus& cuda_status() {
  static const auto* const status = new CudaStatus(find_cuda());  // never destroyed
  known_cuda.store(status->usable() ? Cuda::present : Cuda::absent, std::memory_order_relaxed);
  return *status;
}

}  // namespace exphil::nif
