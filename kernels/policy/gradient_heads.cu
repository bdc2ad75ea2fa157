// A recurrence over heads of a policy's gradient, forward and backward (common/heads.cuh). Launched by
// c_src/cuda/policy/gradient_heads.cpp. Compiled with -D KEYS, the keys of a head, and RANKS: kLinearRule,
// kDeltaRule, or the ranks of the trapezoidal one; other sizes are arguments.
//
//   linear     S' = decay S + (dt value) key^T,  decay = exp(a dt);  out = S' query + d value
//   delta      S' = decay S + (rate (value - decay S key)) key^T;  out = S' query + d value
//   trapezoid  S' = decay S + the sum over ranks of (rate_before scale value_before) key_before^T
//                 + (dt scale value) key^T;  out = S' query + d scale value, of each rank
//
// A block has rows of one head's matrix in registers and walks through time. Sums over the keys of a row are
// over neighbouring lanes; those over rows (of the key, the query and dt) go through shared memory, in order,
// and are parts for every block. The backward kernel keeps the states before each segment of time, and
// computes those of a segment again when it comes to it.
#include "kernels/common/device_math.cuh"
#include "kernels/common/gradient_formulas.cuh"
#include "kernels/policy/gradient_arguments.cuh"
#include "kernels/policy/gradient_heads.cuh"
#include "kernels/policy/warp.cuh"

namespace exphil {
namespace policy {
namespace {

using device::Real;

constexpr HeadTile kTile(KEYS);
constexpr int kAcross = kTile.lanes.lanes, kEach = kTile.lanes.each, kStates = kTile.lanes.size();
constexpr int kRows = kTile.each, kApart = kHeadWalkThreads / kAcross, kWarps = kHeadWalkThreads / 32;

struct Values {
  float v[kEach];
};

// What the rows of a head share in a step of the linear or the delta rule, or its gradient.
struct HeadStep {
  Values key, query;
  float decay;
};

// What a step back reads of the linear or the delta rule. rate: of each row with the delta rule, else the
// first.
struct StepBack {
  Values states[kRows];  // before the step
  Values key, query;
  float value[kRows], dy[kRows], rate[kRows], decay;
};

// What a block's sums of a step go through: of the keys, of the queries, and of dt and of the decay.
struct Sums {
  float keys[kWarps][kStates], queries[kWarps][kStates];
  float rate[kWarps], decay[kWarps];
};

constexpr bool kTrapezoid = RANKS > 0, kDelta = RANKS == kDeltaRule, kLinear = RANKS == kLinearRule;
constexpr int kRanks = kTrapezoid ? RANKS : 1;
// Blocks of the walk back on a multiprocessor: with several ranks a thread needs more than half of its
// registers.
constexpr int kBlocks = kRanks > 1 ? 1 : 2;

class HeadWalk {
 public:
  __device__ __forceinline__ explicit HeadWalk(const GradientHeadsArguments& args)
      : args_(args), tiles_(kTile.tiles(args.channels)), lane_(thread() % kAcross) {
    const int all = tiles_ * args.heads, tile = static_cast<int>(blockIdx.x % all);
    sequence_ = blockIdx.x / all;
    head_ = tile / tiles_, tile_ = tile % tiles_;
    group_ = head_ / (args.heads / args.groups);
    a_ = kLinear ? __ldg(args.a + head_) : 0.0f;
    segments_ = (args.seq + kHeadSegment - 1) / kHeadSegment;
    const long long slots = segments_ + (args.seq < kHeadSegment ? args.seq : kHeadSegment);
    states_ = args.states + blockIdx.x * slots * kTile.floats() * kHeadWalkThreads + thread();
  }

  __device__ __forceinline__ void forward() {
    initial();
    for (long long t = 0; t < args_.seq; ++t) {
      step(t);
#pragma unroll
      for (int rank = 0; rank < kRanks; ++rank) read_out(t, rank);
    }
    if (args_.final == nullptr) return;
    for_each_state([&](int i, int n, long long at) { args_.final[at] = h_[i].v[n]; });
  }

  __device__ __forceinline__ void backward() {
    if (args_.d_final != nullptr)
      for_each_state([&](int i, int n, long long at) { dh_[i].v[n] = args_.d_final[at]; });
    initial();
    for (long long t = 0; t < args_.seq; ++t) {
      if (t % kHeadSegment == 0) keep(t / kHeadSegment);
      step(t);
    }
    float da = 0.0f;
    for (long long segment = segments_; segment-- > 0;) {
      const long long first = segment * kHeadSegment;
      const long long end = args_.seq - first < kHeadSegment ? args_.seq : first + kHeadSegment;
      bring(segment);
      for (long long t = first; t < end; ++t) {
        keep(segments_ + t - first);
        step(t);
      }
      back(first, end, &da);
    }
    if (args_.d_initial != nullptr)
      for_each_state([&](int i, int n, long long at) { args_.d_initial[at] = dh_[i].v[n]; });
    const long long part = sequence_ * tiles_ + tile_;
    if (kLinear && thread() == 0) args_.a_parts[part * args_.heads + head_] = da;
    if (kTrapezoid) scales_back();
    if (args_.d_parts != nullptr) skips_back(part);
  }

