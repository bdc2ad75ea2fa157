// The associative scans: one NIF for every operation and direction, and one for their gradients.
#include <optional>
#include <string>

#include "core/associative/gradient.hpp"
#include "core/associative/problem.hpp"
#include "core/names.hpp"
#include "nif/functions.hpp"

namespace exphil::nif {

namespace {

core::AssociativeOptions scan_options(const AssociativeOptionsTuple& tuple) {
  const auto& [axis, direction, compensated, block_size] = tuple;
  core::AssociativeOptions options;
  options.axis = axis;
  options.direction = core::direction_named(direction.name, ":reverse");
  options.compensated = compensated;
  options.block_size = block_size;
  return options;
}

}  // namespace

// options: {axis, direction, compensated, block_size}. {y, y_reverse | nil}
Term associative_scan(Call& call, BackendChoice choice, std::int64_t device, Atom op, MaybeScanTensor a,
                      ScanTensor x, AssociativeOptionsTuple options) {
  core::AssociativeProblem problem =
      core::validate_associative(core::associative_op_named(op.name, "op"), {x, a}, scan_options(options));

  core::Backend& backend = open_backend(choice, device, call.device_ranges());
  problem.on_device = call.device_ranges();
  Result y(call, backend, problem.bytes());
  std::optional<Result> y_reverse;
  if (problem.direction == core::Direction::both) y_reverse.emplace(call, backend, problem.bytes());
  backend.associative_scan(problem, {y.data(), y_reverse ? y_reverse->data() : nullptr});
  return enif_make_tuple2(
      call.env(), encode_tensor(call, problem.dtype, x.shape, y.term()),
      y_reverse ? encode_tensor(call, problem.dtype, x.shape, y_reverse->term()) : encode_atom(call, "nil"));
}

// {dx, da | nil}
Term associative_grad(Call& call, BackendChoice choice, std::int64_t device, Atom op, core::TensorView dy,
                      MaybeTensor dy_reverse, MaybeTensor a, core::TensorView x,
                      AssociativeOptionsTuple options) {
  const core::AssociativeGradProblem problem = core::validate_associative_grad(
      core::associative_op_named(op.name, "op"), {{x, a}, dy, dy_reverse}, scan_options(options));
  core::Backend& backend = open_backend(choice, device);
  Result dx(call, backend, problem.scan.bytes());
  std::optional<Result> da;
  if (a) da.emplace(call, backend, problem.scan.bytes());
  core::associative_grad(problem, {dx.data(), da ? da->data() : nullptr},
                         [&](const core::AssociativeProblem& scan, const core::AssociativeOutputs& outputs) {
                           backend.associative_scan(scan, outputs);
                         });
  return enif_make_tuple2(call.env(), encode_tensor(call, x.dtype, x.shape, dx.term()),
                          da ? encode_tensor(call, x.dtype, x.shape, da->term()) : encode_atom(call, "nil"));
}

}  // namespace exphil::nif
