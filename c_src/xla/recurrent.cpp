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
#include "xla/named_call.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/recurrent/scan.hpp"
#endif

namespace exphil::xla {

namespace {

template <bool kDense, bool kGradient>
core::RecurrentCall read_call(const Frame& frame) {
  frame.require_known("op activated operands results");
  const core::RecurrentOp op = core::recurrent_op_named(frame.text("op", ""), "op");
  if (core::recurrent_row(op).dense() != kDense) {
    core::fail(core::ErrorKind::invalid_argument, "op", core::recurrent_row(op).name, " is an operator of ",
               kDense ? "exphil_diagonal_recurrence" : "exphil_dense_recurrence");
  }
  return read_named_call(frame, core::NamedRecurrent{op, frame.boolean("activated", false), kGradient});
}

template <bool kDense, bool kGradient>
void run_host(const Frame& frame) {
  const core::RecurrentCall call = read_call<kDense, kGradient>(frame);
  if (!frame.executing()) return;
  kGradient ? host::recurrent_scan_grad(call) : host::recurrent_scan(call);
}

#ifdef EXPHIL_CUDA
template <bool kDense, bool kGradient>
void run_cuda(const Frame& frame) {
  run_on_device(frame, read_call<kDense, kGradient>(frame));
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
