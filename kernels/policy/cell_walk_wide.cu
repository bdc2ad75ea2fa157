// All frames of many sequences of a cell that recalls its state, GRU or LSTM, in one launch, as
// policy/cell_walk.cu, but on tensor cores by warpgroups (policy/product_wide.cuh), for tf32x3. Launched by
// c_src/cuda/policy/cell_walk_wide.cpp, after the products of the inputs. Compiled with the network and -D:
// CELL, its index; TEAM, blocks of a cluster; CLUSTER=1.
//
// The blocks of a cluster share the units, and keep the weights of their own in shared memory, split, for the
// whole walk. A warpgroup has 16 units of 64 sequences: each frame it sums up U h, of the states of all units
// as the frame before has left them in global memory, advances its cells, whose states are in registers, and
// writes them for the others. Then the cluster meets. So what the blocks tell each other passes through the
// L2, in which thousands of values at a time cost less than as stores to each other's shared memory.
#include "kernels/policy/cell.cuh"
#include "kernels/policy/product_wide.cuh"

#if EXPHIL_WARPGROUPS && EXPHIL_CLUSTERS

namespace exphil {
namespace policy {

constexpr WideWalk kWalk = wide_walk(kNetwork, kIt);
static_assert(kWalk.team == TEAM, "as the host has it");
using H = PhaseProduct<recurrent_product(kNetwork, kIt)>;
constexpr RowPlace kCarry = row_place(kNetwork, kIt.before);
constexpr int kOwn = kWalk.units, kOwnColumns = kGates * kWideUnits;
constexpr int kUnitGroups = kOwn / kWideUnits, kRowGroups = kWalk.sequences() / kWideRows;

struct WideWalkShared {
  WideMatrix<kUnits, kGates * kOwn> of_h;  // {groups of 16 units, gates, 16}
};
static_assert(sizeof(WideWalkShared) == kWalk.shared, "as the host has it");

class WideCells {
 public:
  __device__ __forceinline__ WideCells(const CellWalkArguments& args, WideWalkShared& shared)
      : args_(args),
        shared_(shared),
        group_(static_cast<int>(threadIdx.x) / device::kWarpgroup),
        first_unit_(static_cast<int>(blockIdx.x) % TEAM * kOwn) {
    stage_wide<kWideUnits, kWideWalkThreads / 32, product_columns(H::kOutputs)>(
        shared_.of_h, args_.recurrent.weights,
        [&](int part) { return part % kGates * kUnits + first_unit_ + part / kGates * kWideUnits; });
    first_unit_ += unit_group() * kWideUnits;
    for_each_pair([&](int pair, int unit) __attribute__((always_inline)) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          columns_[pair][j][gate] = ProductColumn::of<H>(args_.recurrent, gate * kUnits + unit + j);
        }
      }
    });
  }

  // Tiles of 64 sequences, as many at a time as the clusters have groups of warpgroups.
  __device__ __forceinline__ void run() {
    const int clusters = static_cast<int>(gridDim.x) / TEAM, cluster = static_cast<int>(blockIdx.x) / TEAM;
    for (int tile = cluster; tile * kWideRows < args_.sequences; tile += clusters * kRowGroups) {
      walk(static_cast<long long>(tile + group_ / kUnitGroups * clusters) * kWideRows);
    }
  }

 private:
  using Sums = WideSums<kOwnColumns>;
  static constexpr int kPairs = kWideUnits / 8;  // of units, of each of a lane's two rows

  __device__ __forceinline__ int unit_group() const {
    return group_ % kUnitGroups;
  }
  template <class Call>
  __device__ __forceinline__ void for_each_pair(Call call) const {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) call(pair, first_unit_ + 8 * pair + Sums::column_of(0, 0));
  }
  // The lane's two of 64 sequences.
  __device__ __forceinline__ static int own_row(int half) {
    return static_cast<int>(threadIdx.x) % device::kWarpgroup / 32 * 16 + Sums::row_of(2 * half);
  }

  // Of a row, a pair and a unit of it.
  struct Cells {
    Real states[2][kPairs][2][kStates];
  };
  struct Inputs {
    float2 x[2][kPairs][kGates];
  };

  __device__ __forceinline__ void load_inputs(const long long (&rows)[2], Inputs& to) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      for_each_pair([&](int pair, int unit) __attribute__((always_inline)) {
        for_each_number<0, kGates>([&](auto gate) __attribute__((always_inline)) {
          constexpr int kGate = decltype(gate)::value;
          constexpr RowPlace kX = row_place(kNetwork, kIt.x[kGate]);
          to.x[half][pair][kGate] =
              device::load_ahead_two(args_.x[kGate] + rows[half] * kX.stride + kX.at + unit);
        });
      });
    }
  }

  // All frames of 64 sequences from `first` on. Every warpgroup of the cluster comes to every barrier. Beyond
  // the last sequence it computes those of that one again, and writes nothing.
  __device__ __forceinline__ void walk(long long first) {
    const long long last = args_.sequences - 1;
    if (first > last) {
      for (int left = args_.seq; left > 0; --left) cluster_sync();
      return;
    }
    long long sequences[2], rows[2];
    bool exist[2];
    const float* from[2];  // the states before the frame
    Cells cells;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const long long own = first + own_row(half);
      exist[half] = own <= last;
      sequences[half] = exist[half] ? own : last;
      rows[half] = sequences[half] * args_.seq;
      const StatePlace state = layer_state(args_, sequences[half]);
      float* const to = args_.carry + sequences[half] * kCarry.stride + kCarry.at;
      from[half] = to;
      for_each_pair([&](int pair, int unit) __attribute__((always_inline)) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
          for (int s = 0; s < kStates; ++s) {
            cells.states[half][pair][j][s] = {first_state(args_, state, s * kUnits + unit + j)};
          }
          if (exist[half]) to[unit + j] = cells.states[half][pair][j][0].v;
        }
      });
    }
    Inputs inputs;
    load_inputs(rows, inputs);
    cluster_sync();
