// The gradient of recurrent/walk.cu: from the last frame to the first, in one launch, by the same teams. With
// the gradient of a unit's state after a frame, its block finds those of the unit's sums. What these pass
// back to all units through U, the block multiplies by the rows of U of its units, and sends each block what
// is for its units; the owner adds what the blocks sent in their order. The gradients of U and of what x is
// made of are products over all rows, which other kernels compute.
#include "kernels/recurrent/team.cuh"

namespace exphil {
namespace recurrent {
namespace {

// Outputs: values of the state; depth: the sums of the block's own units, gate by gate.
struct BackSource {
  static constexpr ProductShape kShape = back_product(kCell, UNITS, TEAM);
  __device__ __forceinline__ static int value(int group, int out) { return out * kShape.groups + group; }
  __device__ __forceinline__ static float at(const RecurrentWeights& w, int k, int sum) {
    const int unit = rank() * kOwn + sum % kOwn;
    if (k >= UNITS || sum >= kGates * kOwn || unit >= UNITS) return 0.0f;
    return __ldg(w.u[sum / kOwn] + unit * w.u_unit + k * w.u_k);
  }
  __device__ __forceinline__ static float4 load(const RecurrentWeights& w, int group, int out, int first) {
    const int k = group < kShape.groups ? value(group, out) : UNITS;
    return make_float4(at(w, k, first), at(w, k, first + 1), at(w, k, first + 2), at(w, k, first + 3));
  }
};
using BackProduct = TeamProduct<BackSource>;
constexpr int kDepth = BackSource::kShape.depth;
constexpr long long kFloats = walk_back_floats(kCell, UNITS, TEAM, ROWS);

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
        inbox_(sums_ + ROWS * kDepth),
        product_(args.weights, shared + kFloats) {}

  __device__ __forceinline__ void run() {
    begin();
    const bool first_too = a_.d_initial[0].at != nullptr;
    for (long long t = a_.seq - 1; t >= 0; --t) frame(t, t > 0 || first_too);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item item(i, a_.sequences);
      if (!item.exists) continue;
      if (first_too) d_[i][0].v = __fadd_rn(d_[i][0].v, received(item, -1));
#pragma unroll
      for (int s = 0; s < kStates; ++s)
        store_if_wanted(a_.d_initial[s], item.sequence, item.unit, d_[i][s].v);
    }
  }

 private:
  // What frame t + 1 has sent to this block, {TEAM, ROWS, kOwn}.
  __device__ __forceinline__ float* inbox(long long t) const {
    return inbox_ + ((t + 2) % 2) * TEAM * ROWS * kOwn;
  }

  __device__ __forceinline__ void begin() {
    for (int i = thread(); i < ROWS * kDepth; i += THREADS) sums_[i] = 0.0f;
    for (int i = thread(); i < 2 * TEAM * ROWS * kOwn; i += THREADS) inbox_[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item item(i, a_.sequences);
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        d_[i][s].v = item.exists ? load_or_zero(a_.d_final[s], item.sequence, item.unit) : 0.0f;
      }
      fetch(i, item, a_.seq - 1);
      activate(i, item, a_.seq - 1);
      fetch(i, item, a_.seq - 2);
    }
    team_sync();
  }

  // What frame t needs from memory, two frames ahead.
  __device__ __forceinline__ void fetch(int i, const Item& item, long long t) {
    if (!item.exists || t < 0) return;
    const long long row = item.sequence * a_.seq + t;
    Inputs& next = inputs_[i];
    next.d_out = load_or_zero(a_.d_out, row, item.unit);
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      next.x[g].v = load_or_zero(a_.x[g], row, item.unit);
      next.h[g].v = load_or_zero(a_.h[g], row, item.unit);
    }
#pragma unroll
    for (int s = 0; s < kStates; ++s) next.before[s].v = load_or_zero(a_.before[s], row, item.unit);
  }
  // What frame t needs beside what the frame after it sends, while that is under way.
  __device__ __forceinline__ void activate(int i, const Item& item, long long t) {
    if (!item.exists || t < 0) return;
    now_[i] = inputs_[i];
    formulas::cell_activations<kCell, device::Math>(now_[i].x, now_[i].h, now_[i].before, activations_[i]);
  }

  // The gradient of the state after frame t that the sums of frame t + 1 pass back.
  __device__ __forceinline__ float received(const Item& item, long long t) const {
    const float* const from = inbox(t) + item.row * kOwn + item.own;
    float sum = from[0];
#pragma unroll
    for (int other = 1; other < TEAM; ++other) sum = __fadd_rn(sum, from[other * ROWS * kOwn]);
    return sum;
  }

  __device__ __forceinline__ void frame(long long t, bool sends) {
    const int left = UNITS - rank() * kOwn, own = left < kOwn ? left : kOwn;
    if (sends) mail_.expect(TEAM * ROWS * own * 4);
    Real d_x[kItems][kGates], d_h[kItems][kGates];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item item(i, a_.sequences);
      if (!item.exists) continue;
      d_[i][0].v = __fadd_rn(__fadd_rn(d_[i][0].v, received(item, t)), now_[i].d_out);
      formulas::recurrent_gradient<kCell, device::Math>(activations_[i], now_[i].h, now_[i].before, d_[i],
                                                        d_x[i], d_h[i]);
#pragma unroll
      for (int g = 0; g < kGates; ++g) sums_[item.row * kDepth + g * kOwn + item.own] = d_h[i][g].v;
    }
    __syncthreads();
    if (sends) send(t - 1);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item item(i, a_.sequences);
      if (item.exists) keep(item, t, d_x[i], d_h[i]);
      activate(i, item, t - 1), fetch(i, item, t - 2);
    }
    if (sends) mail_.receive();
  }

  __device__ __forceinline__ void send(long long to) const {
    float* const boxes = inbox(to) + rank() * ROWS * kOwn;
    product_.run(sums_, [this, boxes](int group, int out, int row, float sum) {
      const int k = BackSource::value(group, out);
      if (k < UNITS) mail_.send(boxes + row * kOwn + k % kOwn, k / kOwn, sum);
    });
  }

  __device__ __forceinline__ void keep(const Item& item, long long t, const Real (&d_x)[kGates],
                                       const Real (&d_h)[kGates]) const {
    const long long row = item.sequence * a_.seq + t;
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      store_if_wanted(a_.d_x[g], row, item.unit, d_x[g].v);
      store_if_wanted(a_.d_h[g], row, item.unit, d_h[g].v);
    }
  }

  const WalkBackArguments& a_;
  TeamMail mail_;
  float* const sums_;   // {ROWS, kDepth}
  float* const inbox_;  // {2, TEAM, ROWS, kOwn}
  const BackProduct product_;
  Real d_[kItems][kStates];              // of the states after the frame, but for what comes through U
  Inputs now_[kItems], inputs_[kItems];  // of the frame, of that before it
  Real activations_[kItems][formulas::kMostActivations];
};

}  // namespace
}  // namespace recurrent
}  // namespace exphil

// grid: a team for each ROWS sequences.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(THREADS, 1)
    recurrent_walk_back(const __grid_constant__ exphil::recurrent::WalkBackArguments args) {
  exphil::recurrent::WalkBack(args, exphil::device::dynamic_shared()).run();
}
