#include "core/scan/operands.hpp"

#include "core/scan/shape.hpp"

namespace exphil::core {

namespace {

// What determines an operand's dtype.
enum class Element { step, projection, state, real };

Dtype dtype_of(const ScanShape& shape, Element element) {
  switch (element) {
    case Element::step:
      return shape.complex ? Dtype::f32 : shape.dtype;
    case Element::projection:
      return shape.complex ? Dtype::c64 : shape.dtype;
    case Element::state:
      return shape.complex ? Dtype::c64 : Dtype::f32;
    case Element::real:
      break;
  }
  return Dtype::f32;
}

struct Row {
  const char* name;
  Flow flow;
  Element element;
  bool per_sequence;
  Axes axes;
};

Row row_of(const ScanShape& shape, ScanOperand id);

// The gradient of an operand is like the operand.
Row gradient_row(const ScanShape& shape, ScanOperand of, const char* name) {
  Row row = row_of(shape, of);
  row.name = name, row.flow = Flow::out;
  return row;
}

// The table itself, a row for each operand: longer than a function should be, and nowhere to divide.
Row row_of(const ScanShape& shape, ScanOperand id) {
  const Axis batch{"batch", shape.batch}, seq{"seq", shape.seq}, dim{"dim", shape.dim};
  const Axis state{"state", shape.state};
  const auto projection = [&](const char* name, const ProjectionLayout& layout) -> Row {
    if (layout.constant) return {name, Flow::in, Element::projection, false, {dim, state}};
    return {name, Flow::in, Element::projection, true, {batch, seq, {"groups", layout.groups}, state}};
  };
  switch (id) {
    case ScanOperand::x:
      return {"x", Flow::in, Element::step, true, {batch, seq, dim}};
    case ScanOperand::dt:
      return {"dt", Flow::in, Element::step, true, {batch, seq, dim}};
    case ScanOperand::a:
      return {"a", Flow::in, Element::state, false,
              shape.full_matrix ? Axes{dim, state, state} : Axes{dim, state}};
    case ScanOperand::b:
      return projection("b", shape.b_layout);
    case ScanOperand::c:
      return projection("c", shape.c_layout);
    case ScanOperand::d:
      return {":d", Flow::in, Element::real, false, {dim}};
    case ScanOperand::z:
      return {":z", Flow::in, Element::step, true, {batch, seq, dim}};
    case ScanOperand::dt_bias:
      return {":dt_bias", Flow::in, Element::real, false, {dim}};
    case ScanOperand::initial_state:
      return {":initial_state", Flow::in, Element::state, true, {batch, dim, state}};
    case ScanOperand::y:
      return {"y", Flow::out, Element::step, true, {batch, seq, dim}};
    case ScanOperand::y_reverse:
      return {"y_reverse", Flow::out, Element::step, true, {batch, seq, dim}};
    case ScanOperand::final_state:
      return {"final_state", Flow::out, Element::state, true, {batch, dim, state}};
    case ScanOperand::dy:
      return {"dy", Flow::in, Element::step, true, {batch, seq, dim}};
    case ScanOperand::d_final_state:
      return {":d_final_state", Flow::in, Element::state, true, {batch, dim, state}};
    case ScanOperand::given_states:
      return {"states", Flow::in, Element::state, true, {batch, seq, dim, state}};
    case ScanOperand::grad_x:
      return gradient_row(shape, ScanOperand::x, "the gradient of x");
    case ScanOperand::grad_dt:
      return gradient_row(shape, ScanOperand::dt, "the gradient of dt");
    case ScanOperand::grad_a:
      return gradient_row(shape, ScanOperand::a, "the gradient of a");
    case ScanOperand::grad_b:
      return gradient_row(shape, ScanOperand::b, "the gradient of b");
    case ScanOperand::grad_c:
      return gradient_row(shape, ScanOperand::c, "the gradient of c");
    case ScanOperand::grad_d:
      return gradient_row(shape, ScanOperand::d, "the gradient of :d");
    case ScanOperand::grad_z:
      return gradient_row(shape, ScanOperand::z, "the gradient of :z");
    case ScanOperand::grad_dt_bias:
      return gradient_row(shape, ScanOperand::dt_bias, "the gradient of :dt_bias");
    case ScanOperand::grad_initial_state:
      return gradient_row(shape, ScanOperand::initial_state, "the gradient of :initial_state");
    case ScanOperand::states:
      break;
  }
  return {"states", Flow::out, Element::state, true, {batch, seq, dim, state}};
}

}  // namespace

Operand describe(const ScanShape& shape, ScanOperand id) {
  const Row row = row_of(shape, id);
  return {row.name, row.flow, dtype_of(shape, row.element), shape.has(id), row.per_sequence, row.axes};
}

PerOperand<ScanOperand, Operand> describe_operands(const ScanShape& shape) {
  return describe_all<ScanOperand>(shape);
}

}  // namespace exphil::core
