// What a policy's gradient needs of heads with the trapezoidal rule beside their recurrence
// (gradient_heads.cu), forward and backward: its coefficients, cumulative angles, rotations by them, what
// there was in the frame before, and scales of ranks. Launched by c_src/cuda/policy/gradient_trapezoid.cpp.
#include "kernels/common/device_math.cuh"
#include "kernels/common/launches.cuh"
#include "kernels/common/trapezoid.cuh"
#include "kernels/policy/gradient_arguments.cuh"

namespace exphil {
namespace policy {
namespace {

using device::Real;

__device__ __forceinline__ long long item() {
  return static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
}

// ---- rotations ----

// A pair of a rank and a head of a row, or a value that has no angle: those of a head are numbered, the pairs
// first.
struct Rotated {
  long long row;
  int head, number;

  __device__ __forceinline__ Rotated(const GradientRotationArguments& a, long long i)
      : row(i / (a.heads * each(a))),
        head(static_cast<int>(i / each(a) % a.heads)),
        number(static_cast<int>(i % each(a))) {}
  static __device__ __forceinline__ int each(const GradientRotationArguments& a) { return a.size - a.angles; }
  __device__ __forceinline__ bool is_pair(const GradientRotationArguments& a) const {
    return number < a.angles;
  }
  // Its value, or the first one of the pair; the other one is apart() further on.
  __device__ __forceinline__ int value(const GradientRotationArguments& a) const {
    if (!a.halves) return is_pair(a) ? 2 * number : a.angles + number;
    return number < a.size / 2 ? number : a.angles + number;
  }
  static __device__ __forceinline__ int apart(const GradientRotationArguments& a) {
    return a.halves ? a.size / 2 : 1;
  }
  __device__ __forceinline__ long long in_at(const GradientRotationArguments& a, int rank) const {
    return ((row * a.ranks + rank) * a.groups + head / (a.heads / a.groups)) * a.size;
  }
  __device__ __forceinline__ long long out_at(const GradientRotationArguments& a, int rank) const {
    return ((row * a.ranks + rank) * a.heads + head) * a.size;
  }
  __device__ __forceinline__ int bias_at(const GradientRotationArguments& a, int rank) const {
    return (head * a.ranks + rank) * a.size;
  }
  __device__ __forceinline__ long long turn_at(const GradientRotationArguments& a) const {
    return ((row * a.heads + head) * a.angles + number) * 2;
  }
};

}  // namespace
}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;
using exphil::device::Math;
using exphil::device::Real;

// A thread for each head of a row.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_coefficients(const GradientCoefficientsArguments a) {
  exphil::device::take_turn();
  const long long i = item();
  if (i >= a.count) return;
  const auto step =
      exphil::formulas::trapezoid_step<Math>(Real{a.dt[i]}, Real{a.a[i]}, Real{a.mix[i]}, Real{a.floor});
  a.before[i] = step.before.v, a.now[i] = step.now.v, a.decay[i] = step.decay.v;
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_coefficients_back(const GradientCoefficientsArguments a) {
  exphil::device::take_turn();
  const long long i = item();
  if (i >= a.count) return;
  const auto d = exphil::formulas::trapezoid_gradient<Math>(
      Real{a.dt[i]}, Real{a.a[i]}, Real{a.mix[i]}, Real{a.floor},
      exphil::formulas::TrapezoidStep<Real>{Real{a.d_before[i]}, Real{a.d_now[i]}, Real{a.d_decay[i]}});
  a.d_dt[i] = d.dt.v, a.d_a[i] = d.a.v, a.d_mix[i] = d.mix.v;
}

// A thread for each angle of a head of a sequence, which walks through time.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_angle(const GradientAngleArguments a) {
  exphil::device::take_turn();
  const long long i = item(), all = static_cast<long long>(a.heads) * a.angles;
  if (i >= a.sequences * all) return;
  const long long sequence = i / all, of_head = i % all;
  const int head = static_cast<int>(of_head / a.angles), angle = static_cast<int>(of_head % a.angles);
  Real now{a.initial == nullptr ? 0.0f : a.initial[i]};
  for (long long row = sequence * a.seq; row < (sequence + 1) * a.seq; ++row) {
    now = exphil::formulas::next_angle<Math>(now, Real{a.rate[row * a.angles + angle]},
                                             Real{a.dt[row * a.heads + head]});
    Real sine, cosine;
    Math::sin_cos(now, &sine, &cosine);
    float* const to = a.turn + (row * all + of_head) * 2;
    to[0] = cosine.v, to[1] = sine.v;
  }
  if (a.final != nullptr) a.final[i] = now.v;
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_angle_back(const GradientAngleArguments a) {
  exphil::device::take_turn();
  const long long i = item(), all = static_cast<long long>(a.heads) * a.angles;
  if (i >= a.sequences * all) return;
  const long long sequence = i / all, of_head = i % all, rows = a.sequences * a.seq;
  const int head = static_cast<int>(of_head / a.angles), angle = static_cast<int>(of_head % a.angles);
  float d_angle = 0.0f;
  for (long long row = (sequence + 1) * a.seq; row-- > sequence * a.seq;) {
    const long long at = (row * all + of_head) * 2;
    d_angle = __fmaf_rn(a.turn[at], a.d_turn[at + 1], d_angle);
    d_angle = __fmaf_rn(-a.turn[at + 1], a.d_turn[at], d_angle);
    const auto d = exphil::formulas::angle_gradient<Math>(Real{a.rate[row * a.angles + angle]},
                                                          Real{a.dt[row * a.heads + head]}, Real{d_angle});
    a.rate_parts[(head * rows + row) * a.angles + angle] = d.rate.v;
    a.dt_parts[(angle * rows + row) * a.heads + head] = d.dt.v;
  }
  if (a.d_initial != nullptr) a.d_initial[i] = d_angle;
}

// A thread for each pair, or value without an angle, of a head of a row: those of all its ranks.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_rotation(const GradientRotationArguments a) {
  exphil::device::take_turn();
  const long long i = item();
  if (i >= a.rows * a.heads * Rotated::each(a)) return;
  const Rotated it(a, i);
  const int first = it.value(a), second = first + Rotated::apart(a);
  for (int rank = 0; rank < a.ranks; ++rank) {
    const float *const in = a.in + it.in_at(a, rank), *const bias = a.bias + it.bias_at(a, rank);
    float* const out = a.out + it.out_at(a, rank);
    const float x = __fadd_rn(in[first], bias[first]);
    if (!it.is_pair(a)) {
      out[first] = x;
      continue;
    }
    const float y = __fadd_rn(in[second], bias[second]);
    const float cosine = a.turn[it.turn_at(a)], sine = a.turn[it.turn_at(a) + 1];
    out[first] = __fsub_rn(__fmul_rn(x, cosine), __fmul_rn(y, sine));
    out[second] = __fadd_rn(__fmul_rn(x, sine), __fmul_rn(y, cosine));
  }
}

