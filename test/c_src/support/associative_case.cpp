#include "support/associative_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/associative/reference.hpp"
#include "core/error.hpp"
#include "core/half.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using core::AssociativeOp;
using core::AssociativeProblem;
using core::Dtype;

constexpr std::size_t kGuard = 64;
constexpr unsigned char kPoison = 0xcd;

bool is_integer(Dtype dtype) {
  return dtype == Dtype::s32 || dtype == Dtype::s64;
}

std::vector<unsigned char> stored(const std::vector<float>& values, Dtype dtype) {
  std::vector<unsigned char> bytes(values.size() * (dtype == Dtype::c64 ? 4 : core::dtype_size(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == Dtype::f32 || dtype == Dtype::c64) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else {
      const std::uint16_t half =
          dtype == Dtype::f16 ? core::f32_to_f16(values[i]) : core::f32_to_bf16(values[i]);
      std::memcpy(&bytes[2 * i], &half, 2);
    }
  }
  return bytes;
}

// Values for which a result of any length stays in range and keeps changing: factors between successive
// random products near 1 (the previous one is `inner` elements back); a drift for the extremes.
std::vector<float> values_for(AssociativeOp op, std::size_t count, std::size_t length, std::size_t inner,
                              Random* random) {
  std::vector<float> values(count), targets(op == AssociativeOp::cumprod ? count : 0);
  for (std::size_t i = 0; i < count; ++i) {
    const float uniform = random->uniform(-1.0f, 1.0f);
    if (op == AssociativeOp::cumprod) {
      targets[i] = uniform;
      const bool first = i / inner % length == 0;
      const float magnitude = std::exp2(uniform - (first ? 0.0f : targets[i - inner]));
      values[i] = random->uniform(-1.0f, 1.0f) < 0.0f ? -magnitude : magnitude;
    } else if (op == AssociativeOp::cummax || op == AssociativeOp::cummin) {
      const float drift = 4.0f * static_cast<float>(i) / static_cast<float>(count);
      values[i] = uniform + (op == AssociativeOp::cummax ? drift : -drift);
    } else {
      values[i] = uniform;
    }
  }
  return values;
}

std::vector<float> decays(std::size_t count, Random* random) {
  std::vector<float> values(count);
  // Slow and fast decays, and an occasional 0: a reset.
  for (float& value : values) {
    const float kind = random->uniform(0.0f, 1.0f);
    value = kind < 0.01f ? 0.0f : kind < 0.7f ? random->uniform(0.95f, 0.999f) : random->uniform(-0.7f, 0.7f);
  }
  return values;
}

double stored_value(const void* data, Dtype dtype, std::size_t i) {
  if (dtype == Dtype::f16) return core::f16_to_f32(static_cast<const std::uint16_t*>(data)[i]);
  if (dtype == Dtype::bf16) return core::bf16_to_f32(static_cast<const std::uint16_t*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

double tolerance(const AssociativeProblem& problem) {
  if (problem.dtype == Dtype::f16) return 2e-3;
  if (problem.dtype == Dtype::bf16) return 1.5e-2;
  if (problem.compensated) return 1e-7;
  // Rounding errors of a plain sum grow with the root of its length.
  return std::max(1e-5, 4.0 * 6e-8 * std::sqrt(static_cast<double>(problem.length)));
}

bool same_kind(double out, double expected) {
  if (std::isnan(out) || std::isnan(expected)) return std::isnan(out) && std::isnan(expected);
  if (std::isinf(out) || std::isinf(expected)) return out == expected;
  return true;
}

// In f16 a finite double result may be beyond the largest half.
bool overflows(double value, Dtype dtype) {
  return std::isfinite(value) && std::abs(value) > (dtype == Dtype::f16 ? 65504.0 : 3.4028234e38);
}

std::string compare(const AssociativeProblem& problem, const std::vector<double>& expected, const void* out) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = stored_value(out, problem.dtype, i);
    if (overflows(expected[i], problem.dtype)) continue;
    if (!same_kind(value, expected[i])) {
      return core::message("element ", i, " is ", value, ", expected ", expected[i]);
    }
    if (!std::isfinite(value)) continue;
    difference += (value - expected[i]) * (value - expected[i]);
    size += expected[i] * expected[i];
  }
  const double error = size > 0.0 ? std::sqrt(difference / size) : std::sqrt(difference);
  if (error <= tolerance(problem)) return "";
  return core::message("relative error ", error, " above ", tolerance(problem));
}

std::string compare_integers(const AssociativeProblem& problem, const std::vector<std::int64_t>& expected,
                             const void* out) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::int64_t value = problem.dtype == Dtype::s32 ? static_cast<const std::int32_t*>(out)[i]
                                                           : static_cast<const std::int64_t*>(out)[i];
    if (value != expected[i]) return core::message("element ", i, " is ", value, ", expected ", expected[i]);
  }
  return "";
}

// Result memory of the problem's size, poisoned, with a guard.
std::vector<unsigned char> poisoned(const AssociativeProblem& problem) {
  return std::vector<unsigned char>(problem.bytes() + kGuard, kPoison);
}

bool guard_intact(const AssociativeProblem& problem, const std::vector<unsigned char>& bytes) {
  return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(problem.bytes()), bytes.end(),
                     [](unsigned char byte) { return byte == kPoison; });
}

std::string check_direction(const AssociativeProblem& problem, bool reverse,
                            const std::vector<unsigned char>& out) {
  if (!guard_intact(problem, out)) return "wrote behind the result";
  const std::string wrong =
      is_integer(problem.dtype)
          ? compare_integers(problem, associative_reference_integer(problem, reverse), out.data())
          : compare(problem, associative_reference(problem, reverse), out.data());
  return wrong.empty() ? "" : (reverse ? "from the last: " : "from the first: ") + wrong;
}

}  // namespace

