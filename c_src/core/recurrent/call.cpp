#include "core/recurrent/call.hpp"

#include <string>

#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"

namespace exphil::core {

namespace {

using formulas::Cell;
using Id = RecurrentOperand;

// What a tensor is, and which calls can have it.
enum class Kind { input, state, step, summed };
enum class Calls { all, lstm, dense, third };

struct Row {
  const char* name;  // null: the name of an input of the operator
  Flow flow;
  Kind kind;
  bool forward, gradient;  // the calls that can have it
  Calls calls = Calls::all;
};

constexpr PerOperand<Id, Row> rows() {
  PerOperand<Id, Row> table;
  table[Id::x0] = {nullptr, Flow::in, Kind::input, true, true};
  table[Id::x1] = {nullptr, Flow::in, Kind::input, true, true};
  table[Id::x2] = {nullptr, Flow::in, Kind::input, true, true, Calls::third};
  table[Id::h0] = {":h0", Flow::in, Kind::state, true, true};
  table[Id::c0] = {":c0", Flow::in, Kind::state, true, true, Calls::lstm};
  table[Id::h] = {"h", Flow::out, Kind::step, true, false};
  table[Id::final_h] = {"final_h", Flow::out, Kind::state, true, false};
  table[Id::final_c] = {"final_c", Flow::out, Kind::state, true, false, Calls::lstm};
  table[Id::dh] = {"dh", Flow::in, Kind::step, false, true};
  table[Id::d_final_h] = {":d_final_h", Flow::in, Kind::state, false, true};
  table[Id::d_final_c] = {":d_final_c", Flow::in, Kind::state, false, true, Calls::lstm};
  table[Id::given_h] = {":h", Flow::in, Kind::step, false, true};
  table[Id::grad_x0] = {nullptr, Flow::out, Kind::input, false, true};
  table[Id::grad_x1] = {nullptr, Flow::out, Kind::input, false, true};
  table[Id::grad_x2] = {nullptr, Flow::out, Kind::input, false, true, Calls::third};
  table[Id::grad_h0] = {"h0", Flow::out, Kind::state, false, true};
  table[Id::grad_c0] = {"c0", Flow::out, Kind::state, false, true, Calls::lstm};
  table[Id::grad_rh] = {"rh", Flow::out, Kind::summed, false, true, Calls::dense};
  return table;
}

constexpr PerOperand<Id, Row> kRows = rows();

bool allowed(const RecurrentRow& op, const Row& row) {
  switch (row.calls) {
    case Calls::lstm:
      return op.cell == Cell::lstm;
    case Calls::dense:
      return op.dense();
    case Calls::third:
      return op.count() == 3;
    case Calls::all:
      break;
  }
  return true;
}

int input_index(Id id) {
  return static_cast<int>(id) - static_cast<int>(kRows[id].flow == Flow::in ? Id::x0 : Id::grad_x0);
}

const char* name_of(const RecurrentRow& op, Id id) {
  const char* const name = kRows[id].name;
  return name != nullptr ? name : op.inputs[static_cast<std::size_t>(input_index(id))];
}

Axes axes_of(const RecurrentShape& s, Id id) {
  const Axis batch{"batch", s.batch}, seq{"seq", s.seq}, hidden{"hidden", s.hidden};
  const Axis gates{s.cell == Cell::lstm ? "4 hidden" : "3 hidden", s.gates() * s.hidden};
  switch (kRows[id].kind) {
    case Kind::state:
      return {batch, hidden};
    case Kind::summed:
      return {batch, seq, gates};
    case Kind::input:
      if (!s.dense()) break;
      return input_index(id) == 0 ? Axes{batch, seq, gates} : Axes{hidden, gates};
    case Kind::step:
      break;
  }
  return {batch, seq, hidden};
}

bool is_weight(const RecurrentShape& s, Id id) {
  return s.dense() && kRows[id].kind == Kind::input && input_index(id) == 1;
}

// From the first input.
void take_sizes(const TensorView& x, RecurrentShape* shape) {
  const char* const name = shape->row().inputs[0];
  const std::int64_t gates = shape->dense() ? shape->gates() : 1;
  const std::string axes =
      gates == 1 ? "{batch, seq, hidden}" : "{batch, seq, " + std::to_string(gates) + " hidden}";
  if (x.dtype != Dtype::f32 && x.dtype != Dtype::f16 && x.dtype != Dtype::bf16) {
    fail(ErrorKind::unsupported, name, name, " must be f32, f16 or bf16; got ", dtype_name(x.dtype));
  }
  if (x.shape.rank() != 3) wrong_shape(x, name, axes);
  if (x.shape[0] < 1 || x.shape[1] < 0 || x.shape[2] < 1 || x.shape[2] % gates != 0) {
    wrong_shape(x, name, axes + " with batch and hidden at least 1");
  }
  shape->batch = x.shape[0], shape->seq = x.shape[1], shape->hidden = x.shape[2] / gates;
  shape->dtype = x.dtype;
  const std::int64_t limit = shape->dense() ? kMaxRecurrentHidden : kMaxDim;
  require_axis_limit(shape->hidden, limit, name, "hidden");
}

void take_tensor(const TensorView& view, Id id, RecurrentCall* call) {
  const Operand operand = describe(call->shape, id);
  require_dtype(view, operand.name, call->shape.dtype,
                id == Id::x0 ? std::string() : std::string(" like ") + call->shape.row().inputs[0]);
  require_shape(view, operand.name, operand.axes.shape(), operand.axes.to_string());
  check_bytes(view, operand.name);
  call->set(id, view.data);
}

void require_inputs(const RecurrentRow& op, bool gradient, const RecurrentTensors& tensors) {
  for (const Id id : all_operands<Id>()) {
    const Row& row = kRows[id];
    const bool can = row.flow == Flow::in && allowed(op, row) && (gradient ? row.gradient : row.forward);
    const char* const name = id == Id::x2 && op.count() < 3 ? "the third input" : name_of(op, id);
    if (tensors[id] && !can) {
      fail(ErrorKind::invalid_argument, name, op.name, gradient ? "'s gradient" : "", " takes no ", name);
    }
    const bool needed = can && (row.kind == Kind::input || id == Id::dh);
    if (needed && !tensors[id]) fail(ErrorKind::invalid_argument, name, op.name, " needs ", name);
  }
}

}  // namespace

Operand describe(const RecurrentShape& shape, RecurrentOperand id) {
  const Row& row = kRows[id];
  if (row.calls == Calls::third && shape.row().count() < 3)
    return {"", row.flow, shape.dtype, false, false, {}};
  return {name_of(shape.row(), id), row.flow,          shape.dtype, shape.has(id),
          !is_weight(shape, id),    axes_of(shape, id)};
}

RecurrentCall validate_recurrent(RecurrentOp op, bool activated, const RecurrentTensors& tensors) {
  const RecurrentRow& row = recurrent_row(op);
  if (activated && !row.activated) {
    fail(ErrorKind::invalid_argument, ":activated", ":activated is not for ", row.name,
         ", whose inputs have no activations of their own");
  }
  require_inputs(row, tensors[Id::dh].has_value(), tensors);
  RecurrentCall call;
  call.shape.op = op;
  call.shape.cell = activated ? *row.activated : row.cell;
  take_sizes(*tensors[Id::x0], &call.shape);
  for (const Id id : all_operands<Id>()) {
    if (tensors[id]) take_tensor(*tensors[id], id, &call);
  }
  return call;
}

void require_recurrent_result(const RecurrentShape& shape, RecurrentOperand id, const char* argument) {
  const bool gradient = shape.has(Id::dh);
  const Row& row = kRows[id];
  const bool of_state = id != Id::grad_h0 && id != Id::grad_c0;
  const bool given = of_state || shape.has(id == Id::grad_h0 ? Id::h0 : Id::c0);
  if (row.flow == Flow::out && allowed(shape.row(), row) && (gradient ? row.gradient : row.forward) && given)
    return;
  fail(ErrorKind::invalid_argument, argument, shape.row().name, gradient ? "'s gradient" : "",
       " of these arguments has no result ", name_of(shape.row(), id));
}

const char* recurrent_operand_name(RecurrentOp op, RecurrentOperand id) {
  return name_of(recurrent_row(op), id);
}

std::optional<RecurrentOperand> recurrent_operand_named(RecurrentOp op, bool gradient, Flow flow,
                                                        const std::string& name) {
  const RecurrentRow& row_of_op = recurrent_row(op);
  for (const Id id : all_operands<Id>()) {
    const Row& row = kRows[id];
    if (row.flow != flow || !allowed(row_of_op, row) || !(gradient ? row.gradient : row.forward)) continue;
    const std::string known = name_of(row_of_op, id);
    if (name == known || ":" + name == known) return id;
  }
  return std::nullopt;
}

std::vector<RecurrentOperand> NamedRecurrent::inputs() const {
  std::vector<Id> ids;
  for (int i = 0; i < recurrent_row(op).count(); ++i) ids.push_back(behind(Id::x0, i));
  return ids;
}

}  // namespace exphil::core
