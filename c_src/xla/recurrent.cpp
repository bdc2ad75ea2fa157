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
#include "xla/named_frame.hpp"
#include "xla/platforms.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/recurrent/scan.hpp"
#endif

namespace exphil::xla {

namespace {

using core::Flow;
using Id = core::RecurrentOperand;

template <bool kDense, bool kGradient>
core::RecurrentCall read_call(const Frame& frame) {
  frame.require_known("op activated operands results");
  const core::RecurrentOp op = core::recurrent_op_named(frame.text("op", ""), "op");
  if (core::recurrent_row(op).dense() != kDense) {
    core::fail(core::ErrorKind::invalid_argument, "op", core::recurrent_row(op).name, " is an operator of ",
               kDense ? "exphil_diagonal_recurrence" : "exphil_dense_recurrence");
  }
  const core::RecurrentRow& row = core::recurrent_row(op);
  const auto named = [op](Flow flow) {
    return [op, flow](const std::string& name) {
      return core::recurrent_operand_named(op, kGradient, flow, name);
    };
  };
  std::vector<Id> inputs;
  for (int i = 0; i < row.count(); ++i) inputs.push_back(core::behind(Id::x0, i));
  const auto shown = [op](Id id) { return core::recurrent_operand_name(op, id); };
  const auto tensors = read_named_tensors<Id>(frame, row.name, inputs, shown, named(Flow::in));
  if (kGradient && !tensors[Id::dh]) {
    core::fail(core::ErrorKind::invalid_argument, "operands", "operands must list dh");
  }
  core::RecurrentCall call = core::validate_recurrent(op, frame.boolean("activated", false), tensors);
  const std::vector<Id> first = kGradient ? std::vector<Id>() : std::vector<Id>{Id::h};
  read_named_results(frame, row.name, first, named(Flow::out), core::require_recurrent_result, &call);
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
