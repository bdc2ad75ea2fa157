// The gradient of recurrent/walk.cu: from the last frame to the first, in one launch, by the same teams. With
// the gradient of a unit's state after a frame, its block finds those of the unit's sums. What these pass
// back to all units through U, the block multiplies by the rows of U of its units, and sends each block what
// is for its units; the owner adds what the blocks sent in their order. The gradients of U and of what x is
// made of are products over all rows, which other kernels compute.
#include "kernels/recurrent/team.cuh"

namespace exphil {
namespace recurrent {
namespace {

// A task: some values of the state over a slice of the block's own sums, gate by gate. Quads of sums are
// dealt to the slices in turn.
struct BackSource {
  static constexpr ProductShape kShape = back_product(kCell, UNITS, TEAM);
  __device__ __forceinline__ static int group(int task) { return task / kShape.slices; }
  __device__ __forceinline__ static int value(int group, int out) { return out * kShape.groups + group; }
  __device__ __forceinline__ static int sum(int task, int j) {
    return 4 * (kShape.slices * j + task % kShape.slices);
  }
  __device__ __forceinline__ static float at(const RecurrentWeights& w, int k, int sum) {
    const int unit = rank() * kOwn + sum % kOwn;
    if (k >= UNITS || sum >= kGates * kOwn || unit >= UNITS) return 0.0f;
    return __ldg(w.u[sum / kOwn] + unit * w.u_unit + k * w.u_k);
  }
  __device__ __forceinline__ static float4 load(const RecurrentWeights& w, int task, int out, int j) {
    const int k = group(task) < kShape.groups ? value(group(task), out) : UNITS, first = sum(task, j);
    return make_float4(at(w, k, first), at(w, k, first + 1), at(w, k, first + 2), at(w, k, first + 3));
  }
};
using BackWeights = HeldWeights<BackSource>;
constexpr ProductShape kShape = BackSource::kShape;
constexpr int kDepth = kShape.depth, kFrames = back_frames(TEAM);
constexpr long long kFloats = walk_back_floats(kCell, UNITS, TEAM, ROWS);

// Adds what lanes that differ in the bits of kMask and below have of each sum. At each step a lane keeps half
// of its sums and gives its partner the other half; put(i, sum) of those that are left.
template <int kMask, int kCount, class Put>
__device__ __forceinline__ void combine(const float (&sums)[kCount], int begin, int count, Put put) {
  if constexpr (kMask == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) put(begin + i, sums[i]);
    }
  } else {
    constexpr int kHalf = (kCount + 1) / 2;
    const bool upper = (thread() & kMask) != 0;
    float kept[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float low = sums[i], high = kHalf + i < kCount ? sums[kHalf + i] : 0.0f;
      const float other = __shfl_xor_sync(0xffffffffu, upper ? low : high, kMask);
      kept[i] = __fadd_rn(upper ? high : low, other);
    }
    const int left = upper ? count - kHalf : count < kHalf ? count : kHalf;
    combine<kMask / 2>(kept, begin + (upper ? kHalf : 0), left, put);
  }
}

// What a unit's gradient needs of a frame.
struct Inputs {
  Real x[kGates], h[kGates], before[kStates];
  float d_out;
};

class WalkBack {
 public:
  __device__ __forceinline__ WalkBack(const WalkBackArguments& args, float* shared)
      : a_(args),
        mail_(shared),
        sums_(shared + kMailFloats),
        inbox_(sums_ + kFrames * ROWS * kDepth),
        weights_(shared + kFloats) {}

  __device__ __forceinline__ void run() const {
    begin();
    share_work([this] { multiply(); }, [this] { compute_gates(); });
  }

 private:
  // The gradients of the block's own sums of frame t, {ROWS, kDepth}. Who has received what frame t + 1 sends
  // knows that this block has multiplied those of frame t + 2, as some of that is its own, but not that it is
  // done with frame t + 1; of a single block also that.
  __device__ __forceinline__ float* sums_of(long long t) const { return sums_ + t % kFrames * ROWS * kDepth; }
  // What frame t + 1 has sent to this block, {TEAM, ROWS, kOwn}.
  __device__ __forceinline__ float* inbox(long long t) const {
    return inbox_ + ((t + 2) % 2) * TEAM * ROWS * kOwn;
  }
  // Of what frame t sends: the last frame's is round 0.
  __device__ __forceinline__ long long round(long long t) const { return a_.seq - 1 - t; }
  __device__ __forceinline__ bool sends(long long t) const { return t > 0 || a_.d_initial[0].at != nullptr; }

  __device__ __forceinline__ void begin() const {
    for (int i = thread(); i < kFrames * ROWS * kDepth; i += kAllThreads) sums_[i] = 0.0f;
    for (int i = thread(); i < 2 * TEAM * ROWS * kOwn; i += kAllThreads) inbox_[i] = 0.0f;
  }

  __device__ __forceinline__ void multiply() const {
    const BackWeights weights(a_.weights, weights_);
    team_sync();
    for (long long t = a_.seq - 1; t >= 0; --t) {
      take(Hand::sums);
      if (!sends(t)) break;
      const float* const from = sums_of(t);
      float* const boxes = inbox(t - 1) + rank() * ROWS * kOwn;
#pragma unroll 1
      for (int pass = 0; pass < BackWeights::kPasses; ++pass) {
        const int task = BackWeights::task(pass), group = BackSource::group(task);
        float sums[kShape.outs * ROWS] = {};
        weights.add(pass, sums, [from, task](int row, int j) {
          return reinterpret_cast<const float4*>(from + row * kDepth + BackSource::sum(task, j));
        });
        combine<kShape.slices / 2>(sums, 0, kShape.outs * ROWS, [&](int i, float sum) {
          const int k = BackSource::value(group, i / ROWS), row = i % ROWS;
          if (group >= kShape.groups || k >= UNITS) return;
          mail_.send(round(t), boxes + row * kOwn + k % kOwn, k / kOwn, sum);
        });
      }
      mail_.sent();
    }
  }

