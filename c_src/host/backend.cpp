#include "host/backend.hpp"

#include <hwy/targets.h>

#include <fstream>
#include <string>
#include <thread>

#include "core/buffer_pool.hpp"
#include "core/work/parallel.hpp"
#include "host/associative/scan.hpp"
#include "host/policy/gradient.hpp"
#include "host/policy/policy.hpp"
#include "host/policy/training.hpp"
#include "host/recurrent/scan.hpp"
#include "host/scan/gradient.hpp"
#include "host/scan/scan.hpp"
#include "host/semiseparable/layer.hpp"
#include "host/simd/simd.hpp"
#include "host/ssd/scan.hpp"

namespace exphil::host {

namespace {

// "Intel(R) Xeon(R) ...", or the architecture where the system gives no name.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
#if HWY_ARCH_X86
  return "x86-64";
#elif HWY_ARCH_ARM
  return "ARM";
#else
  return "CPU";
#endif
}

class HostBackend final : public core::Backend {
 public:
  core::DeviceDescription describe() const override {
    const std::string target = simd_target(), threads = std::to_string(core::threads());
    core::DeviceDescription description;
    description.backend = "host";
    description.name = processor_name_ + ", " + target + ", " + threads + " threads";
    description.details = {{"processor", processor_name_},
                           {"simd", target},
                           {"cores", std::to_string(std::thread::hardware_concurrency())},
                           {"threads", threads}};
    return description;
  }

  bool waits_for_device() const override { return false; }

  core::ResultBuffer allocate_result(std::size_t bytes) override { return results_.allocate(bytes); }

  void scan(const core::ScanCall& call) override { selective_scan(call); }

  void scan_grad(const core::ScanGradProblem& problem, const core::ScanGradOutputs& outputs) override {
    selective_scan_grad(problem, outputs);
  }

  void associative_scan(const core::AssociativeProblem& problem,
                        const core::AssociativeOutputs& outputs) override {
    host::associative_scan(problem, outputs);
  }

  void recurrent_scan(const core::RecurrentCall& call) override { host::recurrent_scan(call); }
  void recurrent_scan_grad(const core::RecurrentCall& call) override { host::recurrent_scan_grad(call); }

  void ssd_scan(const core::SsdCall& call) override { host::ssd_scan(call); }
  void ssd_scan_grad(const core::SsdCall& call) override { host::ssd_scan_grad(call); }

  std::unique_ptr<core::Policy> load(std::shared_ptr<const core::PolicyWeights> weights,
                                     const core::PolicyOptions& options) override {
    return make_policy(*weights, options);
  }

  std::unique_ptr<core::PolicyGradient> gradient(
      std::shared_ptr<const core::PolicyWeights> weights) override {
    return make_gradient(std::move(weights));
  }

  std::unique_ptr<core::PolicyTraining> train(std::shared_ptr<const core::PolicyWeights> weights,
                                              core::TrainingLoss loss,
                                              const std::vector<core::TrainedTensor>& tensors,
                                              core::TrainingStart start) override {
    return make_training(std::move(weights), std::move(loss), tensors, std::move(start));
  }

  std::unique_ptr<core::SemiseparableLayer> load_semiseparable(
      const core::SemiseparableWeights& weights) override {
    return make_semiseparable(weights);
  }

 private:
  const std::string processor_name_ = processor_name();
  core::BufferPool results_;
};

}  // namespace

std::shared_ptr<core::Backend> host_backend() {
  // Never destroyed: at exit a thread may still be computing.
  static const auto* const backend = new std::shared_ptr<core::Backend>(std::make_shared<HostBackend>());
  return *backend;
}

}  // namespace exphil::host
