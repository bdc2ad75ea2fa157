// A recurrent cell (GRU, LSTM: common/cells.cuh) over whole sequences, from the first frame to the last, in
// one launch. A team of blocks (a cluster; below compute capability 9.0 one block) walks ROWS sequences. Each
// block keeps the rows of U of its units for the entire walk, and has the whole state before a frame in
// shared memory: it computes its units' gates, and stores their new state into the shared memory of all
// blocks. Launched by c_src/cuda/recurrent/walk.cpp; see recurrent/team.cuh.
#include "kernels/recurrent/team.cuh"

namespace exphil {
namespace recurrent {
namespace {

// Whether quads of the state are dealt to the slices in turn; else a slice is a run of them.
constexpr bool kDealt = reads_from_l2(kCell, UNITS, TEAM);

// The next launch may begin when so many frames are left: its blocks take the room of others until then.
constexpr int kLastFrames = 4;

// A task: a slice of one of the block's units.
struct WalkSource {
  static constexpr ProductShape kShape = walk_product(kCell, UNITS, TEAM);
  __device__ __forceinline__ static int own(int task) { return kDealt ? task / kShape.slices : task % kOwn; }
  __device__ __forceinline__ static int slice(int task) {
    return kDealt ? task % kShape.slices : task / kOwn;
  }
  __device__ __forceinline__ static float4 load(const RecurrentWeights& w, int task, int gate, int j) {
    const int quad = kDealt ? kShape.slices * j + slice(task) : slice(task) * kShape.quads() + j;
    const int unit = rank() * kOwn + own(task), first = 4 * quad;
    const bool exists = task < kShape.tasks() && unit < UNITS;
    return load_quad(w.u[gate] + unit * w.u_unit + first * w.u_k, w.u_k, exists ? UNITS - first : 0);
  }
};
using WalkWeights = HeldWeights<WalkSource>;
constexpr ProductShape kShape = WalkSource::kShape;
constexpr int kSlice = 4 * kShape.quads(), kStride = state_slice(kShape);
constexpr int kState = kShape.slices * kStride;  // of a row, in shared memory
constexpr long long kFloats = walk_floats(kCell, UNITS, TEAM, ROWS);

class Walk {
 public:
  __device__ __forceinline__ Walk(const WalkArguments& args, float* shared)
      : a_(args),
        mail_(shared),
        vectors_(shared + kMailFloats),
        sums_(vectors_ + 2 * ROWS * kState),
        weights_(shared + kFloats) {}

  __device__ __forceinline__ void run() const {
    begin();
    share_work([this] { multiply(); }, [this] { compute_gates(); });
  }

 private:
  // {ROWS, kState}: the state before a frame, of all rows; the other half receives that after it.
  __device__ __forceinline__ float* vectors(long long t) const { return vectors_ + (t % 2) * ROWS * kState; }
  __device__ __forceinline__ static int place_of(int unit) {
    if (!kDealt) return unit / kSlice * kStride + unit % kSlice;
    return unit / 4 % kShape.slices * kStride + unit / 4 / kShape.slices * 4 + unit % 4;
  }
  __device__ __forceinline__ static int unit_at(int place) {
    const int slice = place / kStride, at = place % kStride;
    return kDealt ? (at / 4 * kShape.slices + slice) * 4 + at % 4 : slice * kSlice + at;
  }
  // In which the states before frame t come.
  __device__ __forceinline__ static long long round(long long t) { return t - 1; }
  // Of a slice's sums, {slices, ROWS, gates, kOwn}.
  __device__ __forceinline__ static int sums_at(int slice, int row, int gate, int own) {
    return ((slice * ROWS + row) * kGates + gate) * kOwn + own;
  }

  // Both halves are zeros where there is no unit or sequence.
  __device__ __forceinline__ void begin() const {
    for (int i = thread(); i < 2 * ROWS * kState; i += kAllThreads) {
      const int row = i / kState, at = i % kState, unit = unit_at(at);
      const long long sequence = first_sequence() + row;
      const bool is_state = row < ROWS && at % kStride < kSlice && unit < UNITS && sequence < a_.sequences;
      const ConstRows& initial = a_.initial[0];
      vectors_[i] = is_state ? load_or_zero(initial.at, sequence * initial.row + unit) : 0.0f;
    }
  }

  __device__ __forceinline__ void multiply() const {
    const WalkWeights weights(a_.weights, weights_);
    team_sync();
    for (long long t = 0; t < a_.seq; ++t) {
      if (t > 0) mail_.receive(round(t));
#pragma unroll 1
      for (int pass = 0; pass < WalkWeights::kPasses; ++pass) {
        const int task = WalkWeights::task(pass), slice = WalkSource::slice(task);
        if (task >= kShape.tasks()) break;
        float sums[kGates * ROWS] = {};
        const float* const from = vectors(t) + slice * kStride;
        weights.add(pass, sums, [from](int row, int j) {
          return reinterpret_cast<const float4*>(from + row * kState + 4 * j);
        });
        float* const to = sums_ + sums_at(slice, 0, 0, WalkSource::own(task));
#pragma unroll
        for (int i = 0; i < kGates * ROWS; ++i) to[sums_at(0, i % ROWS, i / ROWS, 0)] = sums[i];
      }
      give(Hand::sums);
    }
  }

  __device__ __forceinline__ void compute_gates() const {
    device::await_launch_before();
    Gates gates(*this);
    team_sync();
    for (long long t = 0; t < a_.seq; ++t) {
      if (t == a_.seq - kLastFrames) device::begin_launch_after();
      gates.frame(t);
    }
    gates.end();
  }

