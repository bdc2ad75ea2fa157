// Calls whose attributes name their tensors: operands those behind the first inputs, results the results.
// Callers: recurrent.cpp and ssd.cpp. Every reader throws core::Error (invalid_argument) that names the
// argument or attribute. Templates of an operator (core::NamedSsd, core::NamedRecurrent); any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/operands.hpp"
#include "xla/ffi.hpp"
#include "xla/platforms.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/device/named_call.hpp"
#endif

namespace exphil::xla {

// title: of the call, for errors.
[[noreturn]] inline void unknown_name(const std::string& title, const char* attribute,
                                      const std::string& name) {
  core::fail(core::ErrorKind::invalid_argument, attribute, attribute, " must list what ", title,
             " has, each at most once; got ", name);
}

inline void require_count(const char* attribute, const char* what, std::int64_t named, std::int64_t given) {
  if (named == given) return;
  core::fail(core::ErrorKind::invalid_argument, attribute, "the call has ", given, " ", what,
             ", and the attribute ", attribute, " names ", named);
}

// The operator's inputs, then those that `operands` lists.
template <class Operator>
auto read_named_tensors(const Frame& frame, const Operator& op) {
  using Id = typename Operator::Id;
  core::PerOperand<Id, std::optional<core::TensorView>> tensors;
  std::int64_t index = 0;
  for (const Id id : op.inputs()) tensors[id] = frame.argument(index++, op.name_of(id));
  for (const std::string& name : frame.words("operands")) {
    const std::optional<Id> id = op.operand_named(core::Flow::in, name);
    if (!id || tensors[*id]) unknown_name(op.title(), "operands", name);
    tensors[*id] = frame.argument(index++, name);
  }
  require_count("operands", "arguments", index, frame.arguments());
  if (op.gradient && !tensors[Operator::kGradientOfResult]) {
    core::fail(core::ErrorKind::invalid_argument, "operands", "operands must list ",
               op.name_of(Operator::kGradientOfResult));
  }
  return tensors;
}

// The checked call with its results: that of the operator, then those that `results` lists; of the gradient
// the latter alone.
template <class Operator>
auto read_named_call(const Frame& frame, const Operator& op) {
  using Id = typename Operator::Id;
  auto call = op.validate(read_named_tensors(frame, op));
  std::int64_t index = 0;
  const auto read = [&](Id id) {
    op.require_result(call.shape, id, "results");
    const core::Operand operand = core::describe(call.shape, id);
    const core::TensorView view = frame.result(index++, operand.name);
    require_result(view, operand.name, operand.dtype, operand.axes.shape());
    call.set(id, view.data);
  };
  if (!op.gradient) read(Operator::kResult);
  for (const std::string& name : frame.words("results")) {
    const std::optional<Id> id = op.operand_named(core::Flow::out, name);
    if (!id || call.shape.has(*id)) unknown_name(op.title(), "results", name);
    read(*id);
  }
  require_count("results", "results", index, frame.results());
  return call;
}

#ifdef EXPHIL_CUDA
// Runs in the initialise stage too, where buffers have addresses but no contents: kernels are compiled there.
template <class Shape, class Id>
void run_on_device(const Frame& frame, const core::OperatorCall<Shape, Id>& call) {
  using Operator = cuda::DeviceOperator<Shape, Id>;
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  if (!frame.executing()) return Operator::prepare(context, call.shape);
  core::PerOperand<Id, CUdeviceptr> operands{};
  for (const Id id : core::all_operands<Id>()) operands[id] = address_of(call.operands[id]);
  const std::size_t bytes = Operator::scratch(call.shape);
  if (bytes == 0) return Operator::enqueue(context, stream_of(frame), call.shape, operands, 0);
  const Scratch scratch(frame, bytes);
  Operator::enqueue(context, stream_of(frame), call.shape, operands, address_of(scratch.data()));
}
#endif

}  // namespace exphil::xla
