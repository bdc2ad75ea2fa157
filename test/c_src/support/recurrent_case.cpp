#include "support/recurrent_case.hpp"

#include "core/error.hpp"
#include "core/recurrent/reference.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using core::Dtype;
using formulas::Cell;
using Id = RecurrentId;

const std::vector<double>& expected_of(const core::RecurrentValues& values,
                                       const core::RecurrentGradients& gradients, Id id) {
  switch (id) {
    case Id::h:
      return values.h;
    case Id::final_h:
      return values.final_h;
    case Id::final_c:
      return values.final_c;
    case Id::grad_h0:
      return gradients.h0;
    case Id::grad_c0:
      return gradients.c0;
    case Id::grad_rh:
      return gradients.rh;
    default:
      return gradients.x[static_cast<int>(id) - static_cast<int>(Id::grad_x0)];
  }
}

bool can_have(const core::RecurrentShape& shape, Id id) {
  try {
    core::require_recurrent_result(shape, id, "");
    return true;
  } catch (const core::Error&) {
    return false;
  }
}

}  // namespace

std::vector<RecurrentKind> recurrent_kinds() {
  std::vector<RecurrentKind> kinds;
  for (std::size_t i = 0; i < core::kRecurrentOps; ++i) {
    const core::RecurrentRow& row = core::recurrent_row(static_cast<core::RecurrentOp>(i));
    kinds.push_back({row.op, false});
    if (row.activated) kinds.push_back({row.op, true});
  }
  return kinds;
}

std::string name_of(const RecurrentKind& kind) {
  return std::string(core::recurrent_row(kind.op).name) + (kind.activated ? ", activated" : "");
}

RecurrentCase::RecurrentCase(const RecurrentKind& kind, const RecurrentSizes& n, bool gradient,
                             std::uint64_t seed)
    : kind_(kind), dtype_(n.dtype) {
  const core::RecurrentRow& row = core::recurrent_row(kind.op);
  const core::Shape step{n.batch, n.seq, n.hidden}, state{n.batch, n.hidden};
  const std::int64_t gates = formulas::gates_of(row.cell) * n.hidden;
  if (row.dense()) {
    add(Id::x0, {n.batch, n.seq, gates}, -2, 2, seed);
    add(Id::x1, {n.hidden, gates}, -0.5f, 0.5f, seed + 1);
  } else {
    const bool positive = kind.op == core::RecurrentOp::liquid;
    for (int i = 0; i < row.count(); ++i) {
      const bool gate = i + 1 < row.count();
      const float low = !gate ? -2.0f : positive ? 0.3f : kind.activated ? 0.05f : -3.0f;
      const float high = !gate ? 2.0f : kind.activated ? 0.95f : 3.0f;
      add(core::behind(Id::x0, i), step, low, high, seed + static_cast<std::uint64_t>(i));
    }
  }
  const bool cells = n.states && row.cell == Cell::lstm;
  if (n.states) add(Id::h0, state, -1, 1, seed + 3);
  if (cells) add(Id::c0, state, -1, 1, seed + 4);
  if (!gradient) return;
  add(Id::dh, step, -1, 1, seed + 5);
  if (n.states) add(Id::d_final_h, state, -1, 1, seed + 6);
  if (cells) add(Id::d_final_c, state, -1, 1, seed + 7);
}

void RecurrentCase::add(Id id, const core::Shape& shape, float low, float high, std::uint64_t seed) {
  Random random(seed * 1000 + static_cast<std::uint64_t>(id));
  bytes_[id] = rounded(random.vector(static_cast<std::size_t>(shape.elements("")), low, high), dtype_);
  shapes_[id] = shape;
  given_[id] = true;
}

void RecurrentCase::give_h(const std::vector<float>& h) {
  bytes_[Id::given_h] = rounded(h, dtype_);
  shapes_[Id::given_h] = shapes_[Id::dh];
  given_[Id::given_h] = true;
}

core::RecurrentTensors RecurrentCase::views() const {
  core::RecurrentTensors tensors;
  for (const Id id : core::all_operands<Id>()) {
    if (given_[id]) tensors[id] = core::TensorView{dtype_, shapes_[id], bytes_[id].data(), bytes_[id].size()};
  }
  return tensors;
}

core::RecurrentCall RecurrentCase::call() const {
  return core::validate_recurrent(kind_.op, kind_.activated, views());
}

float& RecurrentCase::element(Id id, std::size_t index) {
  return reinterpret_cast<float*>(bytes_[id].data())[index];
}

std::size_t RecurrentCase::elements(Id id) const {
  return given_[id] ? bytes_[id].size() / core::dtype_size(dtype_) : 0;
}

RecurrentResults run_recurrent(const RecurrentCase& test, const RunRecurrent& run,
                               const std::vector<Id>& wanted) {
  const core::RecurrentCall call = test.call();
  return run_guarded(
      call, wanted, [&](Id id) { return can_have(call.shape, id); }, run);
}

std::string recurrent_mismatch(const RecurrentCase& test, const RunRecurrent& run) {
  const core::RecurrentCall call = test.call();
  const bool gradient = call.shape.has(Id::dh);
  const RecurrentResults results = run_recurrent(test, run);
  core::RecurrentValues values;
  core::RecurrentGradients gradients;
  if (gradient) {
    gradients = core::recurrent_grad_reference(call);
  } else {
    values = core::recurrent_reference(call);
  }
  const double limit = call.shape.dtype == Dtype::f16    ? 2e-3
                       : call.shape.dtype == Dtype::bf16 ? 1.5e-2
                       : gradient                        ? 2e-5
                                                         : 1e-5;
  for (const Id id : core::all_operands<Id>()) {
    if (!can_have(call.shape, id)) continue;
    const double error = relative_error(results[id], expected_of(values, gradients, id));
    if (!(error <= limit)) return core::message(core::describe(call.shape, id).name, ": ", error);
  }
  return "";
}

}  // namespace exphil::test