// Leaves the gradient of what was rotated, {rows, heads, ranks, size}, which is a part of that of the bias
// for each row, and that of the angles.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_rotation_back(const GradientRotationArguments a) {
  exphil::device::take_turn();
  const long long i = item();
  if (i >= a.rows * a.heads * Rotated::each(a)) return;
  const Rotated it(a, i);
  const int first = it.value(a), second = first + Rotated::apart(a);
  float d_cosine = 0.0f, d_sine = 0.0f;
  for (int rank = 0; rank < a.ranks; ++rank) {
    const float* const d = a.d_out + it.out_at(a, rank);
    float* const to = a.bias_parts + it.row * a.heads * a.ranks * a.size + it.bias_at(a, rank);
    if (!it.is_pair(a)) {
      to[first] = d[first];
      continue;
    }
    const float *const in = a.in + it.in_at(a, rank), *const bias = a.bias + it.bias_at(a, rank);
    const float x = __fadd_rn(in[first], bias[first]), y = __fadd_rn(in[second], bias[second]);
    const float cosine = a.turn[it.turn_at(a)], sine = a.turn[it.turn_at(a) + 1];
    d_cosine = __fmaf_rn(d[first], x, __fmaf_rn(d[second], y, d_cosine));
    d_sine = __fmaf_rn(d[second], x, __fmaf_rn(-d[first], y, d_sine));
    to[first] = __fadd_rn(__fmul_rn(d[first], cosine), __fmul_rn(d[second], sine));
    to[second] = __fsub_rn(__fmul_rn(d[second], cosine), __fmul_rn(d[first], sine));
  }
  if (it.is_pair(a)) a.d_turn[it.turn_at(a)] = d_cosine, a.d_turn[it.turn_at(a) + 1] = d_sine;
}

