// exphil_diagonal_recurrence, exphil_dense_recurrence and their gradients, NAME_grad: the fused recurrent
// operators as custom calls. Those whose states do not meet are the first (mingru, minlstm, elu_gru,
// real_gru, diag_linear, liquid), gru_scan and lstm_scan the second.
//
// Attributes: op, the operator; activated (boolean); operands and results, names separated by spaces.
// Arguments: the inputs of the operator in the order of its row (core/recurrent/operators.hpp), then those
// that operands lists, in its order: h0 c0, and of the gradient dh (which it needs), d_final_h d_final_c h.
// Results: h, then those that results lists (final_h final_c); of the gradient those that results lists: the
// names of the inputs, h0, c0, and rh, the gradient of h_(t-1) r.
#include "core/error.hpp"
#include "core/names.hpp"
#include "core/recurrent/call.hpp"
#include "host/recurrent/scan.hpp"
#include "xla/platforms.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/recurrent/scan.hpp"
#endif

namespace exphil::xla {

namespace {

using core::Flow;
using Id = core::RecurrentOperand;

[[noreturn]] void unknown_name(core::RecurrentOp op, const char* attribute, const std::string& name) {
  core::fail(core::ErrorKind::invalid_argument, attribute, attribute, " must list what ",
             core::recurrent_row(op).name, " has, each at most once; got ", name);
}

void require_count(const char* attribute, const char* what, std::int64_t named, std::int64_t given) {
  if (named == given) return;
  core::fail(core::ErrorKind::invalid_argument, attribute, "the call has ", given, " ", what,
             ", and the attribute ", attribute, " names ", named);
}

core::RecurrentTensors read_tensors(const Frame& frame, core::RecurrentOp op, bool gradient) {
  core::RecurrentTensors tensors;
  std::int64_t index = 0;
  for (int i = 0; i < core::recurrent_row(op).count(); ++i) {
    tensors[core::behind(Id::x0, i)] =
        frame.argument(index++, core::recurrent_row(op).inputs[static_cast<std::size_t>(i)]);
  }
  for (const std::string& name : frame.words("operands")) {
    const auto id = core::recurrent_operand_named(op, gradient, Flow::in, name);
    if (!id || tensors[*id]) unknown_name(op, "operands", name);
    tensors[*id] = frame.argument(index++, name);
  }
  require_count("operands", "arguments", index, frame.arguments());
  return tensors;
}

void read_result(const Frame& frame, std::int64_t index, Id id, core::RecurrentCall* call) {
  core::require_recurrent_result(call->shape, id, "results");
  const core::Operand operand = core::describe(call->shape, id);
  const core::TensorView view = frame.result(index, operand.name);
  require_result(view, operand.name, operand.dtype, operand.axes.shape());
  call->set(id, const_cast<void*>(view.data));
}

template <bool kDense, bool kGradient>
core::RecurrentCall read_call(const Frame& frame) {
  frame.require_known("op activated operands results");
  const core::RecurrentOp op = core::recurrent_op_named(frame.text("op", ""), "op");
  if (core::recurrent_row(op).dense() != kDense) {
    core::fail(core::ErrorKind::invalid_argument, "op", core::recurrent_row(op).name, " is an operator of ",
               kDense ? "exphil_diagonal_recurrence" : "exphil_dense_recurrence");
  }
  core::RecurrentTensors tensors = read_tensors(frame, op, kGradient);
  if (kGradient && !tensors[Id::dh]) {
    core::fail(core::ErrorKind::invalid_argument, "operands", "operands must list dh");
  }
  core::RecurrentCall call = core::validate_recurrent(op, frame.boolean("activated", false), tensors);
  std::int64_t index = 0;
  if (!kGradient) read_result(frame, index++, Id::h, &call);
  for (const std::string& name : frame.words("results")) {
    const auto id = core::recurrent_operand_named(op, kGradient, Flow::out, name);
    if (!id || call.shape.has(*id)) unknown_name(op, "results", name);
    read_result(frame, index++, *id, &call);
  }
  require_count("results", "results", index, frame.results());
  return call;
}

template <bool kDense, bool kGradient>
void run_host(const Frame& frame) {
  const core::RecurrentCall call = read_call<kDense, kGradient>(frame);
  if (!frame.executing()) return;
  if (kGradient) return host::recurrent_scan_grad(call);
  host::recurrent_scan(call);
}

#ifdef EXPHIL_CUDA
// Runs in the initialise stage too, where buffers have addresses but no contents: kernels are compiled there.
template <bool kDense, bool kGradient>
void run_cuda(const Frame& frame) {
  const core::RecurrentCall call = read_call<kDense, kGradient>(frame);
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  if (!frame.executing()) return cuda::prepare_recurrent(context, call.shape);
  core::RecurrentOperands<CUdeviceptr> operands{};
  for (const Id id : core::all_operands<Id>()) operands[id] = address_of(call.operands[id]);
  const std::size_t bytes = cuda::recurrent_scratch(call.shape);
  if (bytes == 0) return cuda::enqueue_recurrent(context, stream_of(frame), call.shape, operands, 0);
  const Scratch scratch(frame, bytes);
  cuda::enqueue_recurrent(context, stream_of(frame), call.shape, operands, address_of(scratch.data()));
}
#endif

}  // namespace

}  // namespace exphil::xla

EXPHIL_XLA_HANDLER(exphil_diagonal_recurrence_host, exphil::xla::kHostTraits,
                   (exphil::xla::run_host<false, false>))
EXPHIL_XLA_HANDLER(exphil_diagonal_recurrence_grad_host, exphil::xla::kHostTraits,
                   (exphil::xla::run_host<false, true>))
EXPHIL_XLA_HANDLER(exphil_dense_recurrence_host, exphil::xla::kHostTraits,
                   (exphil::xla::run_host<true, false>))
EXPHIL_XLA_HANDLER(exphil_dense_recurrence_grad_host, exphil::xla::kHostTraits,
                   (exphil::xla::run_host<true, true>))
#ifdef EXPHIL_CUDA
EXPHIL_XLA_HANDLER(exphil_diagonal_recurrence_cuda, exphil::xla::kScratchTraits,
                   (exphil::xla::run_cuda<false, false>))
EXPHIL_XLA_HANDLER(exphil_diagonal_recurrence_grad_cuda, exphil::xla::kScratchTraits,
                   (exphil::xla::run_cuda<false, true>))
EXPHIL_XLA_HANDLER(exphil_dense_recurrence_cuda, exphil::xla::kScratchTraits,
                   (exphil::xla::run_cuda<true, false>))
EXPHIL_XLA_HANDLER(exphil_dense_recurrence_grad_cuda, exphil::xla::kScratchTraits,
                   (exphil::xla::run_cuda<true, true>))
#endif
