#include "core/ssd/call.hpp"

#include <string>

#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"

namespace exphil::core {

namespace {

using Id = SsdOperand;

enum class Kind { values, rates, heads, projection, skip, state };

struct Row {
  const char* name;
  Flow flow;
  Kind kind;
  bool forward, gradient;  // the calls that can have it
  Id of = Id::y;           // of a gradient: the operand
  bool needed = false;
};

constexpr PerOperand<Id, Row> rows() {
  PerOperand<Id, Row> table;
  const Flow in = Flow::in, out = Flow::out;
  table[Id::x] = {"x", in, Kind::values, true, true, Id::x, true};
  table[Id::dt] = {"dt", in, Kind::rates, true, true, Id::dt, true};
  table[Id::a] = {"a", in, Kind::heads, true, true, Id::a, true};
  table[Id::b] = {"b", in, Kind::projection, true, true, Id::b, true};
  table[Id::c] = {"c", in, Kind::projection, true, true, Id::c, true};
  table[Id::d] = {":d", in, Kind::skip, true, true};
  table[Id::z] = {":z", in, Kind::values, true, true};
  table[Id::dt_bias] = {":dt_bias", in, Kind::heads, true, true};
  table[Id::initial_state] = {":initial_state", in, Kind::state, true, true};
  table[Id::y] = {"y", out, Kind::values, true, false};
  table[Id::final_state] = {"final_state", out, Kind::state, true, false};
  table[Id::dy] = {"dy", in, Kind::values, false, true};
  table[Id::d_final_state] = {":d_final_state", in, Kind::state, false, true};
  table[Id::grad_x] = {"x", out, Kind::values, false, true, Id::x};
  table[Id::grad_dt] = {"dt", out, Kind::rates, false, true, Id::dt};
  table[Id::grad_a] = {"a", out, Kind::heads, false, true, Id::a};
  table[Id::grad_b] = {"b", out, Kind::projection, false, true, Id::b};
  table[Id::grad_c] = {"c", out, Kind::projection, false, true, Id::c};
  table[Id::grad_d] = {"d", out, Kind::skip, false, true, Id::d};
  table[Id::grad_z] = {"z", out, Kind::values, false, true, Id::z};
  table[Id::grad_dt_bias] = {"dt_bias", out, Kind::heads, false, true, Id::dt_bias};
  table[Id::grad_initial_state] = {"initial_state", out, Kind::state, false, true, Id::initial_state};
  return table;
}

constexpr PerOperand<Id, Row> kRows = rows();
constexpr const char* kValueAxes = "{batch, seq, heads, headdim}";
constexpr const char* kProjectionAxes = "{batch, seq, groups, state}";

// Whether the tensors for each step have x's type.
bool like_x(Id id) {
  const Kind kind = kRows[id].kind;
  return kind == Kind::values || kind == Kind::rates || kind == Kind::projection;
}

Axes axes_of(const SsdShape& s, Id id) {
  const Axis batch{"batch", s.batch}, seq{"seq", s.seq}, heads{"heads", s.heads};
  const Axis headdim{"headdim", s.headdim}, state{"state", s.state};
  switch (kRows[id].kind) {
    case Kind::values:
      return {batch, seq, heads, headdim};
    case Kind::rates:
      return {batch, seq, heads};
    case Kind::projection:
      return {batch, seq, {"groups", s.groups}, state};
    case Kind::state:
      return {batch, heads, headdim, state};
    case Kind::skip:
      if (!s.skip_of_head) return {heads, headdim};
      break;
    case Kind::heads:
      break;
  }
  return {heads};
}

void take_x(const TensorView& x, SsdShape* s) {
  if (x.dtype != Dtype::f32 && x.dtype != Dtype::f16 && x.dtype != Dtype::bf16) {
    fail(ErrorKind::unsupported, "x", "x must be f32, f16 or bf16; got ", dtype_name(x.dtype));
  }
  if (x.shape.rank() != 4) wrong_shape(x, "x", kValueAxes);
  if (x.shape[0] < 1 || x.shape[1] < 0 || x.shape[2] < 1 || x.shape[3] < 1) {
    wrong_shape(x, "x", std::string(kValueAxes) + " with batch, heads and headdim at least 1");
  }
  s->dtype = x.dtype;
  s->batch = x.shape[0], s->seq = x.shape[1], s->heads = x.shape[2], s->headdim = x.shape[3];
  require_axis_limit(s->heads, kMaxDim, "x", "heads");
  require_axis_limit(checked_multiply(s->heads, s->headdim, "x"), kMaxDim, "x", "heads * headdim");
}

void take_b(const TensorView& b, SsdShape* s) {
  if (b.shape.rank() != 4) wrong_shape(b, "b", kProjectionAxes);
  const std::int64_t groups = b.shape[2], state = b.shape[3];
  if (groups < 1 || s->heads % groups != 0) {
    wrong_shape(b, "b", message(kProjectionAxes, " with groups dividing heads = ", s->heads));
  }
  if (state < 1) wrong_shape(b, "b", std::string(kProjectionAxes) + " with state at least 1");
  s->groups = groups, s->state = state;
  require_axis_limit(state, kMaxState, "b", "state");
  const std::int64_t values = checked_multiply(s->batch, s->heads * s->headdim, "x");
  checked_multiply(checked_multiply(values, state, "b"), sizeof(float), "b");
}

void take_tensor(const TensorView& view, Id id, SsdCall* call) {
  if (id == Id::d) {
    const int rank = view.shape.rank();
    if (rank != 1 && rank != 2) wrong_shape(view, ":d", "{heads} or {heads, headdim}");
    call->shape.skip_of_head = rank == 1;
  }
  const Operand operand = describe(call->shape, id);
  require_dtype(view, operand.name, operand.dtype, like_x(id) && id != Id::x ? " like x" : "");
  require_shape(view, operand.name, operand.axes.shape(), operand.axes.to_string());
  check_bytes(view, operand.name);
  call->set(id, view.data);
}

const char* call_name(bool gradient) {
  return gradient ? "the gradient" : "the scan";
}

void require_operands(const SsdTensors& tensors) {
  const bool gradient = tensors[Id::dy].has_value();
  for (const Id id : all_operands<Id>()) {
    const Row& row = kRows[id];
    if (tensors[id] && (row.flow != Flow::in || !(gradient ? row.gradient : row.forward))) {
      fail(ErrorKind::invalid_argument, row.name, call_name(gradient), " takes no ", row.name);
    }
    if (!tensors[id] && row.needed) {
      fail(ErrorKind::invalid_argument, row.name, call_name(gradient), " needs ", row.name);
    }
  }
}

}  // namespace

Operand describe(const SsdShape& shape, SsdOperand id) {
  const Row& row = kRows[id];
  const bool shared = row.kind == Kind::heads || row.kind == Kind::skip;
  return {row.name,      row.flow, like_x(id) ? shape.dtype : Dtype::f32,
          shape.has(id), !shared,  axes_of(shape, id)};
}

SsdCall validate_ssd(const DtOptions& options, const SsdTensors& tensors) {
  check_dt_range(options);
  require_operands(tensors);
  SsdCall call;
  call.shape.options = options;
  take_x(*tensors[Id::x], &call.shape);
  take_b(*tensors[Id::b], &call.shape);
  for (const Id id : all_operands<Id>()) {
    if (tensors[id]) take_tensor(*tensors[id], id, &call);
  }
  return call;
}

void require_ssd_result(const SsdShape& shape, SsdOperand id, const char* argument) {
  const Row& row = kRows[id];
  const bool of_call = row.flow == Flow::out && (shape.gradient() ? row.gradient : row.forward);
  if (of_call && (!row.gradient || shape.has(row.of))) return;
  fail(ErrorKind::invalid_argument, argument, call_name(shape.gradient()),
       " of these arguments has no result ", row.name);
}

std::optional<SsdOperand> ssd_operand_named(bool gradient, Flow flow, const std::string& name) {
  for (const Id id : all_operands<Id>()) {
    const Row& row = kRows[id];
    if (row.flow != flow || !(gradient ? row.gradient : row.forward)) continue;
    if (name == row.name || ":" + name == row.name) return id;
  }
  return std::nullopt;
}

const char* ssd_operand_name(SsdOperand id) {
  return kRows[id].name;
}

}  // namespace exphil::core
