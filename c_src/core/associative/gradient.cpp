#include "core/associative/gradient.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "core/associative/recurrence_gradient.hpp"
#include "core/associative/widen.hpp"
#include "core/error.hpp"
#include "core/work/parallel.hpp"

namespace exphil::core {

namespace {

// One direction of a problem, in f32 (or c64 as pairs).
class OneWay {
 public:
  OneWay(const AssociativeProblem& problem, bool reverse, const RunAssociative& run)
      : p_(problem), reverse_(reverse), run_(run), parts_(problem.dtype == Dtype::c64 ? 2 : 1) {}

  // Adds to dx, and to da where the operator has it.
  void add(const std::vector<float>& x, const std::vector<float>& a, const void* dy_data,
           std::vector<float>* dx, std::vector<float>* da) const {
    const std::vector<float> dy = widen(dy_data, p_.dtype, p_.elements());
    if (p_.op == AssociativeOp::cumsum) {
      const std::vector<float> sums = scan(AssociativeOp::cumsum, nullptr, dy, !reverse_);
      return each([&](std::int64_t i, bool, bool) { (*dx)[i] += sums[i]; });
    }
    const std::vector<float> y = scan(p_.op, a.empty() ? nullptr : a.data(), x, reverse_);
    if (p_.op == AssociativeOp::linear_recurrence) return add_recurrence(a, y, dy, dx, da);
    const std::vector<float> s = scan(AssociativeOp::linear_recurrence, factors(x, y).data(), dy, !reverse_);
    each([&](std::int64_t i, bool first, bool) {
      if (p_.op == AssociativeOp::cumprod) {
        (*dx)[i] += first ? s[i] : y[before(i)] * s[i];
      } else if (is_new(x, y, i, first)) {
        (*dx)[i] += s[i];
      }
    });
  }

 private:
  // The distance in floats from one step to the next in scan order.
  std::int64_t stride() const { return (reverse_ ? -p_.inner : p_.inner) * parts_; }
  std::int64_t before(std::int64_t i) const { return i - stride(); }
  std::int64_t after(std::int64_t i) const { return i + stride(); }

  // Calls body(i, first, last) for every float i; first and last: its step is the first, last in scan order.
  template <class Body>
  void each(const Body& body) const {
    const std::int64_t row = p_.inner * parts_;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, row));
    parallel_for(p_.outer * p_.length, grain, [&](std::int64_t at, std::int64_t end) {
      for (; at < end; ++at) {
        const std::int64_t t = at % p_.length, taken = reverse_ ? p_.length - 1 - t : t;
        for (std::int64_t i = at * row; i < (at + 1) * row; ++i) body(i, taken == 0, taken == p_.length - 1);
      }
    });
  }

  std::vector<float> scan(AssociativeOp op, const float* a, const std::vector<float>& x, bool reverse) const {
    std::vector<float> y(x.size());
    AssociativeProblem problem = p_;
    problem.op = op;
    problem.dtype = parts_ == 2 ? Dtype::c64 : Dtype::f32;
    problem.direction = reverse ? Direction::reverse : Direction::forward;
    problem.compensated = p_.compensated && op == AssociativeOp::cumsum;
    problem.x = x.data();
    problem.a = a;
    run_(problem, {y.data(), nullptr});
    return y;
  }

  // Whether the extremum changes at element i.
  bool is_new(const std::vector<float>& x, const std::vector<float>& y, std::int64_t i, bool first) const {
    if (first) return true;
    const float last = y[before(i)];
    if (last != last) return false;
    return x[i] != x[i] || (p_.op == AssociativeOp::cummax ? x[i] > last : x[i] < last);
  }

  // For each step, the factor of the next step's sum in the recurrence of the gradient.
  std::vector<float> factors(const std::vector<float>& x, const std::vector<float>& y) const {
    std::vector<float> k(x.size());
    each([&](std::int64_t i, bool, bool last) {
      if (last) {
        k[i] = 0.0f;
      } else if (p_.op == AssociativeOp::cumprod) {
        k[i] = x[after(i)];
      } else {
        k[i] = is_new(x, y, after(i), false) ? 0.0f : 1.0f;
      }
    });
    return k;
  }

