// exphil_state_space_duality and its gradient, exphil_state_space_duality_grad: the operator of Mamba-2 as
// custom calls.
//
// Attributes, all optional: operands and results (names separated by spaces), dt_softplus (boolean), dt_min,
// dt_max (numbers). Arguments: x, dt, a, b, c, then those that operands lists, in its order: d z dt_bias
// initial_state, and of the gradient dy (which it needs) and d_final_state. Results: y, then those that
// results lists (final_state); of the gradient those that results lists: the names of its operands but dy and
// d_final_state.
#include "core/ssd/call.hpp"
#include "host/ssd/scan.hpp"
#include "xla/named_call.hpp"
#include "xla/scan_frame.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/ssd/scan.hpp"
#endif

namespace exphil::xla {

namespace {

template <bool kGradient>
core::SsdCall read_call(const Frame& frame) {
  frame.require_known("operands results dt_softplus dt_min dt_max");
  core::NamedSsd op;
  read_dt_options(frame, &op.options);
  op.gradient = kGradient;
  return read_named_call(frame, op);
}

template <bool kGradient>
void run_host(const Frame& frame) {
  const core::SsdCall call = read_call<kGradient>(frame);
  if (!frame.executing()) return;
  kGradient ? host::ssd_scan_grad(call) : host::ssd_scan(call);
}

#ifdef EXPHIL_CUDA
template <bool kGradient>
void run_cuda(const Frame& frame) {
  run_on_device(frame, read_call<kGradient>(frame));
}
#endif

}  // namespace

}  // namespace exphil::xla

EXPHIL_XLA_HANDLER(exphil_state_space_duality_host, exphil::xla::kHostTraits, exphil::xla::run_host<false>)
EXPHIL_XLA_HANDLER(exphil_state_space_duality_grad_host, exphil::xla::kHostTraits,
                   exphil::xla::run_host<true>)
#ifdef EXPHIL_CUDA
EXPHIL_XLA_HANDLER(exphil_state_space_duality_cuda, exphil::xla::kScratchTraits, exphil::xla::run_cuda<false>)
EXPHIL_XLA_HANDLER(exphil_state_space_duality_grad_cuda, exphil::xla::kScratchTraits,
                   exphil::xla::run_cuda<true>)
#endif
