// Splits the batch, and queues kernels and copies of results as slices arrive.
#include "cuda/scan/runner.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/device/download.hpp"
#include "cuda/device/operand_image.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/scan/forward.hpp"

namespace exphil::cuda {
namespace {

using core::Flow;
using core::Operand;
using core::ScanCall;
using core::ScanOperand;
using core::ScanShape;
using Table = core::PerOperand<ScanOperand, Operand>;

// A smaller slice costs more in launches and copies than its overlap gains.
constexpr std::size_t kSmallestSlice = std::size_t{1} << 20;
constexpr std::int64_t kMostSlices = 16;

std::int64_t sequences_per_slice(const Table& table, std::int64_t batch) {
  std::size_t input = 0;
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    const Operand& operand = table[id];
    // The initial state does not grow with time, and was not included where kSmallestSlice was measured.
    if (operand.flow == Flow::in && id != ScanOperand::initial_state) {
      input += static_cast<std::size_t>(batch) * operand.sequence_stride();
    }
  }
  const std::int64_t slices =
      std::min<std::int64_t>({kMostSlices, batch, 1 + static_cast<std::int64_t>(input / kSmallestSlice)});
  return (batch + slices - 1) / slices;
}

// The shape on the device: results without a host address are left out, and every address is aligned.
ScanShape device_shape(const ScanCall& call) {
  ScanShape shape = call.shape;
  const Table table = core::describe_operands(shape);
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (!table[id].present) continue;
    if (table[id].flow == Flow::out && call.operands[id] == nullptr) {
      shape.remove(id);
    } else {
      shape.add(id);
    }
  }
  return shape;
}

}  // namespace

void run_scan(Context& context, const ScanCall& call) {
  const ContextGuard guard(context);
  const ScanShape shape = device_shape(call);
  if (shape.batch == 0 || shape.dim == 0) return;
  const Table table = core::describe_operands(shape);
  const OperandImage<ScanOperand> image(table, call.operands, shape.batch,
                                        sequences_per_slice(table, shape.batch));
  const auto host_strides = core::sequence_strides(table);
  const DeviceBuffer memory = context.device_pool().allocate(image.bytes());
  Download download(context);
  std::vector<std::unique_ptr<Event>> arrived;
  for (std::size_t i = 0; i < image.slices().size(); ++i) arrived.push_back(std::make_unique<Event>(context));

  // Destroyed in reverse order: the streams are idle before their buffers are returned to the pool. The
  // slices alternate between two streams, so that one slice's results and the next slice's kernel overlap.
  std::unique_ptr<Upload> upload;
  const StreamLease copies(context);
  StreamLease work[2] = {StreamLease(context), StreamLease(context)};
  const auto start_slice = [&](std::size_t i) {
    const auto& slice = image.slices()[i];
    const CUstream stream = work[i % 2].handle();
    arrived[i]->record(copies.handle());
    arrived[i]->make_wait(stream);
    ScanShape slice_shape = shape;
    slice_shape.batch = slice.count;
    const core::ScanOperands<CUdeviceptr> device = image.addresses(i, memory.address());
    enqueue_scan(context, stream, slice_shape, device);
    const core::ScanOperands<void*> host = core::slice_batch(host_strides, call.operands, slice.begin);
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      if (table[id].flow == Flow::out) download.add(stream, host[id], device[id], slice.bytes[id]);
    }
  };
  upload = std::make_unique<Upload>(context, copies.handle(), memory.address(), image.segments(),
                                    image.ends(), start_slice, call.on_device);
  upload->run();
  for (StreamLease& stream : work) stream.synchronize();
  download.finish();
}

}  // namespace exphil::cuda
