// The associative scans: every operation, in one direction or both, is one NIF.
#include <optional>
#include <string>

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

}  // namespace

// options: {axis, direction, compensated, block_size}. {y, y_reverse | nil}
Term associative_scan(Call& call, BackendChoice choice, std::int64_t device, Atom op, MaybeTensor a,
                      core::TensorView x, std::tuple<std::int64_t, Atom, bool, std::int64_t> options) {
  const auto& [axis, direction, compensated, block_size] = options;
  core::AssociativeOptions scan_options;
  scan_options.axis = axis;
  scan_options.direction = direction_named(direction);
  scan_options.compensated = compensated;
  scan_options.block_size = block_size;
  const core::AssociativeProblem problem =
      core::validate_associative(associative_op_named(op), {x, a}, scan_options);

  core::Backend& backend = open_backend(choice, device);
  Result y(call, backend, problem.bytes());
  std::optional<Result> y_reverse;
  if (problem.direction == core::Direction::both) y_reverse.emplace(call, backend, problem.bytes());
  backend.associative_scan(problem, {y.data(), y_reverse ? y_reverse->data() : nullptr});
  return enif_make_tuple2(
      call.env(), encode_tensor(call, problem.dtype, x.shape, y.term()),
      y_reverse ? encode_tensor(call, problem.dtype, x.shape, y_reverse->term()) : encode_atom(call, "nil"));
}

}  // namespace exphil::nif