// Adds that up over the heads of a group. A thread for each value of what is rotated.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_rotation_input_back(const GradientRotationArguments a) {
  exphil::device::take_turn();
  const long long i = item(), each = static_cast<long long>(a.ranks) * a.groups * a.size;
  if (i >= a.rows * each) return;
  const int n = static_cast<int>(i % a.size), group = static_cast<int>(i / a.size % a.groups);
  const int rank = static_cast<int>(i / a.size / a.groups % a.ranks), heads = a.heads / a.groups;
  const float* const from = a.bias_parts + i / each * a.heads * a.ranks * a.size;
  float sum = 0.0f;
  for (int head = group * heads; head < (group + 1) * heads; ++head) {
    sum = __fadd_rn(sum, from[(head * a.ranks + rank) * a.size + n]);
  }
  a.d_in[i] = sum;
}

// A thread for each value of a row.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_delay(const GradientDelayArguments a) {
  exphil::device::take_turn();
  const long long i = item(), row = i / a.size, step = row % a.seq;
  if (i >= a.sequences * a.seq * a.size) return;
  const long long of_state = row / a.seq * a.size + i % a.size;
  a.out[i] = step > 0 ? a.in[i - a.size] : a.initial != nullptr ? a.initial[of_state] : 0.0f;
  if (a.final != nullptr && step + 1 == a.seq) a.final[of_state] = a.in[i];
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_delay_back(const GradientDelayArguments a) {
  exphil::device::take_turn();
  const long long i = item();
  if (i >= a.sequences * a.seq * a.size) return;
  const long long row = i / a.size, step = row % a.seq;
  a.d_in[i] = step + 1 < a.seq ? a.d_out[i + a.size] : 0.0f;
  if (a.d_initial != nullptr && step == 0) a.d_initial[row / a.seq * a.size + i % a.size] = a.d_out[i];
}

// A thread for each value that is written: of all ranks, or of their sum.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_ranks(const GradientRankArguments a) {
  exphil::device::take_turn();
  const long long one = static_cast<long long>(a.heads) * a.channels, i = item();
  const long long each = a.back ? one : one * a.ranks;
  if (i >= a.rows * each) return;
  const long long row = i / each, at = i % one;
  const int head = static_cast<int>(at / a.channels), channel = static_cast<int>(at % a.channels);
  const int given = static_cast<int>(i % each / one);
  float sum = 0.0f;
  for (int rank = a.back ? 0 : given; rank < (a.back ? a.ranks : given + 1); ++rank) {
    const float weight = a.weight[(head * a.ranks + rank) * a.channels + channel];
    sum = __fmaf_rn(weight, a.in[a.back ? (row * a.ranks + rank) * one + at : row * one + at], sum);
  }
  a.out[i] = sum;
}

// The parts of the weight's gradient, for each kNormRows rows. A thread for each weight of a part.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_ranks_back(const GradientRankArguments a) {
  exphil::device::take_turn();
  const long long one = static_cast<long long>(a.heads) * a.channels, all = one * a.ranks, i = item();
  const long long first = i / all * kNormRows, end = a.rows - first < kNormRows ? a.rows : first + kNormRows;
  if (first >= a.rows) return;
  const int weight = static_cast<int>(i % all), channel = weight % a.channels;
  const int rank = weight / a.channels % a.ranks, head = weight / a.channels / a.ranks;
  const long long at = static_cast<long long>(head) * a.channels + channel;
  float sum = 0.0f;
  for (long long row = first; row < end; ++row) {
    const long long in_one = row * one + at, in_all = (row * a.ranks + rank) * one + at;
    sum = __fmaf_rn(a.d_out[a.back ? in_one : in_all], a.in[a.back ? in_all : in_one], sum);
  }
  a.weight_parts[i] = sum;
}