  // A thread's units.
  class Gates {
   public:
    __device__ __forceinline__ explicit Gates(const Walk& walk) : walk_(walk), a_(walk.a_) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const Item it(i, a_.sequences);
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          states_[i][s].v = it.exists ? load_or_zero(a_.initial[s], it) : 0.0f;
        }
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          const bool has_bias = it.exists && a_.bias[g] != nullptr;
          bias_[i][g] = has_bias ? __ldg(a_.bias[g] + it.unit) : 0.0f;
        }
        fetch(i, it, 0);
      }
    }

    __device__ __forceinline__ void frame(long long t) {
      const bool sends = t + 1 < a_.seq;
      take(Hand::sums);
      Real h[kItems][kGates], before[kItems][kStates];
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const Item it(i, a_.sequences);
        if (it.exists) advance(i, it, h[i], before[i]);
        if (sends) send(i, t + 1);
      }
      if (sends) {
        walk_.mail_.sent();
        walk_.mail_.expect(round(t + 1), rows() * UNITS * 4);
      }
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const Item it(i, a_.sequences);
        if (it.exists) keep(i, it, t, h[i], before[i]);
        fetch(i, it, t + 1);
      }
    }

    __device__ __forceinline__ void end() const {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const Item it(i, a_.sequences);
        if (!it.exists) continue;
#pragma unroll
        for (int s = 0; s < kStates; ++s) store_if_wanted(a_.final[s], it, states_[i][s].v);
      }
    }

   private:
    __device__ __forceinline__ void fetch(int i, const Item& item, long long t) {
      const bool exists = item.exists && t < a_.seq;
      const FramePlace place(a_, item, t);
#pragma unroll
      for (int g = 0; g < kGates; ++g) x_[i][g].v = exists ? a_.x[g][place.sums] : 0.0f;
    }

    __device__ __forceinline__ void advance(int i, const Item& item, Real (&h)[kGates],
                                            Real (&before)[kStates]) {
      const float* const sums = walk_.sums_ + sums_at(0, item.row, 0, item.own);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        float sum = sums[sums_at(0, 0, g, 0)];
#pragma unroll
        for (int slice = 1; slice < kShape.slices; ++slice) {
          sum = __fadd_rn(sum, sums[sums_at(slice, 0, g, 0)]);
        }
        h[g].v = __fadd_rn(sum, bias_[i][g]);
      }
#pragma unroll
      for (int s = 0; s < kStates; ++s) before[s] = states_[i][s];
      formulas::advance_cell<kCell, device::Math>(x_[i], h, states_[i]);
    }

    // The state of item i of each thread, to all blocks. Four neighbours are sent at once, where there are
    // always four, and eight threads send all of 32 to one block. Called by whole warps.
    __device__ __forceinline__ void send(int i, long long t) const {
      const float value = states_[i][0].v;
      if constexpr (kOwn % 4 == 0 && UNITS % 4 == 0) {
        const int lane = thread() % 32, first = lane % 8 * 4;
        float4 four;
        four.x = __shfl_sync(0xffffffffu, value, first);
        four.y = __shfl_sync(0xffffffffu, value, first + 1);
        four.z = __shfl_sync(0xffffffffu, value, first + 2);
        four.w = __shfl_sync(0xffffffffu, value, first + 3);
        const Item it(i, a_.sequences, gate_thread() - lane + first);
        if (!it.exists) return;
        auto* const to = reinterpret_cast<float4*>(place(it, t));
#pragma unroll
        for (int other = lane / 8; other < TEAM; other += 4) walk_.mail_.send(round(t), to, other, four);
      } else {
        const Item it(i, a_.sequences);
        if (!it.exists) return;
#pragma unroll
        for (int other = 0; other < TEAM; ++other) walk_.mail_.send(round(t), place(it, t), other, value);
      }
    }
    __device__ __forceinline__ float* place(const Item& it, long long t) const {
      return walk_.vectors(t) + it.row * kState + place_of(it.unit);
    }

    __device__ __forceinline__ void keep(int i, const Item& item, long long t, const Real (&h)[kGates],
                                         const Real (&before)[kStates]) const {
      const FramePlace place(a_, item, t);
      store_if_wanted(a_.out, place.states, states_[i][0].v);
#pragma unroll
      for (int g = 0; g < kGates; ++g) store_if_wanted(a_.h[g], place.sums, h[g].v);
#pragma unroll
      for (int s = 0; s < kStates; ++s) store_if_wanted(a_.before[s], place.states, before[s].v);
    }

    // The team's sequences.
    __device__ __forceinline__ int rows() const {
      const long long left = a_.sequences - first_sequence();
      return left < ROWS ? static_cast<int>(left) : ROWS;
    }

    const Walk& walk_;
    const WalkArguments& a_;
    Real states_[kItems][kStates], x_[kItems][kGates];
    float bias_[kItems][kGates];
  };

  const WalkArguments& a_;
  const TeamMail mail_;
  float *const vectors_, *const sums_, *const weights_;
};

}  // namespace
}  // namespace recurrent
}  // namespace exphil

// grid: a team for each ROWS sequences.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(THREADS + GATES, 1)
    recurrent_walk(const __grid_constant__ exphil::recurrent::WalkArguments args) {
  exphil::recurrent::Walk(args, exphil::device::dynamic_shared()).run();
}
