// The scans of a policy that kernels/scan has not, forward and backward: inputs are scaled by the mean of dt
// over the channels, or decayed by their own step. Launched by c_src/cuda/policy/gradient_kernels.cpp. All
// sizes are arguments.
//
//   h = Abar h + m dt B s   or, decayed,   h = Abar (h + m dt B s)   with m dt the mean of dt, or dt
//   gated = (<C, h> + D s) silu(z)
//
// A thread takes one state of one channel and walks through time; the channels of a block are neighbours.
// Sums over states and over channels go through shared memory, in order. The backward kernel keeps the state
// before each segment of time, and computes the states of a segment again when it comes to it.
#include "kernels/common/device_math.cuh"
#include "kernels/common/gradient_formulas.cuh"
#include "kernels/policy/gradient_arguments.cuh"
#include "kernels/policy/warp.cuh"

namespace exphil {
namespace policy {
namespace {

using device::Real;

// What a thread's step gives before the sums.
struct Step {
  float dt, scale, s, decay, input, after;
};

class Scan {
 public:
  __device__ __forceinline__ explicit Scan(const GradientScanArguments& args)
      : args_(args), lanes_(scan_lanes(args.state)), channels_(scan_channels(args.state)) {
    const int tiles = (args.inner + channels_ - 1) / channels_;
    tile_ = static_cast<int>(blockIdx.x % tiles);
    sequence_ = blockIdx.x / tiles;
    n_ = thread() % lanes_;
    channel_ = tile_ * channels_ + thread() / lanes_;
    active_ = n_ < args.state && channel_ < args.inner;
    a_ = active_ ? __ldg(args.a + state_at()) : 0.0f;
    const long long segments = (args.seq + kScanSegment - 1) / kScanSegment;
    states_ = args.states + blockIdx.x * (segments + kScanSegment) * kScanThreads + thread();
    segments_ = segments;
  }

  __device__ __forceinline__ void forward() {
    __shared__ float read[kScanThreads];
    float h = initial();
    for (long long t = 0; t < args_.seq; ++t) {
      h = step(t, h).after;
      read[thread()] = active_ ? __fmul_rn(__ldg(args_.c + row(t) * args_.state + n_), h) : 0.0f;
      __syncthreads();
      if (owns_channel()) {
        const long long at = place(t);
        args_.gated[at] = __fmul_rn(skipped(add_states(read), args_.s[at]), device::silu(args_.z[at]));
      }
      __syncthreads();
    }
    if (active_ && args_.final != nullptr) args_.final[final_at()] = h;
  }

  __device__ __forceinline__ void backward() {
    float h = initial();
    for (long long t = 0; t < args_.seq; ++t) {
      if (t % kScanSegment == 0) states_[t / kScanSegment * kScanThreads] = h;
      h = step(t, h).after;
    }
    float dh = 0.0f, da = 0.0f, dd = 0.0f;
    for (long long segment = segments_; segment-- > 0;) {
      const long long first = segment * kScanSegment;
      const long long end = args_.seq - first < kScanSegment ? args_.seq : first + kScanSegment;
      h = states_[segment * kScanThreads];
      for (long long t = first; t < end; ++t) {
        before(t - first) = h;
        h = step(t, h).after;
      }
      for (long long t = end; t-- > first;) back(t, before(t - first), &dh, &da, &dd);
    }
    if (active_) args_.a_parts[final_at()] = da;
    if (active_ && args_.d_initial != nullptr) args_.d_initial[final_at()] = dh;
    if (owns_channel() && args_.d_parts != nullptr) args_.d_parts[sequence_ * args_.inner + own()] = dd;
  }

 private:
  // One step of all sums: of states, for a channel; of channels, for a state.
  struct Sums {
    float read[kScanThreads], input[kScanThreads], dt[kScanThreads];
    float b[kScanThreads], c[kScanThreads];
  };

