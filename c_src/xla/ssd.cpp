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
#include "xla/named_frame.hpp"
#include "xla/platforms.hpp"
#include "xla/scan_frame.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/ssd/scan.hpp"
#endif

namespace exphil::xla {

namespace {

using core::Flow;
using Id = core::SsdOperand;

template <bool kGradient>
core::SsdCall read_call(const Frame& frame) {
  frame.require_known("operands results dt_softplus dt_min dt_max");
  const char* const call_name = kGradient ? "the gradient" : "the scan";
  const auto named = [](Flow flow) {
    return [flow](const std::string& name) { return core::ssd_operand_named(kGradient, flow, name); };
  };
  core::DtOptions options;
  read_dt_options(frame, &options);
  const std::vector<Id> inputs(std::begin(core::kSsdInputs), std::end(core::kSsdInputs));
  const auto tensors =
      read_named_tensors<Id>(frame, call_name, inputs, core::ssd_operand_name, named(Flow::in));
  if (kGradient && !tensors[Id::dy]) {
    core::fail(core::ErrorKind::invalid_argument, "operands", "operands must list dy");
  }
  core::SsdCall call = core::validate_ssd(options, tensors);
  const std::vector<Id> first = kGradient ? std::vector<Id>() : std::vector<Id>{Id::y};
  read_named_results(frame, call_name, first, named(Flow::out), core::require_ssd_result, &call);
  return call;
}

template <bool kGradient>
void run_host(const Frame& frame) {
  const core::SsdCall call = read_call<kGradient>(frame);
  if (!frame.executing()) return;
  kGradient ? host::ssd_scan_grad(call) : host::ssd_scan(call);
}

#ifdef EXPHIL_CUDA
// Runs in the initialise stage too, where buffers have addresses but no contents: kernels are compiled there.
template <bool kGradient>
void run_cuda(const Frame& frame) {
  const core::SsdCall call = read_call<kGradient>(frame);
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  if (!frame.executing()) return cuda::prepare_ssd(context, call.shape);
  core::SsdOperands<CUdeviceptr> operands{};
  for (const Id id : core::all_operands<Id>()) operands[id] = address_of(call.operands[id]);
  const Scratch scratch(frame, cuda::ssd_scratch(call.shape));
  cuda::enqueue_ssd(context, stream_of(frame), call.shape, operands, address_of(scratch.data()));
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
