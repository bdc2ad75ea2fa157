#include "xla/scan_frame.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/names.hpp"

namespace exphil::xla {

namespace {

// The last one is the gradient's.
constexpr const char* kAttributes =
    "operands results discretization direction algorithm dt_softplus dt_min dt_max dy";

// "d, z, dt_bias, initial_state"
template <class Named>
std::string list_names(const std::vector<Named>& named) {
  std::string list;
  for (const Named& one : named) list += (list.empty() ? "" : ", ") + std::string(one.name);
  return list;
}

template <class Named>
auto find_named(const std::vector<Named>& named, const std::string& name) {
  return std::find_if(named.begin(), named.end(), [&](const Named& one) { return name == one.name; });
}

}  // namespace

void read_dt_options(const Frame& frame, core::DtOptions* options) {
  options->dt_softplus = frame.boolean("dt_softplus", false);
  options->dt_min = static_cast<float>(frame.number("dt_min", static_cast<double>(options->dt_min)));
  options->dt_max = static_cast<float>(frame.number("dt_max", static_cast<double>(options->dt_max)));
}

core::ScanOptions read_scan_options(const Frame& frame, bool gradient) {
  const std::string_view known = kAttributes;
  frame.require_known(gradient ? known : known.substr(0, known.rfind(' ')));
  core::ScanOptions options;
  options.discretization = core::discretization_named(frame.text("discretization", "zoh"), "discretization");
  options.direction = core::direction_named(frame.text("direction", "forward"), "direction");
  options.algorithm = core::scan_algorithm_named(frame.text("algorithm", "auto"), "algorithm");
  read_dt_options(frame, &options);
  return options;
}

core::ScanInputs read_scan_inputs(const Frame& frame, std::int64_t first, std::int64_t first_optional,
                                  const std::vector<OptionalArgument>& more) {
  core::ScanInputs inputs;
  std::int64_t index = first;
  inputs.x = frame.argument(index++, "x");
  inputs.dt = frame.argument(index++, "dt");
  inputs.a = frame.argument(index++, "a");
  inputs.b = frame.argument(index++, "b");
  inputs.c = frame.argument(index++, "c");
  index = first_optional;
  std::vector<OptionalArgument> known = {{"d", &inputs.d},
                                         {"z", &inputs.z},
                                         {"dt_bias", &inputs.dt_bias},
                                         {"initial_state", &inputs.initial_state}};
  known.insert(known.end(), more.begin(), more.end());
  for (const std::string& name : frame.words("operands")) {
    const auto found = find_named(known, name);
    if (found == known.end() || found->view->has_value()) {
      core::fail(core::ErrorKind::invalid_argument, "operands", "operands must list ", list_names(known),
                 ", each at most once; got ", name);
    }
    *found->view = frame.argument(index++, name);
  }
  if (index != frame.arguments()) {
    core::fail(core::ErrorKind::invalid_argument, "operands", "the call has ", frame.arguments(),
               " arguments, and the attribute operands names ", index);
  }
  return inputs;
}

std::vector<NamedOperand> read_results(const Frame& frame, const std::vector<NamedOperand>& known) {
  std::vector<NamedOperand> results;
  for (const std::string& name : frame.words("results")) {
    const auto found = find_named(known, name);
    if (found == known.end() || find_named(results, name) != results.end()) {
      core::fail(core::ErrorKind::invalid_argument, "results", "results must list ", list_names(known),
                 ", each at most once; got ", name);
    }
    results.push_back(*found);
  }
  return results;
}

void require_result_count(const Frame& frame, std::size_t count) {
  if (static_cast<std::int64_t>(count) != frame.results()) {
    core::fail(core::ErrorKind::invalid_argument, "results", "the call has ", frame.results(),
               " results, and the attribute results names ", count);
  }
}

void* read_result(const Frame& frame, std::int64_t index, const core::ScanShape& shape,
                  const NamedOperand& result) {
  const core::Operand operand = core::describe(shape, result.operand);
  const core::TensorView view = frame.result(index, result.name);
  require_result(view, result.name, operand.dtype, operand.axes.shape());
  return const_cast<void*>(view.data);
}

#ifdef EXPHIL_CUDA
DeviceCall device_call(const core::ScanCall& call) {
  core::ScanOperands<CUdeviceptr> operands;
  for (const core::ScanOperand id : core::all_operands<core::ScanOperand>()) {
    operands[id] = address_of(call.operands[id]);
  }
  return {core::with_alignment_of(call.shape, operands), operands};
}
#endif

}  // namespace exphil::xla
