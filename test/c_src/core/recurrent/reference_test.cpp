// The scalar reference of the fused operators: values by hand, gradients by finite differences.
#include "core/recurrent/reference.hpp"

#include <cmath>

#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/recurrent_case.hpp"

namespace exphil::test {
namespace {

using core::RecurrentOp;
using Id = RecurrentId;

double sigmoid(double v) {
  return 1 / (1 + std::exp(-v));
}

// One step of one unit from h0 (and c0) with these inputs, and r = weight for every gate.
std::vector<double> one_step(RecurrentOp op, std::vector<float> x, float weight, float h0, float c0) {
  const core::RecurrentRow& row = core::recurrent_row(op);
  const auto gates = static_cast<std::int64_t>(x.size());
  const std::vector<float> r(x.size(), weight);
  core::RecurrentTensors tensors;
  const auto view = [](const core::Shape& shape, const float* data) {
    return core::TensorView{core::Dtype::f32, shape, data,
                            static_cast<std::size_t>(shape.elements("")) * sizeof(float)};
  };
  if (row.dense()) {
    tensors[Id::x0] = view({1, 1, gates}, x.data());
    tensors[Id::x1] = view({1, gates}, r.data());
  } else {
    for (int i = 0; i < row.count(); ++i) tensors[core::behind(Id::x0, i)] = view({1, 1, 1}, &x[i]);
  }
  tensors[Id::h0] = view({1, 1}, &h0);
  if (op == RecurrentOp::lstm_scan) tensors[Id::c0] = view({1, 1}, &c0);
  const core::RecurrentValues out = core::recurrent_reference(core::validate_recurrent(op, false, tensors));
  std::vector<double> states = out.final_h;
  states.insert(states.end(), out.final_c.begin(), out.final_c.end());
  CHECK(out.h == out.final_h);
  return states;
}

TEST_CASE("one step of each fused operator by hand", "[recurrent]") {
  const double h = 0.5, s = sigmoid(0.25);
  const auto close = [](const std::vector<double>& out, const std::vector<double>& expected) {
    return relative_error(out, expected) < 1e-7;
  };
  {  // (1 - z) n + z h, the reset gate on the recurrent part alone
    const double r = sigmoid(0.1 + 0.1), z = sigmoid(-0.4 + 0.1), n = std::tanh(0.7 + r * 0.1);
    CHECK(close(one_step(RecurrentOp::gru_scan, {0.1f, -0.4f, 0.7f}, 0.2f, 0.5f, 0), {(1 - z) * n + z * h}));
  }
  {
    const double i = sigmoid(0.1 + 0.1), f = sigmoid(-0.4 + 0.1), g = std::tanh(0.7 + 0.1);
    const double o = sigmoid(1.1 + 0.1), c = f * 0.25 + i * g;
    CHECK(close(one_step(RecurrentOp::lstm_scan, {0.1f, -0.4f, 0.7f, 1.1f}, 0.2f, 0.5f, 0.25f),
                {o * std::tanh(c), c}));
  }
  for (const RecurrentOp op : {RecurrentOp::mingru, RecurrentOp::real_gru}) {
    CHECK(close(one_step(op, {0.25f, -1.5f}, 0, 0.5f, 0), {(1 - s) * h - 1.5 * s}));
  }
  const double i = sigmoid(-0.75);
  CHECK(close(one_step(RecurrentOp::minlstm, {0.25f, -0.75f, 3.0f}, 0, 0.5f, 0),
              {(s * h + i * 3) / (s + i + 1e-6)}));
  CHECK(
      close(one_step(RecurrentOp::elu_gru, {0.25f, -1.5f}, 0, 0.5f, 0), {(1 - s) * h + s * std::exp(-1.5)}));
  CHECK(close(one_step(RecurrentOp::elu_gru, {0.25f, 1.5f}, 0, 0.5f, 0), {(1 - s) * h + s * 2.5}));
  CHECK(close(one_step(RecurrentOp::diag_linear, {0.25f, 1.5f}, 0, 0.5f, 0), {s * h + 1.5}));
  CHECK(close(one_step(RecurrentOp::liquid, {0.25f, 1.5f}, 0, 0.5f, 0), {1.5 + (h - 1.5) * std::exp(-4.0)}));
}

// What the gradient is of: dh and the gradients of the last states weigh the results.
double loss(const RecurrentCase& gradient) {
  core::RecurrentTensors tensors = gradient.views();
  const core::RecurrentCall weights = gradient.call();
  for (const Id id : {Id::dh, Id::d_final_h, Id::d_final_c}) tensors[id].reset();
  const core::RecurrentValues values =
      core::recurrent_reference(core::validate_recurrent(weights.shape.op, false, tensors));
  double sum = 0;
  const auto add = [&](Id id, const std::vector<double>& results) {
    const auto* weight = static_cast<const float*>(weights.input(id));
    for (std::size_t i = 0; i < results.size(); ++i) sum += static_cast<double>(weight[i]) * results[i];
  };
  add(Id::dh, values.h), add(Id::d_final_h, values.final_h), add(Id::d_final_c, values.final_c);
  return sum;
}

TEST_CASE("the reference's gradients are those of finite differences", "[recurrent]") {
  for (const RecurrentKind& kind : recurrent_kinds()) {
    if (kind.activated) continue;  // the next test
    CAPTURE(name_of(kind));
    RecurrentCase test(kind, {2, 4, 3}, true);
    const core::RecurrentGradients out = core::recurrent_grad_reference(test.call());
    for (const Id id : {Id::x0, Id::x1, Id::x2, Id::h0, Id::c0}) {
      const std::vector<double>& gradient = id == Id::h0   ? out.h0
                                            : id == Id::c0 ? out.c0
                                                           : out.x[static_cast<int>(id)];
      std::vector<double> differences;
      for (std::size_t i = 0; i < test.elements(id); ++i) {
        float& element = test.element(id, i);
        const float before = element, above = before + 0x1p-9f, below = before - 0x1p-9f;
        element = above;
        const double high = loss(test);
        element = below;
        const double low = loss(test);
        element = before;
        differences.push_back((high - low) / (static_cast<double>(above) - static_cast<double>(below)));
      }
      REQUIRE(gradient.size() == test.elements(id));
      CHECK(relative_error(gradient, differences) <= 1e-4);
    }
  }
}

// After the sigmoid, or elu and one, the gradient by what went in is that by what came out times the slope.
TEST_CASE("activated inputs are those of the operator after its activations", "[recurrent]") {
  for (const RecurrentKind& kind : recurrent_kinds()) {
    if (!kind.activated) continue;
    CAPTURE(name_of(kind));
    const core::RecurrentRow& row = core::recurrent_row(kind.op);
    RecurrentCase raw({kind.op, false}, {2, 4, 3}, true);
    RecurrentCase activated(kind, {2, 4, 3}, true);
    std::vector<std::vector<double>> slopes(3);
    for (int input = 0; input < row.count(); ++input) {
      const Id id = core::behind(Id::x0, input);
      const bool last = input + 1 == row.count(), elu = last && kind.op == RecurrentOp::elu_gru;
      for (std::size_t i = 0; i < raw.elements(id); ++i) {
        const double v = raw.element(id, i), gate = sigmoid(v);
        const double out = elu ? (v > 0 ? v + 1 : std::exp(v)) : last ? v : gate;
        activated.element(id, i) = static_cast<float>(out);
        slopes[input].push_back(elu ? (v > 0 ? 1 : std::exp(v)) : last ? 1 : gate * (1 - gate));
      }
    }
    const auto expected = core::recurrent_grad_reference(raw.call());
    const auto out = core::recurrent_grad_reference(activated.call());
    for (int input = 0; input < row.count(); ++input) {
      std::vector<double> chained = out.x[input];
      for (std::size_t i = 0; i < chained.size(); ++i) chained[i] *= slopes[input][i];
      CHECK(relative_error(chained, expected.x[input]) <= 1e-6);
    }
    CHECK(relative_error(out.h0, expected.h0) <= 1e-6);
  }
}

}  // namespace
}  // namespace exphil::test
