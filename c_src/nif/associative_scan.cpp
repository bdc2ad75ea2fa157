// The associative scans: every operation, in one direction or both, is one NIF; their gradients are another.
#include <optional>
#include <string>

#include "core/associative/gradient.hpp"
#include "core/associative/problem.hpp"
#include "nif/functions.hpp"

namespace exphil::nif {

using core::AssociativeOp;

AssociativeOp associative_op_named(const Atom& name) {
  for (const AssociativeOp op : {AssociativeOp::cumsum, AssociativeOp::cumprod, AssociativeOp::cummax,
                                 AssociativeOp::cummin, AssociativeOp::linear_recurrence}) {
    if (name.name == core::associative_op_name(op)) return op;
  }
  core::fail(core::ErrorKind::invalid_argument, "op", "no associative scan is called ", name.name);
}

namespace {

core::Direction direction_named(const Atom& name) {
  if (name.name == "both") return core::Direction::both;
  return name.name == "reverse" ? core::Direction::reverse : core::Direction::forward;
}

core::AssociativeOptions scan_options(const AssociativeOptionsTuple& tuple) {
  const auto& [axis, direction, compensated, block_size] = tuple;
  core::AssociativeOptions options;
  options.axis = axis;
  options.direction = direction_named(direction);
  options.compensated = compensated;
  options.block_size = block_size;
  return options;
}

}  // namespace

// options: {axis, direction, compensated, block_size}. {y, y_reverse | nil}
Term associative_scan(Call& call, BackendChoice choice, std::int64_t device, Atom op, MaybeTensor a,
                      core::TensorView x, AssociativeOptionsTuple options) {
  const core::AssociativeProblem problem =
      core::validate_associative(associative_op_named(op), {x, a}, scan_options(options));

  core::Backend& backend = open_backend(choice, device);
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
      associative_op_named(op), {{x, a}, dy, dy_reverse}, scan_options(options));
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
