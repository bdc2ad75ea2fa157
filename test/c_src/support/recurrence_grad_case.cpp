#include "support/recurrence_grad_case.hpp"

#include <algorithm>
#include <complex>
#include <cstring>

#include "core/associative/reference.hpp"
#include "core/error.hpp"
#include "core/half.hpp"
#include "support/numbers.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {
namespace {

using core::Dtype;
using Number = std::complex<double>;

std::vector<unsigned char> rounded(const std::vector<double>& values, Dtype dtype) {
  const std::size_t size = dtype == Dtype::c64 ? 4 : core::dtype_size(dtype);
  std::vector<unsigned char> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = static_cast<float>(values[i]);
    const std::uint16_t half = dtype == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
    std::memcpy(&bytes[i * size], size == 4 ? static_cast<const void*>(&value) : &half, size);
  }
  return bytes;
}

// Elements of a tensor as numbers; empty where there is none.
std::vector<Number> numbers(const void* data, Dtype dtype, std::int64_t elements) {
  if (data == nullptr) return {};
  const std::size_t parts = dtype == Dtype::c64 ? 2 : 1, count = static_cast<std::size_t>(elements);
  const std::vector<float> values = widen_result(data, dtype, count * parts);
  std::vector<Number> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.emplace_back(values[parts * i], parts == 2 ? values[2 * i + 1] : 0.0);
  }
  return out;
}

std::vector<double> flat(const std::vector<Number>& values, Dtype dtype) {
  std::vector<double> out;
  for (const Number& value : values) {
    out.push_back(value.real());
    if (dtype == Dtype::c64) out.push_back(value.imag());
  }
  return out;
}

struct Reference {
  std::vector<Number> a, b, initial;
};

Reference reference_of(const core::RecurrenceGradProblem& problem) {
  const core::AssociativeProblem& p = problem.scan;
  const auto a = numbers(p.a, p.dtype, p.elements()), h = numbers(problem.h, p.dtype, p.elements());
  const auto dh = numbers(problem.dh, p.dtype, p.elements());
  const auto initial = numbers(p.initial, p.dtype, p.sequences());
  Reference out{std::vector<Number>(a.size()), std::vector<Number>(a.size()),
                std::vector<Number>(static_cast<std::size_t>(p.sequences()))};
  for (std::int64_t column = 0; column < p.sequences(); ++column) {
    Number db = 0;
    for (std::int64_t s = p.length - 1; s >= 0; --s) {  // from the last step in scan order
      const auto index = [&](std::int64_t step) {
        const std::int64_t t = p.direction == core::Direction::reverse ? p.length - 1 - step : step;
        return static_cast<std::size_t>((column / p.inner * p.length + t) * p.inner + column % p.inner);
      };
      const std::size_t c = static_cast<std::size_t>(column);
      db = dh[index(s)] + (s + 1 < p.length ? std::conj(a[index(s + 1)]) * db : 0.0);
      out.b[index(s)] = db;
      const Number before = s > 0 ? h[index(s - 1)] : initial.empty() ? 0.0 : initial[c];
      out.a[index(s)] = db * std::conj(before);
      if (s == 0) out.initial[c] = db * std::conj(a[index(0)]);
    }
  }
  return out;
}

}  // namespace

core::RecurrenceGradProblem RecurrenceGradCase::problem() const {
  core::RecurrenceGradProblem problem{scan.problem, h.data(), dh.data()};
  problem.scan.x = nullptr;
  return problem;
}

RecurrenceGradCase recurrence_grad_case(Dtype dtype, const core::Shape& shape, int axis, bool reverse,
                                        bool initial) {
  core::AssociativeOptions options;
  options.direction = reverse ? core::Direction::reverse : core::Direction::forward;
  RecurrenceGradCase test;
  test.scan = associative_case(core::AssociativeOp::linear_recurrence, dtype, shape, axis, options);
  if (initial) test.scan = with_initial_state(std::move(test.scan));
  test.h = rounded(core::associative_reference(test.scan.problem, reverse), dtype);
  test.dh = associative_case(core::AssociativeOp::cumsum, dtype, shape, axis, {}, 77).x;
  return test;
}

std::string recurrence_grad_mismatch(const RecurrenceGradCase& test, const RecurrenceGradRun& run) {
  constexpr std::size_t kGuard = 64;
  const core::RecurrenceGradProblem problem = test.problem();
  const core::AssociativeProblem& p = problem.scan;
  const std::size_t initial_bytes = static_cast<std::size_t>(p.sequences()) * core::dtype_size(p.dtype);
  std::vector<unsigned char> da(p.bytes() + kGuard, 0xcd), db(da), initial(initial_bytes + kGuard, 0xcd);
  run(problem, {da.data(), db.data(), p.initial != nullptr ? initial.data() : nullptr});
  const Reference expected = reference_of(problem);
  const double limit = p.dtype == Dtype::f16 ? 2e-3 : p.dtype == Dtype::bf16 ? 1.5e-2 : 2e-5;
  const auto wrong = [&](const char* name, const std::vector<unsigned char>& out,
                         const std::vector<Number>& want) -> std::string {
    if (!std::all_of(out.end() - kGuard, out.end(), [](unsigned char byte) { return byte == 0xcd; })) {
      return core::message(test.scan.name, ": wrote behind ", name);
    }
    const std::vector<double> values = flat(want, p.dtype);
    const double error = relative_error(widen_result(out.data(), p.dtype, values.size()), values);
    return error <= limit ? "" : core::message(test.scan.name, ": ", name, " ", error);
  };
  std::string message = wrong("da", da, expected.a);
  if (message.empty()) message = wrong("db", db, expected.b);
  if (message.empty() && p.initial != nullptr) message = wrong("d_initial", initial, expected.initial);
  return message;
}

}  // namespace exphil::test