const std::vector<AssociativeKind>& associative_kinds() {
  static const std::vector<AssociativeKind> kinds = {{AssociativeOp::cumsum, Dtype::f32},
                                                     {AssociativeOp::cumsum, Dtype::f16},
                                                     {AssociativeOp::cumsum, Dtype::bf16},
                                                     {AssociativeOp::cumsum, Dtype::c64},
                                                     {AssociativeOp::cumsum, Dtype::s32},
                                                     {AssociativeOp::cumsum, Dtype::s64},
                                                     {AssociativeOp::cumprod, Dtype::f32},
                                                     {AssociativeOp::cumprod, Dtype::f16},
                                                     {AssociativeOp::cumprod, Dtype::bf16},
                                                     {AssociativeOp::cummax, Dtype::f32},
                                                     {AssociativeOp::cummax, Dtype::f16},
                                                     {AssociativeOp::cummax, Dtype::bf16},
                                                     {AssociativeOp::cummax, Dtype::s32},
                                                     {AssociativeOp::cummax, Dtype::s64},
                                                     {AssociativeOp::cummin, Dtype::f32},
                                                     {AssociativeOp::cummin, Dtype::f16},
                                                     {AssociativeOp::cummin, Dtype::bf16},
                                                     {AssociativeOp::cummin, Dtype::s32},
                                                     {AssociativeOp::cummin, Dtype::s64},
                                                     {AssociativeOp::linear_recurrence, Dtype::f32},
                                                     {AssociativeOp::linear_recurrence, Dtype::f16},
                                                     {AssociativeOp::linear_recurrence, Dtype::bf16},
                                                     {AssociativeOp::linear_recurrence, Dtype::c64}};
  return kinds;
}

AssociativeCase associative_case(AssociativeOp op, Dtype dtype, const core::Shape& shape, int axis,
                                 core::AssociativeOptions options, std::uint64_t seed) {
  Random random(seed);
  AssociativeCase test;
  const std::size_t count = static_cast<std::size_t>(shape.elements("x"));
  if (is_integer(dtype)) {
    test.x.resize(count * core::dtype_size(dtype));
    for (unsigned char& byte : test.x) byte = static_cast<unsigned char>(random.bits());
  } else {
    const std::size_t floats = dtype == Dtype::c64 ? 2 * count : count;
    std::size_t inner = 1;
    for (int i = (axis < 0 ? axis + shape.rank() : axis) + 1; i < shape.rank(); ++i) {
      inner *= static_cast<std::size_t>(shape[i]);
    }
    const std::size_t length = static_cast<std::size_t>(shape[axis < 0 ? axis + shape.rank() : axis]);
    test.x = stored(values_for(op, floats, length, inner, &random), dtype);
    if (op == AssociativeOp::linear_recurrence) {
      std::vector<float> a = decays(floats, &random);
      if (dtype == Dtype::c64) {
        for (float& part : a) part *= 0.7f;  // a modulus below 1
      }
      test.a = stored(a, dtype);
    }
  }
  options.axis = axis;
  core::AssociativeInputs inputs{{dtype, shape, test.x.data(), test.x.size()}, {}};
  if (op == AssociativeOp::linear_recurrence) {
    inputs.a = core::TensorView{dtype, shape, test.a.data(), test.a.size()};
  }
  test.problem = core::validate_associative(op, inputs, options);
  test.name = core::message(core::associative_op_name(op), " ", core::dtype_name(dtype), " ",
                            shape.to_string(), " axis ", axis, options.compensated ? " compensated" : "");
  return test;
}

AssociativeCase with_initial_state(AssociativeCase test, std::uint64_t seed) {
  Random random(seed);
  const Dtype dtype = test.problem.dtype;
  std::vector<float> values(static_cast<std::size_t>(test.problem.sequences()) *
                            (dtype == Dtype::c64 ? 2 : 1));
  for (float& value : values) value = random.uniform(-3.0f, 3.0f);
  test.initial = stored(values, dtype);
  test.problem.initial = test.initial.data();
  test.name += " with an initial state";
  return test;
}

std::string associative_mismatch(const AssociativeCase& test, const AssociativeRun& run) {
  using core::Direction;
  const AssociativeProblem& problem = test.problem;
  std::vector<unsigned char> y = poisoned(problem), y_reverse = poisoned(problem);
  const bool both = problem.direction == Direction::both;
  run(problem, {y.data(), both ? y_reverse.data() : nullptr});
  std::string wrong = check_direction(problem, problem.direction == Direction::reverse, y);
  if (wrong.empty() && both) wrong = check_direction(problem, true, y_reverse);
  return wrong.empty() ? "" : test.name + ": " + wrong;
}

std::string associative_range_mismatch(const AssociativeCase& test, const AssociativeRun& run) {
  const AssociativeProblem& problem = test.problem;
  std::vector<unsigned char> y = poisoned(problem);
  std::vector<float> expected(static_cast<std::size_t>(problem.elements()));
  run(problem, {y.data(), nullptr});
  core::associative_plain_loop(problem, problem.direction == core::Direction::reverse, expected.data());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double out = stored_value(y.data(), Dtype::f32, i), want = expected[i];
    const bool close = std::abs(out - want) <= 1e-3 * std::abs(want) + 1e-4;
    if (!same_kind(out, want) || (std::isfinite(want) && !close)) {
      return core::message(test.name, ": element ", i, " is ", out, ", the loop's is ", want);
    }
  }
  return "";
}

}  // namespace exphil::test
