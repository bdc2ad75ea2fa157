#include "core/associative/recurrence_gradient.hpp"

#include <algorithm>
#include <vector>

#include "core/associative/widen.hpp"
#include "core/error.hpp"
#include "core/work/parallel.hpp"
#include "kernels/associative/recurrence_gradient.cuh"

namespace exphil::core {

namespace {

bool is_half(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16;
}

// Where an element is in its sequence, and the indices of its neighbours in scan order, where it has them.
struct Place {
  bool first, last;
  std::int64_t before, after;
  std::int64_t column;  // index in {outer, inner}
};

// Calls body(index, place) for every element.
template <class Body>
void each(const AssociativeProblem& p, const Body& body) {
  const bool reverse = p.direction == Direction::reverse;
  const std::int64_t step = reverse ? -p.inner : p.inner;
  const std::int64_t grain = std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, p.inner));
  parallel_for(p.outer * p.length, grain, [&](std::int64_t row, std::int64_t end) {
    for (; row < end; ++row) {
      const bool at_start = row % p.length == 0, at_end = row % p.length == p.length - 1;
      for (std::int64_t k = 0; k < p.inner; ++k) {
        const std::int64_t i = row * p.inner + k;
        body(i, Place{reverse ? at_end : at_start, reverse ? at_start : at_end, i - step, i + step,
                      row / p.length * p.inner + k});
      }
    }
  });
}

// On tensors of V: float or Complex<float>.
template <class V>
void gradient(const RecurrenceGradProblem& problem, const RecurrenceGradOutputs& outputs,
              const RunAssociative& run) {
  const AssociativeProblem& p = problem.scan;
  const V* const a = static_cast<const V*>(p.a);
  const V* const h = static_cast<const V*>(problem.h);
  const V* const initial = static_cast<const V*>(p.initial);
  V* const da = static_cast<V*>(outputs.a);
  V* const db = static_cast<V*>(outputs.b);
  std::vector<V> decays(static_cast<std::size_t>(p.elements()));
  each(p, [&](std::int64_t i, const Place& place) {
    decays[i] = place.last ? V() : associative::conjugate(a[place.after]);
  });
  AssociativeProblem scan = recurrence_grad_scan(problem);
  scan.a = decays.data();
  scan.x = problem.dh;
  run(scan, {db, nullptr});
  each(p, [&](std::int64_t i, const Place& place) {
    if (!place.first) {
      da[i] = associative::decay_gradient(db[i], h[place.before]);
    } else {
      da[i] = initial != nullptr ? associative::decay_gradient(db[i], initial[place.column]) : V();
      if (outputs.initial != nullptr) {
        static_cast<V*>(outputs.initial)[place.column] = formulas::times_conjugate(db[i], a[i]);
      }
    }
    db[i] = associative::from_zero(db[i]);
  });
}

void half_gradient(const RecurrenceGradProblem& problem, const RecurrenceGradOutputs& outputs,
                   const RunAssociative& run) {
  const AssociativeProblem& p = problem.scan;
  const std::vector<float> a = widen(p.a, p.dtype, p.elements()), h = widen(problem.h, p.dtype, p.elements());
  const std::vector<float> dh = widen(problem.dh, p.dtype, p.elements());
  std::vector<float> initial, da(a.size()), db(a.size()), d_initial(static_cast<std::size_t>(p.sequences()));
  RecurrenceGradProblem wide{p, h.data(), dh.data()};
  wide.scan.dtype = Dtype::f32;
  wide.scan.a = a.data();
  if (p.initial != nullptr) {
    initial = widen(p.initial, p.dtype, p.sequences());
    wide.scan.initial = initial.data();
  }
  gradient<float>(wide, {da.data(), db.data(), d_initial.data()}, run);
  narrow(da, p.dtype, outputs.a);
  narrow(db, p.dtype, outputs.b);
  if (outputs.initial != nullptr) narrow(d_initial, p.dtype, outputs.initial);
}

void check_like_a(const TensorView& view, const char* name, const TensorView& a) {
  if (view.dtype != a.dtype || view.shape != a.shape) {
    fail(ErrorKind::invalid_argument, name, name, " must be ", dtype_name(a.dtype), " ", a.shape.to_string(),
         " like a; got ", dtype_name(view.dtype), " ", view.shape.to_string());
  }
  check_bytes(view, name);
}

}  // namespace

RecurrenceGradProblem validate_recurrence_grad(const RecurrenceGradInputs& inputs,
                                               const AssociativeOptions& options) {
  RecurrenceGradProblem problem;
  // This call has no b. The checks take h in its place, which has the same shape.
  check_like_a(inputs.h, "h", inputs.a);
  check_like_a(inputs.dh, "dh", inputs.a);
  problem.scan = validate_associative(AssociativeOp::linear_recurrence,
                                      {inputs.h, inputs.a, inputs.initial_state}, options);
  if (options.direction == Direction::both) {
    fail(ErrorKind::invalid_argument, "direction",
         "the gradient of a recurrence has one direction, forward or reverse; got both");
  }
  problem.scan.x = nullptr;
  problem.h = inputs.h.data;
  problem.dh = inputs.dh.data;
  return problem;
}

AssociativeProblem recurrence_grad_scan(const RecurrenceGradProblem& problem) {
  AssociativeProblem scan = problem.scan;
  scan.dtype = scan.dtype == Dtype::c64 ? Dtype::c64 : Dtype::f32;
  scan.direction = scan.direction == Direction::reverse ? Direction::forward : Direction::reverse;
  scan.a = scan.x = scan.initial = nullptr;
  return scan;
}

void recurrence_grad(const RecurrenceGradProblem& problem, const RecurrenceGradOutputs& outputs,
                     const RunAssociative& run) {
  const AssociativeProblem& p = problem.scan;
  if (p.elements() == 0) {
    // Without steps no result depends on the initial state.
    auto* const bytes = static_cast<unsigned char*>(outputs.initial);
    if (bytes != nullptr) std::fill_n(bytes, p.sequences() * dtype_size(p.dtype), std::uint8_t{0});
    return;
  }
  if (is_half(p.dtype)) return half_gradient(problem, outputs, run);
  if (p.dtype == Dtype::c64) return gradient<formulas::Complex<float>>(problem, outputs, run);
  gradient<float>(problem, outputs, run);
}

}  // namespace exphil::core
