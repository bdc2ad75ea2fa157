// The associative scans: one NIF for every operation and direction, and one for their gradients.
#include <optional>
#include <string>

#include "core/associative/gradient.hpp"
#include "core/associative/problem.hpp"
#include "core/names.hpp"
#include "nif/functions.hpp"
#include "nif/option_reader.hpp"

namespace exphil::nif {

core::AssociativeOptions Decoder<core::AssociativeOptions>::decode(Call& call, Term term,
                                                                   const char* argument) {
  OptionReader reader(call, term, argument);
  core::AssociativeOptions options;
  options.axis = reader.take<std::int64_t>("axis").value_or(0);
  if (const auto direction = reader.take<Atom>("direction", ":reverse")) {
    options.direction = core::direction_named(direction->name, ":reverse");
  }
  options.compensated = reader.take<bool>("compensated").value_or(false);
  options.block_size = reader.take<std::int64_t>("block_size").value_or(0);
  reader.finish();
  return options;
}

Term associative_scan(Call& call, BackendChoice choice, std::int64_t device, Atom op, MaybeScanTensor a,
                      ScanTensor x, core::AssociativeOptions options) {
  core::AssociativeProblem problem =
      core::validate_associative(core::associative_op_named(op.name, "op"), {x, a}, options);

  core::Backend& backend = open_backend(choice, device, call.device_ranges());
  problem.on_device = call.device_ranges();
  Result y(call, backend, problem.bytes());
  std::optional<Result> y_reverse;
  if (problem.direction == core::Direction::both) y_reverse.emplace(call, backend, problem.bytes());
  backend.associative_scan(problem, {y.data(), y_reverse ? y_reverse->data() : nullptr});
  const auto tensor = [&](Result& result) {
    return encode_tensor(call, problem.dtype, x.shape, result.term());
  };
  return encode(call, Map{{{"y"}, tensor(y)},
                          {{"y_reverse"}, y_reverse ? tensor(*y_reverse) : encode_atom(call, "nil")}});
}

Term associative_grad(Call& call, BackendChoice choice, std::int64_t device, Atom op, core::TensorView dy,
                      MaybeTensor dy_reverse, MaybeTensor a, core::TensorView x,
                      core::AssociativeOptions options) {
  const core::AssociativeGradProblem problem = core::validate_associative_grad(
      core::associative_op_named(op.name, "op"), {{x, a}, dy, dy_reverse}, options);
  core::Backend& backend = open_backend(choice, device);
  Result dx(call, backend, problem.scan.bytes());
  std::optional<Result> da;
  if (a) da.emplace(call, backend, problem.scan.bytes());
  core::associative_grad(problem, {dx.data(), da ? da->data() : nullptr},
                         [&](const core::AssociativeProblem& scan, const core::AssociativeOutputs& outputs) {
                           backend.associative_scan(scan, outputs);
                         });
  const auto tensor = [&](Result& result) { return encode_tensor(call, x.dtype, x.shape, result.term()); };
  return encode(call, Map{{{"dx"}, tensor(dx)}, {{"da"}, da ? tensor(*da) : encode_atom(call, "nil")}});
}

}  // namespace exphil::nif
