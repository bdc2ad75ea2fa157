// What calls on host tensors over several devices (devices.hpp) share: how their batch and their time are
// cut, and a part that is copied to a device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/scan/call.hpp"
#include "cuda/device/download.hpp"
#include "cuda/device/operand_image.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/scan/time_parts.hpp"

namespace exphil::cuda {

// The first of what part `number` of `count` has of `size`, which are cut into equal parts.
inline std::int64_t part_begin(std::int64_t size, std::size_t number, std::size_t count) {
  return size * static_cast<std::int64_t>(number) / static_cast<std::int64_t>(count);
}

// Throws unsupported where a tensor is in device memory.
void require_host_tensors(const core::ScanCall& call);

// Calls `part` with some devices and sequences for each part of the batch, side by side: several devices for
// one sequence each where there are more devices than sequences, and where each device then has `least_steps`
// steps or more of a kind of scan whose time can be split.
void split_batch(const std::vector<std::shared_ptr<Context>>& contexts, const core::ScanShape& shape,
                 std::int64_t least_steps,
                 const std::function<void(const std::vector<Context*>& own, std::int64_t begin,
                                          std::int64_t sequences)>& part);

// A state that the call is given, or zeros.
StateFloats given_state(const core::ScanCall& call, core::ScanOperand id);

// Some steps of a call of one sequence, copied to a device. One thread.
class CopiedPart {
 public:
  // The context is current.
  CopiedPart(Context& context, const core::ScanCall& call, std::int64_t begin, std::int64_t steps);

  const core::ScanShape& shape() const { return call_.shape; }
  CUstream stream() const { return stream_.handle(); }
  core::ScanOperands<CUdeviceptr> operands() const { return image_.addresses(0, memory_.address()); }

  // Copies the results to host memory.
  void finish();

 private:
  const core::ScanCall call_;
  const core::PerOperand<core::ScanOperand, core::Operand> table_;
  const OperandImage<core::ScanOperand> image_;
  // Destroyed in reverse order: the stream is idle before its buffers are returned to their pools.
  const DeviceBuffer memory_;
  Download download_;
  std::unique_ptr<Upload> upload_;
  StreamLease stream_;
};

}  // namespace exphil::cuda
