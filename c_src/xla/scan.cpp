// exphil_selective_scan: the selective scan as a custom call.
//
// Arguments: x, dt, a, b, c, then those that the attribute `operands` lists, in its order (any of d z dt_bias
// initial_state). Results: y, then those that the attribute `results` lists (y_reverse where direction is
// both; final_state; states). Attributes, all optional: operands, results (names separated by spaces),
// discretization, direction, algorithm (values as in SelectiveScan's options), dt_softplus (boolean), dt_min,
// dt_max (numbers). Shapes and types are those of docs/reference.md; a complex scan has c64 a, b, c and
// states.
#include "host/scan/scan.hpp"
#include "core/error.hpp"
#include "xla/platforms.hpp"
#include "xla/scan_frame.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/scan/forward.hpp"
#endif

namespace exphil::xla {

namespace {

using core::ScanCall;
using core::ScanOperand;

const std::vector<NamedOperand>& optional_results() {
  static const auto* const results =  // never destroyed
      new std::vector<NamedOperand>{{"y_reverse", ScanOperand::y_reverse},
                                    {"final_state", ScanOperand::final_state},
                                    {"states", ScanOperand::states}};
  return *results;
}

// The checked call, with the addresses of XLA's buffers.
ScanCall read_call(const Frame& frame) {
  std::vector<NamedOperand> results = read_results(frame, optional_results());
  core::ScanResults wanted;
  bool reverse = false;
  for (const NamedOperand& result : results) {
    wanted.final_state |= result.operand == ScanOperand::final_state;
    wanted.states |= result.operand == ScanOperand::states;
    reverse |= result.operand == ScanOperand::y_reverse;
  }
  results.insert(results.begin(), {"y", ScanOperand::y});
  require_result_count(frame, results.size());
  const core::ScanInputs inputs = read_scan_inputs(frame, 0, 5);
  ScanCall call = core::validate_scan(inputs, read_scan_options(frame), wanted);
  if (reverse != call.shape.has(ScanOperand::y_reverse)) {
    core::fail(core::ErrorKind::invalid_argument, "results",
               "y_reverse is a result only where direction is both");
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    call.operands[results[i].operand] =
        read_result(frame, static_cast<std::int64_t>(i), call.shape, results[i]);
  }
  return call;
}

void scan_host(const Frame& frame) {
  const ScanCall call = read_call(frame);
  if (frame.executing()) host::selective_scan(call);
}

#ifdef EXPHIL_CUDA
// Also runs in the initialise stage, where buffers have no contents: it compiles the kernels there.
void scan_cuda(const Frame& frame) {
  const DeviceCall call = device_call(read_call(frame));
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  if (frame.executing()) {
    cuda::enqueue_scan(context, stream_of(frame), call.shape, call.operands);
  } else {
    cuda::prepare_scan(context, call.shape);
  }
}
#endif

}  // namespace

}  // namespace exphil::xla

EXPHIL_XLA_HANDLER(exphil_selective_scan_host, exphil::xla::kHostTraits, exphil::xla::scan_host)
#ifdef EXPHIL_CUDA
EXPHIL_XLA_HANDLER(exphil_selective_scan_cuda, exphil::xla::kReplayTraits, exphil::xla::scan_cuda)
#endif
