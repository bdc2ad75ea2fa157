// What a backend offers to nif/: scans on host tensors, resident policies, and result memory that the BEAM
// can own. One object per device, valid until the library unloads. Every call may come from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/associative/problem.hpp"
#include "core/policy/gradient.hpp"
#include "core/policy/policy.hpp"
#include "core/recurrent/call.hpp"
#include "core/scan/call.hpp"
#include "core/scan/gradient.hpp"
#include "core/semiseparable/layer.hpp"
#include "core/ssd/call.hpp"
#include "core/training/policy_training.hpp"

namespace exphil::core {

// Results of at least this size come from Backend::allocate_result. Smaller ones are ordinary binaries,
// because copying them costs less than taking a block from a pool.
inline constexpr std::size_t kSmallestPooledResult = std::size_t{64} << 10;

// Memory for one result. The deleter returns the bytes to their pool: it takes a mutex, never blocks on a
// device, and may run on any thread (a BEAM binary's destructor).
class ResultBuffer {
 public:
  using Deleter = std::function<void(void*)>;
  ResultBuffer() = default;
  ResultBuffer(void* data, std::size_t bytes, Deleter deleter)
      : data_(data, std::move(deleter)), bytes_(bytes) {}

  void* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, Deleter> data_{nullptr, [](void*) {}};
  std::size_t bytes_ = 0;
};

struct DeviceDescription {
  std::string backend;  // "host" or "cuda"
  int index = 0;
  std::string name;  // "NVIDIA H200"; the SIMD target and thread count on the host
  std::vector<std::pair<std::string, std::string>> details;  // key (an atom's spelling), value; for info/0
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceDescription describe() const = 0;

  // Whether calls wait for a device. Otherwise they compute on this machine's cores.
  virtual bool waits_for_device() const = 0;

  // Uninitialised memory for a result of `bytes`, from a bounded pool; below kSmallestPooledResult plain
  // memory. Throws out_of_memory.
  virtual ResultBuffer allocate_result(std::size_t bytes) = 0;

  // All tensors are in host memory; results may be in ResultBuffers of this backend or in other memory.
  virtual void scan(const ScanCall& call) = 0;

  // Computes the gradients that are not null in `outputs`. Throws unsupported where the backend has none.
  virtual void scan_grad(const ScanGradProblem& problem, const ScanGradOutputs& outputs) = 0;

  // The same for a scan of core/associative/problem.hpp.
  virtual void associative_scan(const AssociativeProblem& problem, const AssociativeOutputs& outputs) = 0;

  // The same for a fused recurrent operator and its gradient: the results that the call has.
  virtual void recurrent_scan(const RecurrentCall& call) = 0;
  virtual void recurrent_scan_grad(const RecurrentCall& call) = 0;

  // The same for the operator of Mamba-2.
  virtual void ssd_scan(const SsdCall& call) = 0;
  virtual void ssd_scan_grad(const SsdCall& call) = 0;

  virtual std::unique_ptr<Policy> load(std::shared_ptr<const PolicyWeights> weights,
                                       const PolicyOptions& options) = 0;
  // The gradient of these weights, f32; makes whatever its calls need. Throws out_of_memory, device_lost.
  virtual std::unique_ptr<PolicyGradient> gradient(std::shared_ptr<const PolicyWeights> weights) = 0;
  // Training that begins with these weights. `tensors`: all of the policy's, in the order in which the
  // squares of the gradient are added up. Throws unsupported where the backend lacks the policy's gradient.
  virtual std::unique_ptr<PolicyTraining> train(std::shared_ptr<const PolicyWeights> weights,
                                                TrainingLoss loss, const std::vector<TrainedTensor>& tensors,
                                                TrainingStart start) = 0;

  virtual std::unique_ptr<SemiseparableLayer> load_semiseparable(const SemiseparableWeights& weights) = 0;
};

}  // namespace exphil::core