#pragma unroll 1
    for (int left = args_.seq; left > 0; --left) {
      Sums sums;
      add_wide<kOwnColumns>(shared_.of_h, unit_group() * kOwnColumns, from[0], from[1], sums);
      advance(sums, inputs, cells);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (exist[half]) put(rows[half], half, cells);
        from[half] = out_place(args_, rows[half], 0);
      }
      if (left == 1) break;
      ++rows[0], ++rows[1];
      load_inputs(rows, inputs);
      cluster_sync();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (exist[half]) finish(sequences[half], half, cells);
    }
  }

  __device__ __forceinline__ void advance(const Sums& sums, const Inputs& inputs, Cells& cells) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          Real x[kGates], h[kGates];
#pragma unroll
          for (int gate = 0; gate < kGates; ++gate) {
            constexpr int kTileColumns = Sums::kTileColumns;
            const int column = gate * kWideUnits + 8 * pair, n = column / kTileColumns,
                      i = column % kTileColumns / 2 + 2 * half + j;
            const float2 of_input = inputs.x[half][pair][gate];
            x[gate] = {j == 0 ? of_input.x : of_input.y};
            h[gate] = {columns_[pair][j][gate].template value<H>(
                sums.of[n][i], {1.0f, 0.0f}, 0.0f,
                gate * kUnits + first_unit_ + 8 * pair + Sums::column_of(0, 0) + j)};
          }
          formulas::advance_cell<kIt.cell, Math>(x, h, cells.states[half][pair][j]);
        }
      }
    }
  }

  // The outputs of a frame, which are the states that the next one reads.
  __device__ __forceinline__ void put(long long row, int half, const Cells& cells) const {
    for_each_pair([&](int pair, int unit) __attribute__((always_inline)) {
      device::store_wide(out_place(args_, row, unit),
                         make_float2(cells.states[half][pair][0][0].v, cells.states[half][pair][1][0].v));
    });
  }
  __device__ __forceinline__ void finish(long long sequence, int half, const Cells& cells) const {
    float* const to = layer_state(args_, sequence).to;
    if (to == nullptr) return;
    for_each_pair([&](int pair, int unit) __attribute__((always_inline)) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          to[kIt.state_at + s * kUnits + unit + j] = cells.states[half][pair][j][s].v;
        }
      }
    });
  }

  const CellWalkArguments& args_;
  WideWalkShared& shared_;
  const int group_;  // of the warpgroup
  int first_unit_;
  ProductColumn columns_[kPairs][2][kGates];
};

}  // namespace policy
}  // namespace exphil

#endif

// grid: clusters of TEAM blocks. The weights are loaded before the launch before it ends.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(exphil::policy::kWideWalkThreads, 1)
    policy_cell_walk_wide(const __grid_constant__ exphil::policy::CellWalkArguments args) {
  using namespace exphil::policy;
#if EXPHIL_WARPGROUPS && EXPHIL_CLUSTERS
  WideCells cells(args, *reinterpret_cast<WideWalkShared*>(dynamic_shared()));
  await_launch_before();
  __syncthreads();
  cells.run();
  put_zeros(args);
#else
  (void)args;  // not launched there
#endif
}
