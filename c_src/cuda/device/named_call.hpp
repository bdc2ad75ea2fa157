// An operator with an operand table (core/operands.hpp) on a CUDA device. Each operator specialises the
// functions of DeviceOperator in its folder. Callers: the CUDA backend, the XLA handlers, tests. Any thread.
#pragma once

#include <memory>
#include <vector>

#include "core/operator_call.hpp"
#include "cuda/device/context.hpp"
#include "cuda/device/places.hpp"
#include "cuda/device/upload.hpp"

namespace exphil::cuda {

template <class OperatorShape, class Id>
struct DeviceOperator {
  // Bytes of device memory that a call needs beside its tensors.
  static std::size_t scratch(const OperatorShape& shape);

  // Compiles the kernels. The context must be current.
  static void prepare(Context& context, const OperatorShape& shape);

  // Queued on `stream`: the operator, or its gradient where the shape has what that needs, on tensors in
  // device memory. `scratch` holds scratch() bytes, aligned to 256. The context must be current. Throws
  // limit_exceeded for more blocks than a grid has.
  static void enqueue(Context& context, CUstream stream, const OperatorShape& shape,
                      const core::PerOperand<Id, CUdeviceptr>& operands, CUdeviceptr scratch);
};

// The complete call on tensors in host memory: copies what comes in to one block of device memory, runs the
// operator there, and copies the results back.
template <class OperatorShape, class Id>
void run_on_host_tensors(Context& context, const core::OperatorCall<OperatorShape, Id>& call) {
  using Operator = DeviceOperator<OperatorShape, Id>;
  const ContextGuard guard(context);
  core::PerOperand<Id, std::size_t> at{};
  std::vector<ImageSegment> inputs;
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
  // Destroyed in reverse order: the stream is idle before its memory is returned to the pool.
  const DeviceBuffer memory = context.device_pool().allocate(places.bytes() + Operator::scratch(call.shape));
  const CUdeviceptr base = memory.address();
  std::unique_ptr<Upload> upload;
  StreamLease stream(context);
  const auto run = [&](std::size_t) {
    core::PerOperand<Id, CUdeviceptr> operands{};
    for (const Id id : core::all_operands<Id>()) operands[id] = base + at[id];
    Operator::enqueue(context, stream.handle(), call.shape, operands, base + places.bytes());
    // Results from the backend's pool are pinned, so the device writes them directly.
    for (const Id id : core::all_operands<Id>()) {
      const core::Operand operand = core::describe(call.shape, id);
      if (!operand.present || operand.flow != core::Flow::out || operand.bytes() == 0) continue;
      context.check(
          driver().cuMemcpyDtoHAsync(call.operands[id], base + at[id], operand.bytes(), stream.handle()),
          "cuMemcpyDtoHAsync");
    }
  };
  if (inputs.empty()) {  // no steps and no states
    run(0);
  } else {
    const std::size_t end = inputs.back().at + inputs.back().bytes;
    upload = std::make_unique<Upload>(context, stream.handle(), base, inputs, std::vector<std::size_t>{end},
                                      run, call.on_device);
    upload->run();
  }
  stream.synchronize();
}

}  // namespace exphil::cuda