  __device__ __forceinline__ long long row(long long t) const { return sequence_ * args_.seq + t; }
  __device__ __forceinline__ long long state_at() const {
    return static_cast<long long>(channel_) * args_.state + n_;
  }
  __device__ __forceinline__ long long final_at() const {
    return sequence_ * args_.inner * args_.state + state_at();
  }
  // Thread i adds up channel i of the block.
  __device__ __forceinline__ int own() const { return tile_ * channels_ + thread(); }
  __device__ __forceinline__ bool owns_channel() const { return thread() < channels_ && own() < args_.inner; }
  __device__ __forceinline__ long long place(long long t) const { return row(t) * args_.inner + own(); }
  __device__ __forceinline__ float& before(long long step) const {
    return states_[(segments_ + step) * kScanThreads];
  }
  __device__ __forceinline__ float initial() const {
    return active_ && args_.initial != nullptr ? args_.initial[final_at()] : 0.0f;
  }

  __device__ __forceinline__ Step step(long long t, float h) const {
    Step made{};
    if (!active_) return made;
    const long long at = row(t) * args_.inner + channel_;
    made.dt = args_.dt[at], made.s = args_.s[at];
    made.scale = args_.mean_dt != nullptr ? args_.mean_dt[row(t)] : made.dt;
    made.decay = formulas::decay<formulas::Discretization::zoh, device::Math>(Real{__fmul_rn(made.dt, a_)}).v;
    made.input = __fmul_rn(__fmul_rn(made.scale, made.s), __ldg(args_.b + row(t) * args_.state + n_));
    made.after =
        args_.decays ? __fmul_rn(made.decay, __fadd_rn(h, made.input)) : __fmaf_rn(made.decay, h, made.input);
    return made;
  }

  __device__ __forceinline__ float add_states(const float* values) const {
    float sum = 0.0f;
    for (int i = 0; i < lanes_; ++i) sum = __fadd_rn(sum, values[thread() * lanes_ + i]);
    return sum;
  }
  __device__ __forceinline__ float skipped(float read, float s) const {
    return args_.d == nullptr ? read : __fmaf_rn(__ldg(args_.d + own()), s, read);
  }

  __device__ __forceinline__ void back(long long t, float h, float* dh, float* da, float* dd) const {
    __shared__ Sums sums;
    const Step now = step(t, h);
    float values[5] = {};
    if (active_) {
      const long long at = row(t) * args_.inner + channel_, bc = row(t) * args_.state + n_;
      const float b = __ldg(args_.b + bc), c = __ldg(args_.c + bc);
      const float dy = __fmul_rn(args_.d_gated[at], device::silu(args_.z[at]));
      const float d_after = __fmaf_rn(dy, c, *dh), d_before = __fmul_rn(d_after, now.decay);
      const float d_input = args_.decays ? d_before : d_after;
      const float d_exponent = __fmul_rn(d_before, args_.decays ? __fadd_rn(h, now.input) : h);
      *dh = d_before;
      *da = __fmaf_rn(d_exponent, now.dt, *da);
      values[0] = __fmul_rn(c, now.after);
      values[1] = __fmul_rn(d_input, b);
      values[2] = __fmul_rn(d_exponent, a_);
      values[3] = __fmul_rn(d_input, __fmul_rn(now.scale, now.s));
      values[4] = __fmul_rn(dy, now.after);
    }
    sums.read[thread()] = values[0], sums.input[thread()] = values[1], sums.dt[thread()] = values[2];
    sums.b[thread()] = values[3], sums.c[thread()] = values[4];
    __syncthreads();
    if (owns_channel()) channel_back(t, sums, dd);
    for (int task = thread(); task < 2 * lanes_; task += kScanThreads) state_back(t, sums, task);
    __syncthreads();
  }

  // Of one channel, from the sums over its states.
  __device__ __forceinline__ void channel_back(long long t, const Sums& sums, float* dd) const {
    const long long at = place(t);
    const float s = args_.s[at], z = args_.z[at], d_gated = args_.d_gated[at];
    const float dy = __fmul_rn(d_gated, device::silu(z));
    const float input = add_states(sums.input), y = skipped(add_states(sums.read), s);
    const float scale = args_.mean_dt != nullptr ? args_.mean_dt[row(t)] : args_.dt[at];
    const float by_skip = args_.d == nullptr ? 0.0f : __fmul_rn(dy, __ldg(args_.d + own()));
    args_.ds[at] = __fmaf_rn(input, scale, by_skip);
    args_.dz[at] = __fmul_rn(__fmul_rn(d_gated, y), formulas::silu_derivative<device::Math>(Real{z}).v);
    float d_dt = add_states(sums.dt);
    if (args_.d_input_dt != nullptr) {
      args_.d_input_dt[at] = __fmul_rn(input, s);
    } else {
      d_dt = __fmaf_rn(input, s, d_dt);
    }
    args_.ddt[at] = d_dt;
    *dd = __fmaf_rn(dy, s, *dd);
  }

