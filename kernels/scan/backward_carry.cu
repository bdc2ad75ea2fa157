// The second stage of the scan's gradient (scan/backward.cu): from what each segment of time does by itself
// to the state before each and the gradient of the state behind each. A thread takes one state of one channel
// of one sequence through the segments: blocks of y = 0 forward, those of y = 1 backward. In place.
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
using Rule = BackwardRule<Discretization::zoh, Number>;
constexpr int kFloats = Rule::kFloats;
constexpr int kAhead = 8;  // segments that are loaded before the first of them is used

// data[k] of {segments} numbers `step` floats apart: what is carried into segment k, in place of what it
// adds.
template <bool Forward>
EXPHIL_DEVICE Number carry(float* data, const float* decays, long long segments, long long step,
                           Number value) {
  const long long last = segments - 1;
#pragma unroll 1
  for (long long first = 0; first < segments; first += kAhead) {
    Number own[kAhead], decay[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const long long at = (Forward ? first + k : last - first - k) * step;
      if (first + k < segments) own[k] = Rule::load(data + at), decay[k] = Rule::load(decays + at);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const long long at = (Forward ? first + k : last - first - k) * step;
      if (first + k >= segments) break;
      Rule::store(value, data + at);
      value = Forward ? Rule::multiply_add(decay[k], value, own[k])
                      : Rule::add_conjugate(own[k], value, decay[k]);
    }
  }
  return value;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    selective_scan_backward_carry(const __grid_constant__ exphil::scan::BackwardArguments p) {
  const long long row = p.scan.dim * STATE, count = p.batch * row;
  const long long number = static_cast<long long>(blockIdx.x) * 128 + threadIdx.x;
  if (number >= count) return;
  const long long at = (number / row * p.segments * row + number % row) * kFloats, step = row * kFloats;
  const bool forward = blockIdx.y == 0;
  const float* start = forward ? p.scan.initial_state : p.d_final_state;
  const Number value = start != nullptr ? Rule::load(start + number * kFloats) : Rule::zero();
  if (forward) {
    carry<true>(p.checkpoints + at, p.decays + at, p.segments, step, value);
    return;
  }
  const Number first = carry<false>(p.adjoints + at, p.decays + at, p.segments, step, value);
  if (p.d_initial_state != nullptr) Rule::store(first, p.d_initial_state + number * kFloats);
}