  void add_recurrence(const std::vector<float>& a, const std::vector<float>& y, const std::vector<float>& dy,
                      std::vector<float>* db, std::vector<float>* da) const {
    RecurrenceGradProblem problem{p_, y.data(), dy.data()};
    problem.scan.dtype = parts_ == 2 ? Dtype::c64 : Dtype::f32;
    problem.scan.direction = reverse_ ? Direction::reverse : Direction::forward;
    problem.scan.a = a.data();
    std::vector<float> more_a(a.size()), more_b(a.size());
    recurrence_grad(problem, {more_a.data(), more_b.data()}, run_);
    each([&](std::int64_t i, bool, bool) {
      (*db)[i] += more_b[i];
      (*da)[i] += more_a[i];
    });
  }

  const AssociativeProblem& p_;
  const bool reverse_;
  const RunAssociative& run_;
  const std::int64_t parts_;
};

void check_like_x(const TensorView& view, const char* name, const TensorView& x) {
  if (view.dtype != x.dtype) {
    fail(ErrorKind::invalid_argument, name, name, " must be ", dtype_name(x.dtype),
         " like the scanned tensor; got ", dtype_name(view.dtype));
  }
  if (view.shape != x.shape) {
    fail(ErrorKind::invalid_argument, name, name, " must have the shape of the scanned tensor, ",
         x.shape.to_string(), "; got shape ", view.shape.to_string());
  }
  check_bytes(view, name);
}

}  // namespace

AssociativeGradProblem validate_associative_grad(AssociativeOp op, const AssociativeGradInputs& inputs,
                                                 const AssociativeOptions& options) {
  AssociativeGradProblem problem;
  problem.scan = validate_associative(op, inputs.scan, options);
  const TensorView& x = inputs.scan.x;
  if (x.dtype == Dtype::s32 || x.dtype == Dtype::s64) {
    const char* name = op == AssociativeOp::linear_recurrence ? "b" : "x";
    fail(ErrorKind::unsupported, name, "integers have no gradient; got ", dtype_name(x.dtype));
  }
  if (inputs.scan.initial_state) {
    fail(ErrorKind::unsupported, "initial_state",
         "this gradient has no initial_state; recurrence_grad takes one");
  }
  check_like_x(inputs.dy, "dy", x);
  problem.dy = inputs.dy.data;
  if (inputs.dy_reverse.has_value() != (options.direction == Direction::both)) {
    fail(ErrorKind::invalid_argument, "dy", "dy must be one tensor, or {dy, dy_reverse} for both directions");
  }
  if (inputs.dy_reverse) {
    check_like_x(*inputs.dy_reverse, "dy_reverse", x);
    problem.dy_reverse = inputs.dy_reverse->data;
  }
  return problem;
}

void associative_grad(const AssociativeGradProblem& problem, const AssociativeGradOutputs& outputs,
                      const RunAssociative& run) {
  const AssociativeProblem& p = problem.scan;
  if (p.elements() == 0) return;
  const bool reverse = p.direction == Direction::reverse;
  if (p.op == AssociativeOp::cumsum && p.direction != Direction::both) {
    AssociativeProblem back = p;
    back.direction = reverse ? Direction::forward : Direction::reverse;
    back.x = problem.dy;
    return run(back, {outputs.x, nullptr});
  }
  const std::vector<float> x = widen(p.x, p.dtype, p.elements());
  const std::vector<float> a = p.a == nullptr ? std::vector<float>() : widen(p.a, p.dtype, p.elements());
  std::vector<float> dx(x.size()), da(a.size());
  OneWay(p, reverse, run).add(x, a, problem.dy, &dx, &da);
  if (p.direction == Direction::both) OneWay(p, true, run).add(x, a, problem.dy_reverse, &dx, &da);
  narrow(dx, p.dtype, outputs.x);
  if (outputs.a != nullptr) narrow(da, p.dtype, outputs.a);
}

}  // namespace exphil::core
