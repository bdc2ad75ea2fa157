// The scalar reference of the operator of Mamba-2: values by hand, gradients by finite differences, and both
// against the reference of the selective scan, of which it is a case.
#include "core/ssd/reference.hpp"

#include <cmath>

#include "core/scan/gradient_reference.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/ssd_case.hpp"

namespace exphil::test {
namespace {

using Id = SsdId;

TEST_CASE("two steps of the operator of Mamba-2 by hand", "[ssd]") {
  SsdSpec spec;
  spec.batch = spec.heads = spec.groups = spec.headdim = 1, spec.seq = 2, spec.state = 2;
  spec.options.dt_softplus = true;
  SsdCase test(spec, false);
  const auto put = [&](Id id, std::vector<float> values) {
    REQUIRE(test.elements(id) == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) test.element(id, i) = values[i];
  };
  put(Id::x, {2, -1}), put(Id::dt, {0.25f, -0.5f}), put(Id::a, {-1.5f}), put(Id::dt_bias, {0.5f});
  put(Id::b, {1, 3, -2, 0.5f}), put(Id::c, {0.5f, -1, 4, 2}), put(Id::d, {3}), put(Id::z, {0.75f, -2});
  put(Id::initial_state, {0.5f, -0.25f});
  const core::SsdValues out = core::ssd_reference(test.call());
  const double dt0 = std::log1p(std::exp(0.75)), dt1 = std::log1p(std::exp(0.0));
  const double s0 = std::exp(-1.5 * dt0) * 0.5 + dt0 * 2 * 1, s1 = std::exp(-1.5 * dt0) * -0.25 + dt0 * 2 * 3;
  const double t0 = std::exp(-1.5 * dt1) * s0 + dt1 * 2, t1 = std::exp(-1.5 * dt1) * s1 - dt1 * 0.5;
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  CHECK(relative_error(out[Id::final_state], std::vector<double>{t0, t1}) < 1e-14);
  const std::vector<double> y{(0.5 * s0 - s1 + 6) * silu(0.75), (4 * t0 + 2 * t1 - 3) * silu(-2)};
  CHECK(relative_error(out[Id::y], y) < 1e-14);
}

// What the gradient is of: dy and the gradient of the final state weigh the results.
double loss(const SsdCase& gradient, const core::DtOptions& options) {
  core::SsdTensors tensors = gradient.views();
  const core::SsdCall weights = gradient.call();
  tensors[Id::dy].reset(), tensors[Id::d_final_state].reset();
  const core::SsdValues values = core::ssd_reference(core::validate_ssd(options, tensors));
  double sum = 0;
  const auto add = [&](Id id, const std::vector<double>& results) {
    const auto* weight = static_cast<const float*>(weights.input(id));
    for (std::size_t i = 0; weight != nullptr && i < results.size(); ++i)
      sum += static_cast<double>(weight[i]) * results[i];
  };
  add(Id::dy, values[Id::y]), add(Id::d_final_state, values[Id::final_state]);
  return sum;
}

void check_differences(const SsdSpec& spec) {
  SsdCase test(spec, true);
  const core::SsdValues gradients = core::ssd_grad_reference(test.call());
  const std::pair<Id, Id> all[] = {{Id::x, Id::grad_x},
                                   {Id::dt, Id::grad_dt},
                                   {Id::a, Id::grad_a},
                                   {Id::b, Id::grad_b},
                                   {Id::c, Id::grad_c},
                                   {Id::d, Id::grad_d},
                                   {Id::z, Id::grad_z},
                                   {Id::dt_bias, Id::grad_dt_bias},
                                   {Id::initial_state, Id::grad_initial_state}};
  for (const auto& [id, gradient] : all) {
    CAPTURE(core::ssd_operand_name(id));
    REQUIRE(gradients[gradient].size() == test.elements(id));
    std::vector<double> differences;
    for (std::size_t i = 0; i < test.elements(id); ++i) {
      float& element = test.element(id, i);
      const float before = element, above = before + 0x1p-10f, below = before - 0x1p-10f;
      element = above;
      const double high = loss(test, spec.options);
      element = below;
      const double low = loss(test, spec.options);
      element = before;
      differences.push_back((high - low) / (static_cast<double>(above) - static_cast<double>(below)));
    }
    CHECK(relative_error(gradients[gradient], differences) <= 1e-4);
  }
}

TEST_CASE("the reference's gradients of the operator of Mamba-2 are those of finite differences", "[ssd]") {
  SsdSpec spec;
  spec.seq = 4, spec.headdim = 3;
  check_differences(spec);
  spec.options.dt_softplus = true, spec.skips = 2, spec.groups = 1;
  check_differences(spec);
  spec.skips = 0, spec.z = spec.dt_bias = spec.states = false;
  check_differences(spec);
}

// Where dt' is at a bound, dt has no gradient, and the difference across the bound is not small.
TEST_CASE("a clipped dt of the operator of Mamba-2 has no gradient", "[ssd]") {
  SsdSpec spec;
  spec.options = {false, 0.3f, 0.6f};
  spec.dt_bias = false;
  SsdCase test(spec, true);
  const core::SsdValues gradients = core::ssd_grad_reference(test.call());
  int clipped = 0;
  for (std::size_t i = 0; i < test.elements(Id::dt); ++i) {
    const bool inside = test.element(Id::dt, i) > 0.3f && test.element(Id::dt, i) < 0.6f;
    CHECK((gradients[Id::grad_dt][i] != 0) == inside);
    clipped += inside ? 0 : 1;
  }
  CHECK(clipped > 0);
}

// A selective scan over dim = heads headdim whose a and dt are those of the head.
struct AsScan {
  core::ScanGradInputs inputs;
  core::ScanOptions options;
  std::vector<std::vector<float>> owned;

