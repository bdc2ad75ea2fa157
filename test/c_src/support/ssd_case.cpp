#include "support/ssd_case.hpp"

#include "core/error.hpp"
#include "core/ssd/reference.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using core::Dtype;
using Id = SsdId;

bool can_have(const core::SsdShape& shape, Id id) {
  try {
    core::require_ssd_result(shape, id, "");
    return true;
  } catch (const core::Error&) {
    return false;
  }
}

}  // namespace

core::DtOptions bounded_softplus() {
  return {true, 0.05f, 1.5f};
}

SsdCase::SsdCase(const SsdSpec& n, bool gradient) : spec_(n) {
  const core::Shape values{n.batch, n.seq, n.heads, n.headdim}, rates{n.batch, n.seq, n.heads};
  const core::Shape keys{n.batch, n.seq, n.groups, n.state}, heads{n.heads};
  const core::Shape states{n.batch, n.heads, n.headdim, n.state};
  // Softplus makes 0.01 to 2 of these, as of Mamba's.
  const bool softplus = n.options.dt_softplus;
  add(Id::x, values, -1, 1), add(Id::dt, rates, softplus ? -4.0f : 0.01f, softplus ? 2.0f : 1.0f);
  add(Id::a, heads, -2, -0.01f), add(Id::b, keys, -1, 1), add(Id::c, keys, -1, 1);
  if (n.skips == 1) add(Id::d, heads, -1, 1);
  if (n.skips == 2) add(Id::d, {n.heads, n.headdim}, -1, 1);
  if (n.z) add(Id::z, values, -3, 3);
  if (n.dt_bias) add(Id::dt_bias, heads, softplus ? -0.5f : 0.0f, 0.5f);
  if (n.states) add(Id::initial_state, states, -1, 1);
  if (!gradient) return;
  add(Id::dy, values, -1, 1);
  if (n.states) add(Id::d_final_state, states, -1, 1);
}

void SsdCase::add(Id id, const core::Shape& shape, float low, float high) {
  const core::Operand operand = core::describe({}, id);
  const bool of_x = id == Id::x || id == Id::dt || id == Id::b || id == Id::c || id == Id::z || id == Id::dy;
  dtypes_[id] = of_x ? spec_.dtype : Dtype::f32;
  const auto count = static_cast<std::size_t>(shape.elements(operand.name));
  Random random(spec_.seed * 1000 + static_cast<std::uint64_t>(id));
  bytes_[id] = rounded(random.vector(count, low, high), dtypes_[id]);
  shapes_[id] = shape;
  given_[id] = true;
}

core::TensorView SsdCase::view(Id id) const {
  return {dtypes_[id], shapes_[id], bytes_[id].data(), bytes_[id].size()};
}

core::SsdTensors SsdCase::views() const {
  core::SsdTensors tensors;
  for (const Id id : core::all_operands<Id>()) {
    if (given_[id]) tensors[id] = view(id);
  }
  return tensors;
}

core::SsdCall SsdCase::call() const {
  return core::validate_ssd(spec_.options, views());
}

float& SsdCase::element(Id id, std::size_t index) {
  return reinterpret_cast<float*>(bytes_[id].data())[index];
}

std::size_t SsdCase::elements(Id id) const {
  return given_[id] ? bytes_[id].size() / core::dtype_size(dtypes_[id]) : 0;
}

SsdResults run_ssd(const SsdCase& test, const RunSsd& run, const std::vector<Id>& wanted) {
  const core::SsdCall call = test.call();
  return run_guarded(
      call, wanted, [&](Id id) { return can_have(call.shape, id); }, run);
}

std::string ssd_mismatch(const SsdCase& test, const RunSsd& run) {
  const core::SsdCall call = test.call();
  const bool gradient = call.shape.gradient();
  const SsdResults results = run_ssd(test, run);
  const core::SsdValues expected = gradient ? core::ssd_grad_reference(call) : core::ssd_reference(call);
  for (const Id id : core::all_operands<Id>()) {
    if (!can_have(call.shape, id)) continue;
    const core::Operand operand = core::describe(call.shape, id);
    const double limit = operand.dtype == Dtype::f16    ? 1e-3
                         : operand.dtype == Dtype::bf16 ? 8e-3
                         : gradient                     ? 2e-5
                                                        : 1e-5;
    const double error = relative_error(results[id], expected[id]);
    if (!(error <= limit)) return core::message(operand.name, ": ", error);
  }
  return "";
}

}  // namespace exphil::test
