#include "core/associative/gradient.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "core/parallel.hpp"

namespace exphil::core {

namespace {

constexpr std::int64_t kGrainElements = 32768;

std::vector<float> widen(const void* data, Dtype dtype, std::int64_t elements) {
  std::vector<float> out(static_cast<std::size_t>(elements * (dtype == Dtype::c64 ? 2 : 1)));
  const auto* halves = static_cast<const std::uint16_t*>(data);
  parallel_for(static_cast<std::int64_t>(out.size()), kGrainElements, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {
      out[i] = dtype == Dtype::f16    ? f16_to_f32(halves[i])
               : dtype == Dtype::bf16 ? bf16_to_f32(halves[i])
                                      : static_cast<const float*>(data)[i];
    }
  });
  return out;
}

void narrow(const std::vector<float>& from, Dtype dtype, void* to) {
  auto* halves = static_cast<std::uint16_t*>(to);
  parallel_for(static_cast<std::int64_t>(from.size()), kGrainElements, [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {
      if (dtype == Dtype::f16) {
        halves[i] = f32_to_f16(from[i]);
      } else if (dtype == Dtype::bf16) {
        halves[i] = f32_to_bf16(from[i]);
      } else {
        static_cast<float*>(to)[i] = from[i];
      }
    }
  });
}

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
    const std::vector<float> s =
        scan(AssociativeOp::linear_recurrence, factors(x, a, y).data(), dy, !reverse_);
    if (p_.op == AssociativeOp::linear_recurrence) return finish_recurrence(y, s, dx, da);
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
  std::vector<float> factors(const std::vector<float>& x, const std::vector<float>& a,
                             const std::vector<float>& y) const {
    std::vector<float> k(x.size());
    each([&](std::int64_t i, bool, bool last) {
      if (last) {
        k[i] = 0.0f;
      } else if (p_.op == AssociativeOp::linear_recurrence) {
        k[i] = parts_ == 2 && i % 2 == 1 ? -a[after(i)] : a[after(i)];
      } else if (p_.op == AssociativeOp::cumprod) {
        k[i] = x[after(i)];
      } else {
        k[i] = is_new(x, y, after(i), false) ? 0.0f : 1.0f;
      }
    });
    return k;
  }

  void finish_recurrence(const std::vector<float>& y, const std::vector<float>& s, std::vector<float>* db,
                         std::vector<float>* da) const {
    each([&](std::int64_t i, bool first, bool) {
      (*db)[i] += s[i];
      if (first) return;
      const std::int64_t at = before(i);
      if (parts_ == 1) {
        (*da)[i] += s[i] * y[at];
      } else if (i % 2 == 0) {
        (*da)[i] += s[i] * y[at] + s[i + 1] * y[at + 1];
      } else {
        (*da)[i] += s[i] * y[at - 1] - s[i - 1] * y[at];
      }
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
