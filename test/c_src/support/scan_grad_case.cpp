#include "support/scan_grad_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "core/half.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using core::Dtype;

constexpr std::size_t kGuard = 64;
constexpr unsigned char kPoison = 0xff;  // a NaN in every type

std::vector<std::uint8_t> stored(const std::vector<float>& values, Dtype dtype) {
  const std::size_t size = dtype == Dtype::f16 || dtype == Dtype::bf16 ? 2 : 4;
  std::vector<std::uint8_t> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half =
        dtype == Dtype::f16 ? core::f32_to_f16(values[i]) : core::f32_to_bf16(values[i]);
    std::memcpy(bytes.data() + i * size, size == 2 ? static_cast<const void*>(&half) : &values[i], size);
  }
  return bytes;
}

std::size_t numbers(const core::ScanShape& p, const core::ProjectionLayout& layout) {
  return static_cast<std::size_t>(layout.constant ? p.dim * p.state
                                                  : p.batch * p.seq * layout.groups * p.state);
}

double tolerance(Dtype dtype) {
  return dtype == Dtype::f32 ? 2e-5 : dtype == Dtype::f16 ? 4e-3 : 3e-2;
}

}  // namespace

ScanGradCase::ScanGradCase(const ScanSpec& spec, bool with_d_final_state) : scan_(spec) {
  Random random(spec.seed * 31 + 5);
  inputs_.scan = scan_.inputs();
  const auto add = [&](Dtype dtype, const core::Shape& shape) {
    const std::size_t floats =
        static_cast<std::size_t>(shape.elements("test")) * (dtype == Dtype::c64 ? 2 : 1);
    storage_.push_back(stored(random.vector(floats, -1.0f, 1.0f), dtype));
    return core::TensorView{dtype, shape, storage_.back().data(), storage_.back().size()};
  };
  inputs_.dy = add(spec.dtype, inputs_.scan.x.shape);
  if (with_d_final_state) {
    inputs_.d_final_state =
        add(spec.complex ? Dtype::c64 : Dtype::f32, core::Shape{spec.batch, spec.dim, spec.state});
  }
}

NamedGrads named(const core::ScanGradValues<double>& v) {
  return {{"x", v.x},
          {"dt", v.dt},
          {"a", v.a},
          {"b", v.b},
          {"c", v.c},
          {"d", v.d},
          {"z", v.z},
          {"dt_bias", v.dt_bias},
          {"initial_state", v.initial_state}};
}

GradResults::GradResults(const core::ScanGradProblem& problem) : problem_(problem) {
  const core::ScanShape& p = problem.scan.shape;
  const std::size_t streams = static_cast<std::size_t>(p.y_elements());
  const Dtype number = p.complex ? Dtype::c64 : Dtype::f32;
  const auto add = [&](const char* name, Dtype dtype, std::size_t count) {
    dtypes_[name] = dtype;
    bytes_[name].assign(count * core::dtype_size(dtype) + kGuard, kPoison);
  };
  add("x", p.dtype, streams);
  add("dt", p.dtype, streams);
  add("z", p.dtype, p.has(core::ScanOperand::z) ? streams : 0);
  add("a", number, static_cast<std::size_t>(p.dim * p.state * (p.full_matrix ? p.state : 1)));
  add("b", p.complex ? number : p.dtype, numbers(p, p.b_layout));
  add("c", p.complex ? number : p.dtype, numbers(p, p.c_layout));
  add("d", Dtype::f32, p.has(core::ScanOperand::d) ? static_cast<std::size_t>(p.dim) : 0);
  add("dt_bias", Dtype::f32, p.has(core::ScanOperand::dt_bias) ? static_cast<std::size_t>(p.dim) : 0);
  add("initial_state", number, static_cast<std::size_t>(p.batch * p.dim * p.state));
}

void* GradResults::at(const std::string& name) {
  return bytes_[name].data();
}

core::ScanGradOutputs GradResults::outputs() {
  core::ScanGradOutputs out;
  out.x = at("x"), out.dt = at("dt"), out.b = at("b"), out.c = at("c");
  out.a = static_cast<float*>(at("a"));
  out.initial_state = static_cast<float*>(at("initial_state"));
  if (problem_.scan.shape.has(core::ScanOperand::z)) out.z = at("z");
  if (problem_.scan.shape.has(core::ScanOperand::d)) out.d = static_cast<float*>(at("d"));
  if (problem_.scan.shape.has(core::ScanOperand::dt_bias)) out.dt_bias = static_cast<float*>(at("dt_bias"));
  return out;
}

std::string GradResults::overrun() const {
  for (const auto& [name, bytes] : bytes_) {
    if (!std::all_of(bytes.end() - kGuard, bytes.end(), [](unsigned char b) { return b == kPoison; })) {
      return name;
    }
  }
  return "";
}

std::vector<float> GradResults::values(const std::string& name) const {
  const Dtype dtype = dtypes_.at(name);
  const std::size_t bytes = bytes_.at(name).size() - kGuard;
  const bool half = dtype == Dtype::f16 || dtype == Dtype::bf16;
  return widen_result(bytes_.at(name).data(), dtype, bytes / (half ? 2 : 4));
}

std::string scan_grad_mismatch(const core::ScanGradProblem& problem, const ScanGradRun& run) {
  GradResults results(problem);
  run(problem, results.outputs());
  if (const std::string name = results.overrun(); !name.empty())
    return "wrote behind the gradient of " + name;
  std::string wrong;
  for (const auto& [name, expected] : named(core::scan_grad_reference(problem))) {
    const bool own_type = name == "x" || name == "dt" || name == "b" || name == "c" || name == "z";
    const double error = relative_error(results.values(name), expected);
    if (!(error <= tolerance(own_type ? problem.scan.shape.dtype : Dtype::f32))) {
      wrong += core::message(name, ": ", error, " ");
    }
  }
  return wrong;
}

void choose_options(Random& random, int index, ScanSpec* spec) {
  const auto flip = [&] { return random.bits() % 2 == 0; };
  spec->state = 1 + static_cast<std::int64_t>(random.bits() % 6);
  spec->options.discretization = static_cast<formulas::Discretization>(index % 6);
  const Dtype dtypes[] = {Dtype::f32, Dtype::f32, Dtype::f16, Dtype::bf16};
  spec->dtype = dtypes[random.bits() % 4];
  spec->complex = spec->dtype == Dtype::f32 && flip();
  spec->full_matrix =
      spec->options.discretization == formulas::Discretization::bilinear && !spec->complex && flip();
  spec->d = flip(), spec->z = flip(), spec->dt_bias = flip(), spec->initial_state = flip();
  spec->options.dt_softplus = flip();
  if (flip()) spec->options.dt_min = 0.05f, spec->options.dt_max = 0.21f;
  if (flip()) spec->options.direction = core::Direction::reverse;
}

}  // namespace exphil::test