 private:
  __device__ __forceinline__ void read_out(long long t, int rank) {
    const Values query = load(args_.query, t, rank);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kEach; ++n) sum = __fmaf_rn(query.v[n], h_[i].v[n], sum);
      sum = add_lanes<kAcross>(sum);
      if (lane_ != 0 || !exists(i)) continue;
      const float value = args_.value[place(t, i)];
      args_.out[place(t, i, rank)] =
          __fmaf_rn(skip(i), kTrapezoid ? __fmul_rn(scale(i, rank), value) : value, sum);
    }
  }

  // ---- places ----

  __device__ __forceinline__ long long row(long long t) const {
    return sequence_ * args_.seq + t;
  }
  // The thread's row `i`, among those of the head.
  __device__ __forceinline__ int channel(int i) const {
    return tile_ * kTile.rows + i * kApart + thread() / kAcross;
  }
  __device__ __forceinline__ bool exists(int i) const {
    return channel(i) < args_.channels;
  }
  __device__ __forceinline__ long long width() const {
    return static_cast<long long>(args_.heads) * args_.channels;
  }
  __device__ __forceinline__ long long of_heads(int i) const {
    return static_cast<long long>(head_) * args_.channels + channel(i);
  }
  __device__ __forceinline__ long long place(long long t, int i) const {
    return row(t) * width() + of_heads(i);
  }
  __device__ __forceinline__ long long place(long long t, int i, int rank) const {
    return (row(t) * kRanks + rank) * width() + of_heads(i);
  }
  template <class Call>
  __device__ __forceinline__ void for_each_state(Call call) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        const int key = lane_ * kEach + n;
        if (exists(i) && key < KEYS) call(i, n, (sequence_ * width() + of_heads(i)) * KEYS + key);
      }
    }
  }

  // ---- what it reads ----

  // This lane's values of a key or a query; zeros behind the last one.
  __device__ __forceinline__ Values load(const float* from, long long t, int rank = 0) const {
    const float* const at = from + ((row(t) * kRanks + rank) * args_.groups + group_) * KEYS + lane_ * kEach;
    Values made;
    if constexpr (KEYS % 4 == 0) {
#pragma unroll
      for (int n = 0; n < kEach; n += 4) {
        float4 four = make_float4(0, 0, 0, 0);
        if (lane_ * kEach + n < KEYS) four = __ldg(reinterpret_cast<const float4*>(at + n));
        made.v[n] = four.x, made.v[n + 1] = four.y, made.v[n + 2] = four.z, made.v[n + 3] = four.w;
      }
    } else {
#pragma unroll
      for (int n = 0; n < kEach; ++n) made.v[n] = lane_ * kEach + n < KEYS ? __ldg(at + n) : 0.0f;
    }
    return made;
  }
  __device__ __forceinline__ float dt(long long t) const {
    return __ldg(args_.dt + row(t) * args_.heads + head_);
  }
  __device__ __forceinline__ float decay(float dt) const {
    return formulas::decay<formulas::Discretization::zoh, device::Math>(Real{__fmul_rn(dt, a_)}).v;
  }
  __device__ __forceinline__ float value(long long t, int i) const {
    return exists(i) ? __ldg(args_.value + place(t, i)) : 0.0f;
  }
  __device__ __forceinline__ float skip(int i) const {
    if (args_.d == nullptr || !exists(i)) return 0.0f;
    return __ldg(args_.d + (args_.skips == args_.heads ? head_ : of_heads(i)));
  }

  // With the trapezoidal rule: a number of the head, the value before, and the factor of a rank.
  __device__ __forceinline__ float of_head(const float* from, long long t) const {
    return __ldg(from + row(t) * args_.heads + head_);
  }
  __device__ __forceinline__ float value_before(long long t, int i) const {
    return exists(i) ? __ldg(args_.value_before + place(t, i)) : 0.0f;
  }
  __device__ __forceinline__ long long scale_at(int i, int rank) const {
    return (static_cast<long long>(head_) * kRanks + rank) * args_.channels + channel(i);
  }
  __device__ __forceinline__ float scale(int i, int rank) const {
    if (args_.scale == nullptr) return 1.0f;
    return exists(i) ? __ldg(args_.scale + scale_at(i, rank)) : 0.0f;
  }

  // ---- states ----

  __device__ __forceinline__ void initial() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) h_[i] = Values{};
    if (args_.initial == nullptr) return;
    for_each_state([&](int i, int n, long long at) { h_[i].v[n] = args_.initial[at]; });
  }
  __device__ __forceinline__ float* slot(long long number) const {
    return states_ + number * kTile.floats() * kHeadWalkThreads;
  }
  __device__ __forceinline__ void keep(long long number) const {
#pragma unroll
    for (int k = 0; k < kTile.floats(); ++k) slot(number)[k * kHeadWalkThreads] = h_[k / kEach].v[k % kEach];
  }
  __device__ __forceinline__ void kept(long long number, Values (&states)[kRows]) const {
#pragma unroll
    for (int k = 0; k < kTile.floats(); ++k)
      states[k / kEach].v[k % kEach] = slot(number)[k * kHeadWalkThreads];
  }
  __device__ __forceinline__ void bring(long long number) {
    kept(number, h_);
  }
  __device__ __forceinline__ void step(long long t) {
    if constexpr (kTrapezoid) step_trapezoid(t);
    if constexpr (kDelta) step_delta(t);
    if constexpr (kLinear) step_linear(t);
  }

  // Steps [first, end) back, from the states before each.
  __device__ __forceinline__ void back(long long first, long long end, float* da) {
    if constexpr (kTrapezoid) {
      for (long long t = end; t-- > first;) {
        bring(segments_ + t - first);
        back_trapezoid(t);
      }
    } else {
      StepBack next = step_back(end - 1, first);
      for (long long t = end; t-- > first;) {
        const StepBack now = next;
        if (t > first) next = step_back(t - 1, first);  // while this one is computed
#pragma unroll
        for (int i = 0; i < kRows; ++i) h_[i] = now.states[i];
        if constexpr (kDelta) back_delta(t, now);
        if constexpr (kLinear) back_linear(t, now, da);
      }
    }
  }
  __device__ __forceinline__ StepBack step_back(long long t, long long first) const {
    StepBack made;
    made.key = load(args_.key, t), made.query = load(args_.query, t);
    made.decay = kDelta ? of_head(args_.decay, t) : 0.0f;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      made.value[i] = value(t, i);
      made.dy[i] = exists(i) ? __ldg(args_.d_out + place(t, i)) : 0.0f;
      made.rate[i] = kDelta ? rate(t, i) : i == 0 ? dt(t) : 0.0f;
    }
    kept(segments_ + t - first, made.states);
    return made;
  }

  // ---- backward: policy/gradient_heads_sums.cuh ----

  static __device__ __forceinline__ void to_warp(const Values& values, float (&sums)[kWarps][kStates]);
  static __device__ __forceinline__ float of_warps(const float* values);
  __device__ __forceinline__ void key_back(long long t, const float (&sums)[kWarps][kStates], float* parts,
                                           int rank = 0) const;
  __device__ __forceinline__ void skips_back(long long part) const;
  __device__ __forceinline__ float row_back(int i, float input, float dy, const HeadStep& step, HeadStep* d);

  // ---- the rules: policy/gradient_heads_linear.cuh, gradient_heads_delta.cuh, gradient_heads_trapezoid.cuh

  __device__ __forceinline__ void step_linear(long long t);
  __device__ __forceinline__ void back_linear(long long t, const StepBack& given, float* da);
  __device__ __forceinline__ float recalled(int i, const Values& key) const;
  __device__ __forceinline__ float rate(long long t, int i) const;
  __device__ __forceinline__ void step_delta(long long t);
  __device__ __forceinline__ void back_delta(long long t, const StepBack& given);
  __device__ __forceinline__ void step_trapezoid(long long t);
  __device__ __forceinline__ void back_trapezoid(long long t);
  __device__ __forceinline__ void scales_back() const;

  const GradientHeadsArguments& args_;
  const int tiles_, lane_;
  int head_, tile_, group_;
  long long sequence_, segments_;
  float a_;
  float* states_;
  Values h_[kRows] = {}, dh_[kRows] = {};
  float d_skip_[kRows] = {};  // in the first lane
  float d_scale_[kTrapezoid ? kRows : 1][kRanks] = {};
};

}  // namespace
}  // namespace policy
}  // namespace exphil

#include "kernels/policy/gradient_heads_sums.cuh"

#include "kernels/policy/gradient_heads_delta.cuh"
#include "kernels/policy/gradient_heads_linear.cuh"
#include "kernels/policy/gradient_heads_trapezoid.cuh"

using namespace exphil::policy;

// grid of both: tiles of each head of each sequence.
extern "C" __global__ void __launch_bounds__(kHeadWalkThreads)
    policy_gradient_heads(const GradientHeadsArguments args) {
  HeadWalk(args).forward();
}

extern "C" __global__ void __launch_bounds__(kHeadWalkThreads, kBlocks)
    policy_gradient_heads_back(const GradientHeadsArguments args) {
  HeadWalk(args).backward();
}
