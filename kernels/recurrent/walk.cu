// A recurrent cell (GRU, LSTM: common/cells.cuh) over whole sequences, from the first frame to the last, in
// one launch. A team of blocks (a cluster; below compute capability 9.0 one block) walks ROWS sequences. Each
// block keeps the rows of U of its units for the entire walk, and has the whole state before a frame in
// shared memory: it computes its units' gates, and stores their new state into the shared memory of all
// blocks. Launched by c_src/cuda/recurrent/walk.cpp; see recurrent/team.cuh.
#include "kernels/recurrent/team.cuh"

namespace exphil {
namespace recurrent {
namespace {

// Outputs: the gates of kWalkUnits units; depth: the state.
struct WalkSource {
  static constexpr ProductShape kShape = walk_product(kCell, UNITS, TEAM);
  // Of the block's units.
  __device__ __forceinline__ static int own(int group, int out) {
    return group + out / kGates * kShape.groups;
  }
  __device__ __forceinline__ static float4 load(const RecurrentWeights& w, int group, int out, int first) {
    const int unit = rank() * kOwn + own(group, out);
    const bool exists = group < kShape.groups && own(group, out) < kOwn && unit < UNITS;
    return load_quad(w.u[out % kGates] + unit * w.u_unit + first * w.u_k, w.u_k, exists ? UNITS - first : 0);
  }
};
using WalkProduct = TeamProduct<WalkSource>;
constexpr int kDepth = WalkSource::kShape.depth, kSumsStride = sums_stride(kCell, ROWS);
constexpr long long kFloats = walk_floats(kCell, UNITS, TEAM, ROWS);

class Walk {
 public:
  __device__ __forceinline__ Walk(const WalkArguments& args, float* shared)
      : a_(args),
        mail_(shared),
        vectors_(shared + kMailFloats),
        sums_(vectors_ + 2 * ROWS * kDepth),
        product_(args.weights, shared + kFloats) {}

  __device__ __forceinline__ void run() {
    begin();
    for (long long t = 0; t < a_.seq; ++t) frame(t);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item item(i, a_.sequences);
      if (!item.exists) continue;
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        store_if_wanted(a_.final[s], item.sequence, item.unit, states_[i][s].v);
      }
    }
  }

 private:
  // The state before the frame, of all rows; the other half receives that after it.
  __device__ __forceinline__ float* vectors(long long t) const {
    return vectors_ + (t % 2) * ROWS * kDepth;
  }

  __device__ __forceinline__ static int sums_at(int own, int row, int gate) {
    return own * kSumsStride + row * kGates + gate;
  }

  // Both halves are zeros where there is no unit or sequence.
  __device__ __forceinline__ void begin() {
    const long long first = static_cast<long long>(blockIdx.x / TEAM) * ROWS;
    for (int i = thread(); i < 2 * ROWS * kDepth; i += THREADS) {
      const int row = i / kDepth, unit = i % kDepth;
      const bool is_state = row < ROWS && unit < UNITS && first + row < a_.sequences;
      vectors_[i] = is_state ? load_or_zero(a_.initial[0], first + row, unit) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item item(i, a_.sequences);
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        states_[i][s].v = item.exists ? load_or_zero(a_.initial[s], item.sequence, item.unit) : 0.0f;
      }
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const bool has_bias = item.exists && a_.bias[g] != nullptr;
        bias_[i][g] = has_bias ? __ldg(a_.bias[g] + item.unit) : 0.0f;
      }
      fetch(i, item, 0);
    }
    team_sync();
  }

  __device__ __forceinline__ void fetch(int i, const Item& item, long long t) {
    const bool exists = item.exists && t < a_.seq;
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      x_[i][g].v = exists ? load_or_zero(a_.x[g], item.sequence * a_.seq + t, item.unit) : 0.0f;
    }
  }

  __device__ __forceinline__ void frame(long long t) {
    const bool sends = t + 1 < a_.seq;
    if (sends) mail_.expect(static_cast<int>(rows()) * UNITS * 4);
    product_.run(vectors(t), [this](int group, int out, int row, float sum) {
      const int own = WalkSource::own(group, out);
      if (own < kOwn) sums_[sums_at(own, row, out % kGates)] = sum;
    });
    __syncthreads();
    Real h[kItems][kGates], before[kItems][kStates];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item item(i, a_.sequences);
      if (item.exists) advance(i, item, h[i], before[i]);
      float* const to = vectors(t + 1) + item.row * kDepth + item.unit;
      if (sends) mail_.send_all(to, states_[i][0].v, item.exists);
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Item item(i, a_.sequences);
      if (item.exists) keep(i, item, t, h[i], before[i]);
      fetch(i, item, t + 1);
    }
    if (sends) mail_.receive();
  }

  __device__ __forceinline__ void advance(int i, const Item& item, Real (&h)[kGates],
                                          Real (&before)[kStates]) {
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      const float sum = sums_[sums_at(item.own, item.row, g)];
      h[g].v = __fadd_rn(sum, bias_[i][g]);
    }
#pragma unroll
    for (int s = 0; s < kStates; ++s) before[s] = states_[i][s];
    formulas::advance_cell<kCell, device::Math>(x_[i], h, states_[i]);
  }

  __device__ __forceinline__ void keep(int i, const Item& item, long long t, const Real (&h)[kGates],
                                       const Real (&before)[kStates]) const {
    const long long row = item.sequence * a_.seq + t;
    store_if_wanted(a_.out, row, item.unit, states_[i][0].v);
#pragma unroll
    for (int g = 0; g < kGates; ++g) store_if_wanted(a_.h[g], row, item.unit, h[g].v);
#pragma unroll
    for (int s = 0; s < kStates; ++s) store_if_wanted(a_.before[s], row, item.unit, before[s].v);
  }

  // The team's sequences.
  __device__ __forceinline__ long long rows() const {
    const long long left = a_.sequences - static_cast<long long>(blockIdx.x / TEAM) * ROWS;
    return left < ROWS ? left : ROWS;
  }

  const WalkArguments& a_;
  TeamMail mail_;
  float* const vectors_;  // {2, ROWS, kDepth}
  float* const sums_;     // {kOwn, kSumsStride}
  const WalkProduct product_;
  Real states_[kItems][kStates], x_[kItems][kGates];
  float bias_[kItems][kGates];
};

}  // namespace
}  // namespace recurrent
}  // namespace exphil

// grid: a team for each ROWS sequences.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(THREADS, 1)
    recurrent_walk(const __grid_constant__ exphil::recurrent::WalkArguments args) {
  exphil::recurrent::Walk(args, exphil::device::dynamic_shared()).run();
}
