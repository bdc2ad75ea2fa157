// exphil_selective_scan: the selective scan as a custom call.
//
// Arguments: x, dt, a, b, c, then what the attribute `operands` lists, in its order (any of d z dt_bias
// initial_state). Results: y, then what the attribute `results` lists (y_reverse where direction is both;
// final_state; states). Attributes, all optional: operands, results (names separated by spaces),
// discretization, direction, algorithm (the words of SelectiveScan's options), dt_softplus (boolean), dt_min,
// dt_max (numbers). Shapes and types are those of docs/reference.md; a complex scan has c64 a, b, c and
// states.
#include <algorithm>
#include <sstream>
#include <vector>

#include "core/error.hpp"
#include "core/names.hpp"
#include "core/scan/call.hpp"
#include "host/scan/scan.hpp"
#include "xla/platforms.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/scan/forward.hpp"
#endif

namespace exphil::xla {

namespace {

using core::ScanCall;
using core::ScanOperand;

constexpr const char* kAttributes =
    "operands results discretization direction algorithm dt_softplus dt_min dt_max";

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

core::ScanOptions read_options(const Frame& frame) {
  frame.require_known(kAttributes);
  core::ScanOptions options;
  options.discretization = core::discretization_named(frame.text("discretization", "zoh"), "discretization");
  options.direction = core::direction_named(frame.text("direction", "forward"), "direction");
  options.algorithm = core::scan_algorithm_named(frame.text("algorithm", "auto"), "algorithm");
  options.dt_softplus = frame.boolean("dt_softplus", false);
  options.dt_min = static_cast<float>(frame.number("dt_min", static_cast<double>(options.dt_min)));
  options.dt_max = static_cast<float>(frame.number("dt_max", static_cast<double>(options.dt_max)));
  return options;
}

core::ScanInputs read_inputs(const Frame& frame) {
  core::ScanInputs inputs;
  std::int64_t index = 0;
  inputs.x = frame.argument(index++, "x");
  inputs.dt = frame.argument(index++, "dt");
  inputs.a = frame.argument(index++, "a");
  inputs.b = frame.argument(index++, "b");
  inputs.c = frame.argument(index++, "c");
  for (const std::string& name : words(frame.text("operands", ""))) {
    std::optional<core::TensorView>* place = name == "d"               ? &inputs.d
                                             : name == "z"             ? &inputs.z
                                             : name == "dt_bias"       ? &inputs.dt_bias
                                             : name == "initial_state" ? &inputs.initial_state
                                                                       : nullptr;
    if (place == nullptr || place->has_value()) {
      core::fail(core::ErrorKind::invalid_argument, "operands",
                 "operands must list d, z, dt_bias and initial_state, each at most once; got ", name);
    }
    *place = frame.argument(index++, name);
  }
  if (index != frame.arguments()) {
    core::fail(core::ErrorKind::invalid_argument, "operands", "the call has ", frame.arguments(),
               " arguments, and the attribute operands names ", index);
  }
  return inputs;
}

struct NamedResult {
  const char* name;
  ScanOperand operand;
};
constexpr NamedResult kResults[] = {{"y_reverse", ScanOperand::y_reverse},
                                    {"final_state", ScanOperand::final_state},
                                    {"states", ScanOperand::states}};

// The results in the order of the call's buffers: y first.
std::vector<NamedResult> read_results(const Frame& frame) {
  std::vector<NamedResult> results = {{"y", ScanOperand::y}};
  for (const std::string& name : words(frame.text("results", ""))) {
    const auto* found = std::find_if(std::begin(kResults), std::end(kResults),
                                     [&](const NamedResult& result) { return name == result.name; });
    if (found == std::end(kResults)) {
      core::fail(core::ErrorKind::invalid_argument, "results",
                 "results must list y_reverse, final_state and states; got ", name);
    }
    results.push_back(*found);
  }
  if (static_cast<std::int64_t>(results.size()) != frame.results()) {
    core::fail(core::ErrorKind::invalid_argument, "results", "the call has ", frame.results(),
               " results, and the attribute results names ", results.size());
  }
  return results;
}

// The checked call, with the addresses of XLA's buffers.
ScanCall read_call(const Frame& frame) {
  const std::vector<NamedResult> results = read_results(frame);
  core::ScanResults wanted;
  bool reverse = false;
  for (const NamedResult& result : results) {
    wanted.final_state |= result.operand == ScanOperand::final_state;
    wanted.states |= result.operand == ScanOperand::states;
    reverse |= result.operand == ScanOperand::y_reverse;
  }
  ScanCall call = core::validate_scan(read_inputs(frame), read_options(frame), wanted);
  if (reverse != call.shape.has(ScanOperand::y_reverse)) {
    core::fail(core::ErrorKind::invalid_argument, "results",
               "y_reverse is a result where direction is both, and only there");
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const core::Operand operand = core::describe(call.shape, results[i].operand);
    const core::TensorView view = frame.result(static_cast<std::int64_t>(i), results[i].name);
    require_result(view, results[i].name, operand.dtype, operand.axes.shape());
    call.operands[results[i].operand] = const_cast<void*>(view.data);
  }
  return call;
}

void scan_host(const Frame& frame) {
  const ScanCall call = read_call(frame);
  if (frame.executing()) host::selective_scan(call);
}

#ifdef EXPHIL_CUDA
// Runs in the initialise stage too, where buffers have addresses but no contents: kernels are compiled there.
void scan_cuda(const Frame& frame) {
  const ScanCall call = read_call(frame);
  core::ScanOperands<CUdeviceptr> on_device;
  for (const ScanOperand id : core::all_operands<ScanOperand>())
    on_device[id] = address_of(call.operands[id]);
  const core::ScanShape shape = core::with_alignment_of(call.shape, on_device);
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  if (frame.executing()) {
    cuda::enqueue_scan(context, stream_of(frame), shape, on_device);
  } else {
    cuda::prepare_scan(context, shape);
  }
}
#endif

}  // namespace

}  // namespace exphil::xla

EXPHIL_XLA_HANDLER(exphil_selective_scan_host, exphil::xla::kHostTraits, exphil::xla::scan_host)
#ifdef EXPHIL_CUDA
EXPHIL_XLA_HANDLER(exphil_selective_scan_cuda, exphil::xla::kCudaTraits, exphil::xla::scan_cuda)
#endif
