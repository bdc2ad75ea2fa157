#include "cuda/scan/gradient_runner.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "cuda/device/download.hpp"
#include "cuda/device/places.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/scan/backward.hpp"

namespace exphil::cuda {

using core::Flow;
using core::ScanOperand;

void run_scan_grad(Context& context, const core::ScanGradProblem& problem,
                   const core::ScanGradOutputs& outputs) {
  run_scan_grad(context, core::gradient_call(problem, outputs));
}

void run_scan_grad(Context& context, const core::ScanCall& call) {
  const ContextGuard guard(context);
  const auto table = core::describe_operands(call.shape);
  // Inputs, results, scratch, in one piece of memory.
  Places places;
  core::ScanOperands<std::size_t> at;
  std::vector<ImageSegment> segments;
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (!table[id].present || table[id].flow != Flow::in) continue;
    at[id] = places.take(table[id].bytes());
    if (table[id].bytes() > 0) segments.push_back({call.operands[id], at[id], table[id].bytes()});
  }
  const std::size_t input_bytes = places.bytes();
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (table[id].present && table[id].flow == Flow::out) at[id] = places.take(table[id].bytes());
  }
  const std::size_t scratch = places.take(scan_gradient_scratch(call.shape, context.properties()));
  const DeviceBuffer memory = context.device_pool().allocate(places.bytes());
  core::ScanOperands<CUdeviceptr> on_device;
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (table[id].present) on_device[id] = memory.address() + at[id];
  }
  Download download(context);
  // Destroyed in reverse order: the stream is idle before the memory that it uses goes back.
  std::unique_ptr<Upload> upload;
  StreamLease stream(context);
  const auto start = [&](std::size_t) {
    enqueue_scan_gradient(context, stream.handle(), call.shape, on_device, memory.address() + scratch);
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      if (!table[id].present || table[id].flow != Flow::out) continue;
      download.add(stream.handle(), call.operands[id], on_device[id], table[id].bytes());
    }
  };
  upload = std::make_unique<Upload>(context, stream.handle(), memory.address(), std::move(segments),
                                    std::vector<std::size_t>{input_bytes}, start, call.on_device);
  upload->run();
  stream.synchronize();
  download.finish();
}

}  // namespace exphil::cuda
