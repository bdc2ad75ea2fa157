#include "cuda/recurrent/scan.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "cuda/device/places.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/recurrent/dense.hpp"
#include "cuda/recurrent/linear.hpp"

namespace exphil::cuda {

namespace {

using Id = core::RecurrentOperand;

// Offsets of the tensors in one block of device memory: what comes in first, then the results, the scratch.
struct Workspace {
  core::PerOperand<Id, std::size_t> at{};
  std::size_t scratch = 0, bytes = 0;
  std::vector<ImageSegment> inputs;

  explicit Workspace(const core::RecurrentCall& call) {
    Places places;
    for (const core::Flow flow : {core::Flow::in, core::Flow::out}) {
      for (const Id id : core::all_operands<Id>()) {
        const core::Operand operand = core::describe(call.shape, id);
        if (!operand.present || operand.flow != flow) continue;
        at[id] = places.take(operand.bytes());
        if (flow == core::Flow::in && operand.bytes() > 0)
          inputs.push_back({call.input(id), at[id], operand.bytes()});
      }
    }
    scratch = places.bytes();
    bytes = scratch + recurrent_scratch(call.shape);
  }
};

// Results from the backend's pool are pinned, so the device writes them directly.
void copy_out(Context& context, const core::RecurrentCall& call, const Workspace& at, CUdeviceptr base,
              CUstream stream) {
  for (const Id id : core::all_operands<Id>()) {
    const core::Operand operand = core::describe(call.shape, id);
    if (!operand.present || operand.flow != core::Flow::out || operand.bytes() == 0) continue;
    context.check(driver().cuMemcpyDtoHAsync(call.operands[id], base + at.at[id], operand.bytes(), stream),
                  "cuMemcpyDtoHAsync");
  }
}

}  // namespace

std::size_t recurrent_scratch(const core::RecurrentShape& shape) {
  return shape.dense() ? dense_scratch(shape) : linear_scratch(shape);
}

void prepare_recurrent(Context& context, const core::RecurrentShape& shape) {
  shape.dense() ? prepare_dense(context, shape) : prepare_linear(context, shape);
}

void enqueue_recurrent(Context& context, CUstream stream, const core::RecurrentShape& shape,
                       const core::RecurrentOperands<CUdeviceptr>& operands, CUdeviceptr scratch) {
  (shape.dense() ? enqueue_dense : enqueue_linear)(context, stream, shape, operands, scratch);
}

void run_recurrent(Context& context, const core::RecurrentCall& call) {
  const ContextGuard guard(context);
  const Workspace at(call);
  // Destroyed in reverse order: the stream is idle before its memory is returned to the pool.
  const DeviceBuffer memory = context.device_pool().allocate(at.bytes);
  const CUdeviceptr base = memory.address();
  std::unique_ptr<Upload> upload;
  StreamLease stream(context);
  const auto run = [&](std::size_t) {
    core::RecurrentOperands<CUdeviceptr> operands{};
    for (const Id id : core::all_operands<Id>()) operands[id] = base + at.at[id];
    enqueue_recurrent(context, stream.handle(), call.shape, operands, base + at.scratch);
    copy_out(context, call, at, base, stream.handle());
  };
  if (at.inputs.empty()) {  // no steps and no states
    run(0);
  } else {
    const std::size_t end = at.inputs.back().at + at.inputs.back().bytes;
    upload = std::make_unique<Upload>(context, stream.handle(), base, at.inputs,
                                      std::vector<std::size_t>{end}, run, call.on_device);
    upload->run();
  }
  stream.synchronize();
}

}  // namespace exphil::cuda