  // Of one state of B (the first lanes_ tasks) or of C, over the block's channels.
  __device__ __forceinline__ void state_back(long long t, const Sums& sums, int task) const {
    const int n = task % lanes_;
    if (n >= args_.state) return;
    const float* values = task < lanes_ ? sums.b : sums.c;
    float sum = 0.0f;
    for (int i = 0; i < channels_; ++i) sum = __fadd_rn(sum, values[i * lanes_ + n]);
    float* const parts = task < lanes_ ? args_.b_parts : args_.c_parts;
    parts[(tile_ * args_.sequences * args_.seq + row(t)) * args_.state + n] = sum;
  }

  const GradientScanArguments& args_;
  const int lanes_, channels_;
  int tile_, n_, channel_;
  long long sequence_, segments_;
  bool active_;
  float a_;
  float* states_;
};

}  // namespace
}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// grid: tiles of channels of each sequence.
extern "C" __global__ void __launch_bounds__(kScanThreads)
    policy_gradient_scan(const GradientScanArguments args) {
  Scan(args).forward();
}
extern "C" __global__ void __launch_bounds__(kScanThreads)
    policy_gradient_scan_back(const GradientScanArguments args) {
  Scan(args).backward();
}

// dt after softplus and clip, and its mean where it is wanted. A warp per row.
extern "C" __global__ void __launch_bounds__(kScanThreads)
    policy_gradient_activate(const ActivateArguments args) {
  using exphil::device::Real;
  const long long row = static_cast<long long>(blockIdx.x) * (kScanThreads / 32) + thread() / 32;
  if (row >= args.rows) return;
  float sum = 0.0f;
  for (int i = thread() % 32; i < args.inner; i += 32) {
    const long long at = row * args.inner + i;
    const float bias = args.bias == nullptr ? 0.0f : __ldg(args.bias + i);
    const float dt = exphil::formulas::activate_dt<exphil::device::Math>(
                         Real{args.dt[at]}, Real{bias}, true, Real{args.lowest}, Real{args.highest})
                         .v;
    args.active[at] = dt;
    sum = __fadd_rn(sum, dt);
  }
  const float total = warp_sum(sum);
  if (args.mean != nullptr && thread() % 32 == 0)
    args.mean[row] = __fmul_rn(total, 1.0f / static_cast<float>(args.inner));
}

// What every channel receives by the mean is the mean of d_input_dt. A warp per row.
extern "C" __global__ void __launch_bounds__(kScanThreads)
    policy_gradient_activate_back(const ActivateArguments args) {
  using exphil::device::Real;
  const long long row = static_cast<long long>(blockIdx.x) * (kScanThreads / 32) + thread() / 32;
  if (row >= args.rows) return;
  float received = 0.0f;
  if (args.d_input_dt != nullptr) {
    for (int i = thread() % 32; i < args.inner; i += 32) {
      received = __fadd_rn(received, args.d_input_dt[row * args.inner + i]);
    }
    received = __fmul_rn(warp_sum(received), 1.0f / static_cast<float>(args.inner));
  }
  for (int i = thread() % 32; i < args.inner; i += 32) {
    const long long at = row * args.inner + i;
    const float bias = args.bias == nullptr ? 0.0f : __ldg(args.bias + i);
    args.d_dt[at] = exphil::formulas::activate_dt_gradient<exphil::device::Math>(
                        Real{args.dt[at]}, Real{bias}, true, Real{args.lowest}, Real{args.highest},
                        Real{__fadd_rn(args.d_active[at], received)})
                        .v;
  }
}
