// The CUDA backend: the context, the scans and the resident policies as a core::Backend. See backend.hpp.
#include "cuda/backend.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "core/buffer_pool.hpp"
#include "core/error.hpp"
#include "cuda/associative/scan.hpp"
#include "cuda/device/context.hpp"
#include "cuda/device/settings.hpp"
#include "cuda/policy/gradient.hpp"
#include "cuda/policy/loader.hpp"
#include "cuda/policy/training.hpp"
#include "cuda/recurrent/scan.hpp"
#include "cuda/scan/devices.hpp"
#include "cuda/scan/gradient_runner.hpp"
#include "cuda/scan/runner.hpp"
#include "cuda/semiseparable/layer.hpp"
#include "cuda/ssd/scan.hpp"

namespace exphil::cuda {
namespace {

std::string version_text(int version) {
  return core::message(version / 1000, ".", version % 1000 / 10);
}

// The reason why the device cannot be used; "" where it can.
std::string unusable_reason(const DeviceProperties& properties) {
  try {
    require_supported(properties);
    nvrtc();
    return "";
  } catch (const core::Error& error) {
    return error.what();
  }
}

core::DeviceDescription description(const DeviceProperties& properties) {
  core::DeviceDescription device;
  device.backend = "cuda";
  device.index = properties.index;
  device.name = properties.name;
  const std::string reason = unusable_reason(properties);
  device.details = {
      {"usable", reason.empty() ? "true" : "false"},
      {"compute_capability", core::message(properties.compute_major, ".", properties.compute_minor)},
      {"multiprocessors", std::to_string(properties.multiprocessors)},
      {"total_memory", std::to_string(properties.total_memory)},
      {"shared_memory_per_block", std::to_string(properties.max_shared_per_block)},
      {"l2_cache", std::to_string(properties.l2_bytes)},
      {"driver", driver().library},
      {"driver_version", version_text(properties.driver_version)},
      {"kernels_directory", settings().kernels_directory},
      {"cache_directory", settings().cache_directory}};
  if (reason.empty()) {
    device.details.emplace_back("nvrtc", nvrtc().library);
    device.details.emplace_back("nvrtc_version", core::message(nvrtc().major, ".", nvrtc().minor));
  } else {
    device.details.emplace_back("reason", reason);
  }
  return device;
}

class CudaBackend : public core::Backend {
 public:
  explicit CudaBackend(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  core::DeviceDescription describe() const override { return description(context_->properties()); }

  bool waits_for_device() const override { return true; }

  core::ResultBuffer allocate_result(std::size_t bytes) override {
    if (bytes >= core::kSmallestPooledResult) {
      if (PinnedBuffer pinned = context_->pinned_pool().try_allocate(bytes)) {
        void* data = pinned.data();
        // std::function must be copyable, hence the shared_ptr.
        auto owner = std::make_shared<PinnedBuffer>(std::move(pinned));
        return core::ResultBuffer(data, bytes, [owner](void*) { *owner = PinnedBuffer(); });
      }
    }
    return plain_results_.allocate(bytes);
  }

  void scan(const core::ScanCall& call) override {
    context_->require_alive();
    run_scan(*context_, call);
  }

  void scan_grad(const core::ScanGradProblem& problem, const core::ScanGradOutputs& outputs) override {
    context_->require_alive();
    run_scan_grad(*context_, problem, outputs);
  }

  void associative_scan(const core::AssociativeProblem& problem,
                        const core::AssociativeOutputs& outputs) override {
    context_->require_alive();
    run_associative(*context_, problem, outputs);
  }

  void recurrent_scan(const core::RecurrentCall& call) override {
    context_->require_alive();
    run_on_host_tensors(*context_, call);
  }

  void recurrent_scan_grad(const core::RecurrentCall& call) override { recurrent_scan(call); }

  void ssd_scan(const core::SsdCall& call) override {
    context_->require_alive();
    run_on_host_tensors(*context_, call);
  }
  void ssd_scan_grad(const core::SsdCall& call) override { ssd_scan(call); }

  std::unique_ptr<core::Policy> load(std::shared_ptr<const core::PolicyWeights> weights,
                                     const core::PolicyOptions& options) override {
    context_->require_alive();
    return load_policy(context_, std::move(weights), options);
  }

  std::unique_ptr<core::PolicyGradient> gradient(
      std::shared_ptr<const core::PolicyWeights> weights) override {
    context_->require_alive();
    return make_gradient(context_, std::move(weights));
  }

  std::unique_ptr<core::PolicyTraining> train(std::shared_ptr<const core::PolicyWeights> weights,
                                              core::TrainingLoss loss,
                                              const std::vector<core::TrainedTensor>& tensors,
                                              core::TrainingStart start) override {
    context_->require_alive();
    return make_training(context_, std::move(weights), std::move(loss), tensors, std::move(start));
  }

  std::unique_ptr<core::SemiseparableLayer> load_semiseparable(
      const core::SemiseparableWeights& weights) override {
    context_->require_alive();
    return cuda::load_semiseparable(context_, weights);
  }

 private:
  std::shared_ptr<Context> context_;
  core::BufferPool plain_results_;
};

std::vector<std::shared_ptr<Context>> open_alive(const std::vector<int>& devices) {
  std::vector<std::shared_ptr<Context>> contexts;
  for (const int device : devices) {
    contexts.push_back(Context::open(device));
    contexts.back()->require_alive();
  }
  return contexts;
}

}  // namespace

std::shared_ptr<core::Backend> open_cuda_backend(int device) {
  // Leaked on purpose, like the contexts: see Context::open.
  static auto* mutex = new std::mutex;
  static auto* backends = new std::map<int, std::shared_ptr<core::Backend>>;
  std::shared_ptr<Context> context = Context::open(device);
  std::lock_guard<std::mutex> lock(*mutex);
  std::shared_ptr<core::Backend>& backend = (*backends)[device];
  if (!backend) backend = std::make_shared<CudaBackend>(std::move(context));
  return backend;
}

void scan_on_cuda_devices(const std::vector<int>& devices, const core::ScanCall& call) {
  run_scan_on(open_alive(devices), call);
}

void scan_grad_on_cuda_devices(const std::vector<int>& devices, const core::ScanGradProblem& problem,
                               const core::ScanGradOutputs& outputs) {
  run_scan_grad_on(open_alive(devices), problem, outputs);
}

std::vector<core::DeviceDescription> cuda_devices() {
  std::vector<core::DeviceDescription> devices;
  try {
    const int count = device_count();
    for (int i = 0; i < count; ++i) devices.push_back(description(query_device(i)));
  } catch (const core::Error&) {
    // cuda_unavailable_reason() reports the error.
  }
  return devices;
}

std::string cuda_unavailable_reason() {
  try {
    return unusable_reason(query_device(0));
  } catch (const core::Error& error) {
    return error.what();
  }
}

}  // namespace exphil::cuda