  __device__ __forceinline__ void compute_gates() const {
    Gates gates(*this);
    team_sync();
    for (long long t = a_.seq - 1; t >= 0; --t) gates.frame(t);
    gates.end();
  }

  // A thread's units.
  class Gates {
   public:
    __device__ __forceinline__ explicit Gates(const WalkBack& walk) : walk_(walk), a_(walk.a_) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const Item it(i, a_.sequences);
#pragma unroll
        for (int s = 0; s < kStates; ++s) d_[i][s].v = it.exists ? load_or_zero(a_.d_final[s], it) : 0.0f;
        fetch(i, it, a_.seq - 1);
        activate(i, it, a_.seq - 1);
        fetch(i, it, a_.seq - 2);
      }
    }

    __device__ __forceinline__ void frame(long long t) {
      if (walk_.round(t) > 0) walk_.mail_.receive(walk_.round(t + 1));
      Real d_x[kItems][kGates], d_h[kItems][kGates];
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const Item it(i, a_.sequences);
        if (!it.exists) continue;
        d_[i][0].v = __fadd_rn(__fadd_rn(d_[i][0].v, received(it, t)), now_[i].d_out);
        formulas::recurrent_gradient<kCell, device::Math>(activations_[i], now_[i].h, now_[i].before, d_[i],
                                                          d_x[i], d_h[i]);
        float* const to = walk_.sums_of(t) + it.row * kDepth + it.own;
#pragma unroll
        for (int g = 0; g < kGates; ++g) to[g * kOwn] = d_h[i][g].v;
      }
      give(Hand::sums);
      if (walk_.sends(t)) expect(t);
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const Item it(i, a_.sequences);
        if (it.exists) keep(it, t, d_x[i], d_h[i]);
        activate(i, it, t - 1), fetch(i, it, t - 2);
      }
    }

    __device__ __forceinline__ void end() {
      const bool first_too = walk_.sends(0);
      if (first_too && a_.seq > 0) walk_.mail_.receive(walk_.round(0));
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const Item it(i, a_.sequences);
        if (!it.exists) continue;
        if (first_too) d_[i][0].v = __fadd_rn(d_[i][0].v, received(it, -1));
#pragma unroll
        for (int s = 0; s < kStates; ++s) store_if_wanted(a_.d_initial[s], it, d_[i][s].v);
      }
    }

   private:
    __device__ __forceinline__ void expect(long long t) const {
      const int left = UNITS - rank() * kOwn, own = left < kOwn ? left : kOwn;
      walk_.mail_.expect(walk_.round(t), TEAM * ROWS * own * 4);
    }

    // What frame t needs from memory, two frames ahead.
    __device__ __forceinline__ void fetch(int i, const Item& item, long long t) {
      if (!item.exists || t < 0) return;
      const FramePlace place(a_, item, t);
      Inputs& next = inputs_[i];
      next.d_out = load_or_zero(a_.d_out, place.states);
#pragma unroll
      for (int g = 0; g < kGates; ++g) next.x[g].v = a_.x[g][place.sums], next.h[g].v = a_.h[g][place.sums];
#pragma unroll
      for (int s = 0; s < kStates; ++s) next.before[s].v = a_.before[s][place.states];
    }
    // What frame t needs beside what the frame after it sends, while that is under way.
    __device__ __forceinline__ void activate(int i, const Item& item, long long t) {
      if (!item.exists || t < 0) return;
      now_[i] = inputs_[i];
      formulas::cell_activations<kCell, device::Math>(now_[i].x, now_[i].h, now_[i].before, activations_[i]);
    }

    // The gradient of the state after frame t that the sums of frame t + 1 pass back.
    __device__ __forceinline__ float received(const Item& item, long long t) const {
      const float* const from = walk_.inbox(t) + item.row * kOwn + item.own;
      float sum = from[0];
#pragma unroll
      for (int other = 1; other < TEAM; ++other) sum = __fadd_rn(sum, from[other * ROWS * kOwn]);
      return sum;
    }

    __device__ __forceinline__ void keep(const Item& item, long long t, const Real (&d_x)[kGates],
                                         const Real (&d_h)[kGates]) const {
      const FramePlace place(a_, item, t);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        store_if_wanted(a_.d_x[g], place.sums, d_x[g].v);
        store_if_wanted(a_.d_h[g], place.sums, d_h[g].v);
      }
    }

    const WalkBack& walk_;
    const WalkBackArguments& a_;
    Real d_[kItems][kStates];              // of the states after the frame, but for what comes through U
    Inputs now_[kItems], inputs_[kItems];  // of the frame, of that before it
    Real activations_[kItems][formulas::kMostActivations];
  };

  const WalkBackArguments& a_;
  const TeamMail mail_;
  float* const sums_;   // {kFrames, ROWS, kDepth}
  float* const inbox_;  // {2, TEAM, ROWS, kOwn}
  float* const weights_;
};

}  // namespace
}  // namespace recurrent
}  // namespace exphil

// grid: a team for each ROWS sequences.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(THREADS + GATES, 1)
    recurrent_walk_back(const __grid_constant__ exphil::recurrent::WalkBackArguments args) {
  exphil::recurrent::WalkBack(args, exphil::device::dynamic_shared()).run();
}
