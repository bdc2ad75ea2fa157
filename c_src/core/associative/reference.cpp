#include "core/associative/reference.hpp"

#include "core/error.hpp"
#include "core/half.hpp"

namespace exphil::core {

namespace {

double element(const void* data, Dtype dtype, std::int64_t index) {
  switch (dtype) {
    case Dtype::f32:
      return static_cast<const float*>(data)[index];
    case Dtype::f16:
      return f16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
    case Dtype::bf16:
      return bf16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
    default:
      fail(ErrorKind::invalid_argument, "x", "no floating-point reference for ", dtype_name(dtype));
  }
}

// The sequences of a problem: index(t) is the index of the element at step t, column that of the initial
// state.
struct Sequence {
  std::int64_t start, stride, column;
  std::int64_t index(std::int64_t t) const { return start + t * stride; }
};

template <class Body>
void for_each_sequence(const AssociativeProblem& problem, bool reverse, Body body) {
  for (std::int64_t outer = 0; outer < problem.outer; ++outer) {
    for (std::int64_t inner = 0; inner < problem.inner; ++inner) {
      const std::int64_t first = outer * problem.length * problem.inner + inner;
      const std::int64_t last = first + (problem.length - 1) * problem.inner;
      const std::int64_t column = outer * problem.inner + inner;
      body(reverse ? Sequence{last, -problem.inner, column} : Sequence{first, problem.inner, column});
    }
  }
}

template <class V>
V extremum(bool max, V h, V x) {
  if (h != h) return h;
  if (x != x) return x;
  return (max ? x > h : x < h) ? x : h;
}

// Step t > 0; at t = 0 the result is x itself, except for the recurrence, which starts from the
// initial state.
double next(AssociativeOp op, double h, double a, double x) {
  switch (op) {
    case AssociativeOp::cumsum:
      return h + x;
    case AssociativeOp::cumprod:
      return h * x;
    case AssociativeOp::cummax:
      return extremum(true, h, x);
    case AssociativeOp::cummin:
      return extremum(false, h, x);
    case AssociativeOp::linear_recurrence:
      return a * h + x;
  }
  return h;
}

void reference_real(const AssociativeProblem& problem, const Sequence& sequence, double* y) {
  const bool recurrence = problem.op == AssociativeOp::linear_recurrence;
  double h = problem.initial == nullptr ? 0.0 : element(problem.initial, problem.dtype, sequence.column);
  for (std::int64_t t = 0; t < problem.length; ++t) {
    const std::int64_t i = sequence.index(t);
    const double x = element(problem.x, problem.dtype, i);
    const double a = recurrence ? element(problem.a, problem.dtype, i) : 0.0;
    h = t == 0 && !recurrence ? x : next(problem.op, h, a, x);
    y[i] = h;
  }
}

// Multiplied by hand: std::complex multiplication replaces some NaNs, which the definition keeps.
void reference_complex(const AssociativeProblem& problem, const Sequence& sequence, double* y) {
  const float* x = static_cast<const float*>(problem.x);
  const float* a = static_cast<const float*>(problem.a);
  const float* initial = static_cast<const float*>(problem.initial);
  double re = initial == nullptr ? 0.0 : double{initial[2 * sequence.column]};
  double im = initial == nullptr ? 0.0 : double{initial[2 * sequence.column + 1]};
  for (std::int64_t t = 0; t < problem.length; ++t) {
    const std::int64_t i = 2 * sequence.index(t);
    if (problem.op == AssociativeOp::linear_recurrence) {
      const double old = re;
      re = double{a[i]} * re - double{a[i + 1]} * im + x[i];
      im = double{a[i]} * im + double{a[i + 1]} * old + x[i + 1];
    } else {
      re = t == 0 ? x[i] : re + x[i];
      im = t == 0 ? x[i + 1] : im + x[i + 1];
    }
    y[i] = re;
    y[i + 1] = im;
  }
}

template <class T, class U>
void reference_integer(const AssociativeProblem& problem, const Sequence& sequence, std::int64_t* y) {
  const T* x = static_cast<const T*>(problem.x);
  T h = 0;
  for (std::int64_t t = 0; t < problem.length; ++t) {
    const std::int64_t i = sequence.index(t);
    if (t == 0) {
      h = x[i];
    } else if (problem.op == AssociativeOp::cumsum) {
      h = static_cast<T>(static_cast<U>(h) + static_cast<U>(x[i]));
    } else {
      h = extremum(problem.op == AssociativeOp::cummax, h, x[i]);
    }
    y[i] = h;
  }
}

}  // namespace

std::vector<double> associative_reference(const AssociativeProblem& problem, bool reverse) {
  const bool complex = problem.dtype == Dtype::c64;
  std::vector<double> y(static_cast<std::size_t>(problem.elements() * (complex ? 2 : 1)));
  for_each_sequence(problem, reverse, [&](const Sequence& sequence) {
    if (complex) {
      reference_complex(problem, sequence, y.data());
    } else {
      reference_real(problem, sequence, y.data());
    }
  });
  return y;
}

std::vector<std::int64_t> associative_reference_integer(const AssociativeProblem& problem, bool reverse) {
  std::vector<std::int64_t> y(static_cast<std::size_t>(problem.elements()));
  for_each_sequence(problem, reverse, [&](const Sequence& sequence) {
    if (problem.dtype == Dtype::s32) {
      reference_integer<std::int32_t, std::uint32_t>(problem, sequence, y.data());
    } else {
      reference_integer<std::int64_t, std::uint64_t>(problem, sequence, y.data());
    }
  });
  return y;
}

void associative_plain_loop(const AssociativeProblem& problem, bool reverse, float* y) {
  const float* x = static_cast<const float*>(problem.x);
  const float* a = static_cast<const float*>(problem.a);
  const float* initial = static_cast<const float*>(problem.initial);
  for_each_sequence(problem, reverse, [&](const Sequence& sequence) {
    float h = problem.op == AssociativeOp::cumprod ? 1.0f : 0.0f;
    if (initial != nullptr) h = initial[sequence.column];
    for (std::int64_t t = 0; t < problem.length; ++t) {
      const std::int64_t i = sequence.index(t);
      switch (problem.op) {
        case AssociativeOp::cumsum:
          h += x[i];
          break;
        case AssociativeOp::cumprod:
          h *= x[i];
          break;
        case AssociativeOp::linear_recurrence:
          h = a[i] * h + x[i];
          break;
        default:
          h = t == 0 ? x[i] : extremum(problem.op == AssociativeOp::cummax, h, x[i]);
      }
      y[i] = h;
    }
  });
}

}  // namespace exphil::core