  AsScan(SsdCase& test, const SsdSpec& n) {
    const std::int64_t dim = n.heads * n.headdim;
    const auto flat = [&](Id id, const core::Shape& shape) {
      core::TensorView view = test.view(id);
      view.shape = shape;
      return view;
    };
    // Each of `heads` values of a row, `times` times.
    const auto repeat = [&](Id id, std::int64_t times, const core::Shape& shape) {
      std::vector<float> values;
      for (std::size_t i = 0; i < test.elements(id); ++i) {
        for (std::int64_t k = 0; k < times; ++k) values.push_back(test.element(id, i));
      }
      owned.push_back(std::move(values));
      return core::TensorView{core::Dtype::f32, shape, owned.back().data(), owned.back().size() * 4};
    };
    core::ScanInputs& scan = inputs.scan;
    const core::Shape values{n.batch, n.seq, dim}, states{n.batch, dim, n.state};
    scan.x = flat(Id::x, values), scan.z = flat(Id::z, values), inputs.dy = flat(Id::dy, values);
    scan.dt = repeat(Id::dt, n.headdim, values), scan.a = repeat(Id::a, n.headdim * n.state, {dim, n.state});
    scan.dt_bias = repeat(Id::dt_bias, n.headdim, {dim}), scan.d = repeat(Id::d, n.headdim, {dim});
    scan.b = test.view(Id::b), scan.c = test.view(Id::c);
    scan.initial_state = flat(Id::initial_state, states),
    inputs.d_final_state = flat(Id::d_final_state, states);
    static_cast<core::DtOptions&>(options) = n.options;
  }
};

// Of each `count` neighbours.
std::vector<double> sums_of(const std::vector<double>& values, std::int64_t count) {
  std::vector<double> sums(values.size() / static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) sums[i / static_cast<std::size_t>(count)] += values[i];
  return sums;
}

TEST_CASE("the operator of Mamba-2 is a selective scan whose channels of a head share dt and a", "[ssd]") {
  SsdSpec spec;
  spec.options = bounded_softplus();
  SsdCase test(spec, true), forward(spec, false);
  const AsScan as(test, spec);
  const core::SsdValues out = core::ssd_reference(forward.call());
  const ScanExpected scan = expect(core::validate_scan(as.inputs.scan, as.options, {true, false}));
  CHECK(relative_error(out[Id::y], scan.y) < 1e-13);
  CHECK(relative_error(out[Id::final_state], scan.final_state) < 1e-13);

  const core::SsdValues gradients = core::ssd_grad_reference(test.call());
  const auto expected = core::scan_grad_reference(core::validate_scan_grad(as.inputs, as.options));
  const std::int64_t each = spec.headdim;
  CHECK(relative_error(gradients[Id::grad_x], expected.x) < 1e-12);
  CHECK(relative_error(gradients[Id::grad_b], expected.b) < 1e-12);
  CHECK(relative_error(gradients[Id::grad_c], expected.c) < 1e-12);
  CHECK(relative_error(gradients[Id::grad_z], expected.z) < 1e-12);
  CHECK(relative_error(gradients[Id::grad_initial_state], expected.initial_state) < 1e-12);
  CHECK(relative_error(gradients[Id::grad_dt], sums_of(expected.dt, each)) < 1e-12);
  CHECK(relative_error(gradients[Id::grad_a], sums_of(expected.a, each * spec.state)) < 1e-12);
  CHECK(relative_error(gradients[Id::grad_d], sums_of(expected.d, each)) < 1e-12);
  CHECK(relative_error(gradients[Id::grad_dt_bias], sums_of(expected.dt_bias, each)) < 1e-12);
}

}  // namespace
}  // namespace exphil::test
