#include "core/scan/call.hpp"

#include <string>

#include "core/checks.hpp"
#include "core/error.hpp"

namespace exphil::core {

namespace {

using formulas::Discretization;

void require_not_empty(const TensorView& view, const std::string& name, int axis, const std::string& axes,
                       const std::string& axis_name) {
  const std::int64_t size = view.shape[axis];
  if (size > 0) return;
  fail(ErrorKind::invalid_argument, name, name, " must be ", axes, " with ", axis_name,
       " at least 1; got shape ", view.shape.to_string());
}

void take_x(const TensorView& x, ScanShape* shape) {
  if (x.shape.rank() != 3) wrong_shape(x, "x", "{batch, seq, dim}");
  require_not_empty(x, "x", 0, "{batch, seq, dim}", "batch");
  require_not_empty(x, "x", 2, "{batch, seq, dim}", "dim");
  if (x.shape[1] < 0) wrong_shape(x, "x", "{batch, seq, dim} with seq at least 0");
  if (x.dtype != Dtype::f32 && x.dtype != Dtype::f16 && x.dtype != Dtype::bf16) {
    fail(ErrorKind::unsupported, "x", "x must be f32, f16 or bf16; got ", dtype_name(x.dtype));
  }
  shape->batch = x.shape[0];
  shape->seq = x.shape[1];
  shape->dim = x.shape[2];
  shape->dtype = x.dtype;
  require_axis_limit(shape->dim, kMaxDim, "x", "dim");
  check_bytes(x, "x");
}

void take_a(const TensorView& a, ScanShape* shape) {
  const int rank = a.shape.rank();
  if ((rank != 2 && rank != 3) || a.shape[0] != shape->dim || (rank == 3 && a.shape[1] != a.shape[2])) {
    wrong_shape(a, "a",
                message("{dim, state}, or {dim, state, state} with :bilinear, where dim = ", shape->dim));
  }
  require_not_empty(a, "a", 1, "{dim, state}", "state");
  if (a.dtype != Dtype::f32 && a.dtype != Dtype::c64) {
    fail(ErrorKind::invalid_argument, "a", "a must be f32 (or c64 for a complex scan); got ",
         dtype_name(a.dtype));
  }
  shape->state = a.shape[1];
  shape->complex = a.dtype == Dtype::c64;
  shape->full_matrix = rank == 3;
  if (shape->full_matrix && shape->options.discretization != Discretization::bilinear) {
    fail(ErrorKind::unsupported, "a",
         "a full matrix a {dim, state, state} works with :bilinear only; got shape ", a.shape.to_string(),
         " with another :discretization");
  }
  if (shape->full_matrix && shape->complex) {
    fail(ErrorKind::unsupported, "a", "a full matrix a {dim, state, state} must be f32; got c64");
  }
  require_axis_limit(shape->state, shape->full_matrix ? kMaxFullMatrixState : kMaxState, "a", "state");
  check_bytes(a, "a");
}

// Why an operand has the dtype that it must have: the end of an error.
const char* dtype_reason(const ScanShape& shape, ScanOperand id) {
  switch (id) {
    case ScanOperand::x:
    case ScanOperand::dt:
    case ScanOperand::z:
      return shape.complex ? " where a is c64" : " like x";
    case ScanOperand::b:
    case ScanOperand::c:
      return shape.complex ? " like a" : " like x";
    default:
      return shape.complex && id == ScanOperand::initial_state ? " like a" : "";
  }
}

void require_dtype_of(const TensorView& view, const ScanShape& shape, ScanOperand id) {
  const Operand operand = describe(shape, id);
  require_dtype(view, operand.name, operand.dtype, dtype_reason(shape, id));
}

// Checks only the rank and the groups. The sizes are compared with the table's afterwards.
ProjectionLayout layout_of(const TensorView& view, const char* name, const ScanShape& shape) {
  ProjectionLayout layout;
  switch (view.shape.rank()) {
    case 2:
      layout.constant = true;
      break;
    case 3:
      break;
    case 4:
      layout.groups = view.shape[2];
      if (layout.groups < 1 || shape.dim % layout.groups != 0) {
        wrong_shape(view, name,
                    message("{batch, seq, groups, state} with groups dividing dim = ", shape.dim));
      }
      break;
    default:
      wrong_shape(view, name, "{batch, seq, state}, {batch, seq, groups, state} or {dim, state}");
  }
  return layout;
}

// What x and a have not determined: dtype, shape and bytes of one operand, by the table.
void take_operand(const TensorView& view, ScanOperand id, ScanShape* shape) {
  const bool projection = id == ScanOperand::b || id == ScanOperand::c;
  if (id == ScanOperand::initial_state && shape->options.direction == Direction::both) {
    fail(ErrorKind::unsupported, ":initial_state",
         ":initial_state is not supported where both directions are scanned");
  }
  require_dtype_of(view, *shape, id);
  if (projection) {
    ProjectionLayout& layout = id == ScanOperand::b ? shape->b_layout : shape->c_layout;
    layout = layout_of(view, describe(*shape, id).name, *shape);
  }
  const Operand operand = describe(*shape, id);
  // {batch, seq, state} has no axis for the group.
  const Axes axes = projection && view.shape.rank() == 3 ? operand.axes.without(2) : operand.axes;
  require_shape(view, operand.name, axes.shape(), axes.to_string());
  check_bytes(view, operand.name);
}

void check_result_sizes(const ScanShape& shape) {
  const std::int64_t per_step = checked_multiply(shape.batch, shape.dim, "x");
  const std::int64_t states = checked_multiply(per_step, shape.state, "a");
  checked_multiply(states, 2 * sizeof(float), "a");
}

const TensorView* pointer_to(const std::optional<TensorView>& view) {
  return view ? &*view : nullptr;
}

}  // namespace

ScanCall validate_scan(const ScanInputs& inputs, const ScanOptions& options, const ScanResults& results) {
  check_dt_range(options);
  ScanOperands<const TensorView*> views;
  views[ScanOperand::x] = &inputs.x, views[ScanOperand::dt] = &inputs.dt, views[ScanOperand::a] = &inputs.a;
  views[ScanOperand::b] = &inputs.b, views[ScanOperand::c] = &inputs.c;
  views[ScanOperand::d] = pointer_to(inputs.d), views[ScanOperand::z] = pointer_to(inputs.z);
  views[ScanOperand::dt_bias] = pointer_to(inputs.dt_bias);
  views[ScanOperand::initial_state] = pointer_to(inputs.initial_state);

  ScanCall call;
  call.shape.options = options;
  take_x(inputs.x, &call.shape);
  take_a(inputs.a, &call.shape);
  for (const ScanOperand id : {ScanOperand::x, ScanOperand::dt, ScanOperand::z}) {
    if (views[id] != nullptr) require_dtype_of(*views[id], call.shape, id);
  }
  for (const ScanOperand id : {ScanOperand::dt, ScanOperand::b, ScanOperand::c, ScanOperand::z,
                               ScanOperand::d, ScanOperand::dt_bias, ScanOperand::initial_state}) {
    if (views[id] != nullptr) take_operand(*views[id], id, &call.shape);
  }
  check_result_sizes(call.shape);

  for (const ScanOperand id : all_operands<ScanOperand>()) {
    if (views[id] != nullptr) call.set(id, views[id]->data);
  }
  if (options.direction == Direction::both) call.shape.add(ScanOperand::y_reverse);
  if (results.final_state) call.shape.add(ScanOperand::final_state);
  if (results.states) call.shape.add(ScanOperand::states);
  return call;
}

}  // namespace exphil::core
