// exphil_selective_scan_grad: the gradient of the selective scan as a custom call.
//
// Arguments: dy, x, dt, a, b, c (x, dt, a, b, c, dy with the attribute dy = 5), then those in the
// attribute `operands`, in its order (any of d z dt_bias initial_state, and of d_final_state and states, as
// in SelectiveScan.grad and backward). Results: the gradients that the attribute `results` lists, in
// its order (any of x dt a b c d z dt_bias initial_state), each with the shape and type of its operand. The
// other attributes are those of exphil_selective_scan, but direction is forward or reverse.
#include "core/error.hpp"
#include "core/scan/gradient.hpp"
#include "host/scan/gradient.hpp"
#include "xla/platforms.hpp"
#include "xla/scan_frame.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/scan/backward.hpp"
#endif

namespace exphil::xla {

namespace {

using core::ScanOperand;

struct GradientCall {
  core::ScanGradProblem problem;
  core::ScanGradOutputs outputs;
};

const std::vector<NamedOperand>& gradients() {
  static const auto* const all =  // never destroyed
      new std::vector<NamedOperand>{{"x", ScanOperand::x},
                                    {"dt", ScanOperand::dt},
                                    {"a", ScanOperand::a},
                                    {"b", ScanOperand::b},
                                    {"c", ScanOperand::c},
                                    {"d", ScanOperand::d},
                                    {"z", ScanOperand::z},
                                    {"dt_bias", ScanOperand::dt_bias},
                                    {"initial_state", ScanOperand::initial_state}};
  return *all;
}

// The operand in the caller's shape: b and c of one group may have no axis of groups.
std::optional<core::TensorView> argument_of(const core::ScanInputs& inputs, ScanOperand id) {
  switch (id) {
    case ScanOperand::x:
      return inputs.x;
    case ScanOperand::dt:
      return inputs.dt;
    case ScanOperand::a:
      return inputs.a;
    case ScanOperand::b:
      return inputs.b;
    case ScanOperand::c:
      return inputs.c;
    case ScanOperand::d:
      return inputs.d;
    case ScanOperand::z:
      return inputs.z;
    case ScanOperand::dt_bias:
      return inputs.dt_bias;
    case ScanOperand::initial_state:
      return inputs.initial_state;
    default:
      return std::nullopt;
  }
}

void set_output(core::ScanGradOutputs& outputs, ScanOperand id, void* data) {
  auto* floats = static_cast<float*>(data);
  switch (id) {
    case ScanOperand::x:
      outputs.x = data;
      return;
    case ScanOperand::dt:
      outputs.dt = data;
      return;
    case ScanOperand::a:
      outputs.a = floats;
      return;
    case ScanOperand::b:
      outputs.b = data;
      return;
    case ScanOperand::c:
      outputs.c = data;
      return;
    case ScanOperand::d:
      outputs.d = floats;
      return;
    case ScanOperand::z:
      outputs.z = data;
      return;
    case ScanOperand::dt_bias:
      outputs.dt_bias = floats;
      return;
    case ScanOperand::initial_state:
      outputs.initial_state = floats;
      return;
    default:
      return;
  }
}

GradientCall read_call(const Frame& frame) {
  core::ScanGradInputs inputs;
  const std::int64_t dy = frame.integer("dy", 0);
  if (dy != 0 && dy != 5) {
    core::fail(core::ErrorKind::invalid_argument, "dy", "the attribute dy must be 0 (first) or 5; got ", dy);
  }
  inputs.dy = frame.argument(dy, "dy");
  inputs.scan = read_scan_inputs(frame, dy == 0 ? 1 : 0, 6,
                                 {{"d_final_state", &inputs.d_final_state}, {"states", &inputs.states}});
  const std::vector<NamedOperand> results = read_results(frame, gradients());
  require_result_count(frame, results.size());
  GradientCall call;
  call.problem = core::validate_scan_grad(inputs, read_scan_options(frame, true));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const NamedOperand& result = results[i];
    const std::optional<core::TensorView> operand = argument_of(inputs.scan, result.operand);
    if (!operand) {
      core::fail(core::ErrorKind::invalid_argument, "results", "the call has no operand ", result.name,
                 " to take the gradient of");
    }
    const core::TensorView view = frame.result(static_cast<std::int64_t>(i), result.name);
    require_result(view, result.name, operand->dtype, operand->shape);
    set_output(call.outputs, result.operand, const_cast<void*>(view.data));
  }
  return call;
}

void gradient_host(const Frame& frame) {
  const GradientCall call = read_call(frame);
  if (frame.executing()) host::selective_scan_grad(call.problem, call.outputs);
}

#ifdef EXPHIL_CUDA
// Runs in the initialise stage too, where buffers have addresses but no contents: kernels are compiled there.
void gradient_cuda(const Frame& frame) {
  const GradientCall given = read_call(frame);
  const DeviceCall call = device_call(core::gradient_call(given.problem, given.outputs));
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  if (!frame.executing()) {
    cuda::prepare_scan_gradient(context, call.shape);
    return;
  }
  const Scratch scratch(frame, cuda::scan_gradient_scratch(call.shape, context.properties()));
  cuda::enqueue_scan_gradient(context, stream_of(frame), call.shape, call.operands,
                              address_of(scratch.data()));
}
#endif

}  // namespace

}  // namespace exphil::xla

EXPHIL_XLA_HANDLER(exphil_selective_scan_grad_host, exphil::xla::kHostTraits, exphil::xla::gradient_host)
#ifdef EXPHIL_CUDA
EXPHIL_XLA_HANDLER(exphil_selective_scan_grad_cuda, exphil::xla::kScratchTraits, exphil::xla::gradient_cuda)
#endif
