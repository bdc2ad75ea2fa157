// The second stage of the scan's gradient (scan/backward.cu): from what each segment of time does by itself
// to the state before each and the gradient of the state behind each. A thread takes one state of one channel
// of one sequence through the segments: blocks of y = 0 forward, those of y = 1 backward. In place.
#include "kernels/common/launches.cuh"
#include "kernels/scan/backward_arguments.cuh"
#include "kernels/scan/backward_numbers.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan;

#if COMPLEX
using Number = ComplexReal;
#else
using Number = Real;
#endif
using Rule = BackwardRule<static_cast<Discretization>(DISCRETIZATION), Number>;
constexpr int kFloats = Rule::kFloats;
constexpr int kDecayFloats = Rule::kDecayFromSum ? 1 : kFloats;
constexpr int kAhead = AHEAD;  // segments that are loaded while as many before them are used

// A thread's state.
struct Place {
  long long first, step;              // its number in the first segment, and to that of the next, in floats
  long long first_decay, decay_step;  // of decays
  Number a;
};
EXPHIL_DEVICE Place find_place(const BackwardArguments& p, long long number) {
  const long long row = p.scan.dim * STATE, batch = number / row, in_row = number % row;
  Place s;
  s.first = (batch * p.segments * row + in_row) * kFloats, s.step = row * kFloats;
  s.first_decay = s.first, s.decay_step = s.step;
  s.a = Rule::constant(Rule::load(p.scan.a + in_row * kFloats));
  if constexpr (Rule::kDecayFromSum) {
    s.first_decay = batch * p.segments * p.scan.dim + in_row / STATE, s.decay_step = p.scan.dim;
  }
  return s;
}

// What some segments do by themselves. The threads go on from one segment to the next by adding to pointers.
struct Segments {
  Number own[kAhead];
  float decays[kAhead][kDecayFloats];
};
struct Reader {
  const float *own, *decay;
  long long step, decay_step;
  // `count` of them; Whole: kAhead.
  template <bool Whole>
  EXPHIL_DEVICE void read(int count, Segments& to) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (!Whole && k >= count) continue;
      to.own[k] = Rule::load(own), own += step;
#pragma unroll
      for (int f = 0; f < kDecayFloats; ++f) to.decays[k][f] = decay[f];
      decay += decay_step;
    }
  }
  EXPHIL_DEVICE void read(long long left, Segments& to) {
    if (left >= kAhead) {
      read<true>(kAhead, to);
    } else {
      read<false>(static_cast<int>(left), to);
    }
  }
};

// What goes from segment to segment.
struct Carried {
  Number value;
  Number decay;  // of all segments so far; for totals alone
};

// From one segment to the next, `count` times; Whole: kAhead. Leaves in each what is carried into it, but for
// totals.
template <bool Forward, bool Whole, bool Totals>
EXPHIL_DEVICE void carry_some(const Place& s, const Segments& in, int count, long long step, float*& to,
                              Carried& carried) {
  Number decay[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    if constexpr (Rule::kDecayFromSum) {
      decay[k] = Rule::total_decay(s.a, in.decays[k][0]);
    } else {
      decay[k] = Rule::load(in.decays[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    if (!Whole && k >= count) break;
    if constexpr (Totals) {
      carried.decay = carried.decay * decay[k];
    } else {
      Rule::store(carried.value, to), to += step;
    }
    carried.value = Forward ? Rule::multiply_add(decay[k], carried.value, in.own[k])
                            : Rule::add_conjugate(in.own[k], carried.value, decay[k]);
  }
}

// What is carried into each segment, in place of what the segment adds. value: into the first, or where
// Forward is false into the last.
template <bool Forward, bool Totals = false>
EXPHIL_DEVICE Carried carry(const BackwardArguments& p, const Place& s, float* data, Number value) {
  Carried carried{value, Rule::one()};
  const long long start = Forward ? 0 : p.segments - 1, step = Forward ? s.step : -s.step;
  float* to = data + s.first + start * s.step;
  Reader reader{to, p.decays + s.first_decay + start * s.decay_step, step,
                Forward ? s.decay_step : -s.decay_step};
  Segments next{};
  reader.read(p.segments, next);
#pragma unroll 1
  for (long long left = p.segments; left > 0; left -= kAhead) {
    const Segments now = next;
    if (left > kAhead) reader.read(left - kAhead, next);
    if (left >= kAhead) {
      carry_some<Forward, true, Totals>(s, now, kAhead, step, to, carried);
    } else {
      carry_some<Forward, false, Totals>(s, now, static_cast<int>(left), step, to, carried);
    }
  }
  return carried;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    selective_scan_backward_carry(const __grid_constant__ exphil::scan::BackwardArguments p) {
  const long long number = static_cast<long long>(blockIdx.x) * 128 + threadIdx.x;
  if (number < p.batch * p.scan.dim * STATE) {
    const bool forward = blockIdx.y == 0;
    const float* start = forward ? p.scan.initial_state : p.d_final_state;
    const Number value = start != nullptr ? Rule::load(start + number * kFloats) : Rule::zero();
    const Place s = find_place(p, number);
    device::await_launch_before();
    // Not earlier: the next stage's blocks would be crowded where the stage before leaves room.
    device::begin_launch_after();
    if (forward) {
      carry<true>(p, s, p.checkpoints, value);
    } else {
      const Number first = carry<false>(p, s, p.adjoints, value).value;
      if (p.d_initial_state != nullptr) Rule::store(first, p.d_initial_state + number * kFloats);
    }
  }
}

// Where several devices share a sequence's time: what all segments together do by themselves. They stay as
// they are, for the stage above.
extern "C" __global__ void __launch_bounds__(128)
    selective_scan_backward_totals(const __grid_constant__ exphil::scan::BackwardTotalsArguments p) {
  const long long number = static_cast<long long>(blockIdx.x) * 128 + threadIdx.x;
  if (number >= p.part.batch * p.part.scan.dim * STATE) return;
  const Place s = find_place(p.part, number);
  device::await_launch_before();
  if (blockIdx.y == 0) {
    const Carried all = carry<true, true>(p.part, s, p.part.checkpoints, Rule::zero());
    Rule::store(all.value, p.end + number * kFloats);
    Rule::store(all.decay, p.decay + number * kFloats);
  } else {
    const Carried all = carry<false, true>(p.part, s, p.part.adjoints, Rule::zero());
    Rule::store(all.value, p.start + number * kFloats);
  }
}
