// All frames of sequences of a cell that recalls its state, GRU or LSTM, in one launch: common/cell_walk.cuh
// for a policy. Launched by c_src/cuda/policy/cell_walk.cpp, after the products of the inputs. Compiled with
// the network and -D: CELL, its index; TEAM, blocks of a cluster; CLUSTER=1; SEQUENCES, walk::Shape::most;
// COUNTS, whether blocks count the bytes that arrive; PIPELINED, whether it may be one of several that run
// side by side, a launch for each layer (policy/product_follow.cu is between them).
#include "kernels/policy/cell.cuh"
#include "kernels/policy/cell_walk_layout.cuh"
#include "kernels/policy/product.cuh"
#include "kernels/policy/tagged.cuh"
// After the network, which leaves clusters out below compute capability 9.0.
#include "kernels/common/cell_walk.cuh"

namespace exphil {
namespace policy {

constexpr int kRecurrent = recurrent_product(kNetwork, kIt);
static_assert(kRecurrent != kNoPhase, "one product of the state makes all of h");

// The walk's memory.
class PolicyCell {
 public:
  static constexpr walk::Shape kShape{kIt.cell, kUnits, TEAM, SEQUENCES, kNetwork.on_tensor_cores()};
  static constexpr bool kCounts = COUNTS != 0, kAwaits = PIPELINED != 0;
  using Group = policy::Group;
  struct Unit {
    float scale[kGates], bias[kGates];
  };
  struct Inputs {
    Real x[kGates];
    float old;  // of its output
    Tagged words[kAwaits ? kGates : 1];
  };

  __device__ __forceinline__ explicit PolicyCell(const CellWalkArguments& args) : args_(args) {}

  static __device__ __forceinline__ float4 widen(Group group) { return policy::widen(group); }

  __device__ __forceinline__ Group weights(int gate, int unit, int k4) const {
    constexpr int kOutputs = It::kOutputs;
    const int at = k4 * product_columns(kOutputs) + gate * kUnits + unit;
    return __ldg(static_cast<const Group*>(args_.recurrent.weights) + at);
  }

  // policy::tensor_weight() has their places: of 16 units of a gate a group is contiguous.
  __device__ __forceinline__ float4 tensor_weights(int gate, int unit, int k8) const {
    const int column = gate * kUnits + unit, lane = static_cast<int>(threadIdx.x) % 32;
    const int group = 2 * k8 + column / 16 % 2;
    return __ldg(static_cast<const float4*>(args_.recurrent.weights) + group * product_columns(It::kOutputs) +
                 column / 32 * 32 + lane);
  }

  __device__ __forceinline__ Unit unit(int unit) const {
    Unit made{};
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      made.bias[gate] = __ldg(args_.recurrent.bias + gate * kUnits + unit);
      if (kNetwork.row_scales()) made.scale[gate] = __ldg(args_.recurrent.row_scale + gate * kUnits + unit);
    }
    return made;
  }

  __device__ __forceinline__ float completed(const Unit& unit, int gate, float sum) const {
    return It::apply(scaled(sum, unit.scale, gate), unit.bias[gate], 1.0f, 0.0f, gate * kUnits);
  }

  __device__ __forceinline__ Inputs inputs(long long row, int unit) const {
    Inputs made{};
    if (follows()) {
      for_each_gate([&](auto gate) {
        constexpr int kGate = decltype(gate)::value;
        made.words[kGate] = load_system(place_of_x<kGate>(row, unit));
      });
    } else {
      load_x(args_, slot_of(row), unit, made.x);
    }
    if (kIt.adds) made.old = *out_place(args_, row, unit);
    return made;
  }

  __device__ __forceinline__ void await(long long row, int unit, Inputs* inputs) const {
    if (!follows()) return;
    bool there = true;
    for_each_gate(
        [&](auto gate) { there = there && has_number(inputs->words[decltype(gate)::value], args_.number); });
    for_each_gate([&](auto gate) {
      constexpr int kGate = decltype(gate)::value;
      if (!there) await_number(place_of_x<kGate>(row, unit), args_.number, &inputs->words[kGate]);
      inputs->x[kGate] = {value_of(inputs->words[kGate])};
    });
  }

  __device__ __forceinline__ void put(long long row, int unit, const Inputs& inputs,
                                      const Real (&states)[kStates]) const {
    if (leads()) return store_tagged(args_.tagged_out + row * kUnits + unit, args_.number + 1, states[0].v);
    *out_place(args_, row, unit) = output(inputs.old, states[0].v);
  }

  __device__ __forceinline__ float initial(long long sequence, int at) const {
    return first_state(args_, layer_state(args_, sequence), at);
  }

  __device__ __forceinline__ void finish(long long sequence, int unit, const Real (&states)[kStates]) const {
    const StatePlace state = layer_state(args_, sequence);
    if (state.to == nullptr) return;
#pragma unroll
    for (int s = 0; s < kStates; ++s) state.to[kIt.state_at + s * kUnits + unit] = states[s].v;
  }

  // Whether its x are made by another launch meanwhile, and whether another one reads its outputs.
  __device__ __forceinline__ bool follows() const {
    return kAwaits && args_.tagged_x != nullptr;
  }
  __device__ __forceinline__ bool leads() const {
    return kAwaits && args_.tagged_out != nullptr;
  }

 private:
  using It = PhaseProduct<kRecurrent>;

  __device__ __forceinline__ long long slot_of(long long row) const {
    const long long at = row + args_.first_slot;
    return args_.slots != 0 && at >= args_.slots ? at - args_.slots : at;
  }

  template <class Call>
  static __device__ __forceinline__ void for_each_gate(Call call) {
    if constexpr (kAwaits) for_each_number<0, kGates>(call);
  }
  template <int kGate>
  __device__ __forceinline__ const Tagged* place_of_x(long long row, int unit) const {
    constexpr RowPlace kX = row_place(kNetwork, kIt.x[kGate]);
    return args_.tagged_x + row * kX.stride + kX.at + unit;
  }

  const CellWalkArguments& args_;
};

}  // namespace policy
}  // namespace exphil

// grid: clusters of TEAM blocks. The weights are loaded before the launch before it ends.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(exphil::policy::PolicyCell::kShape.threads(), 1)
    policy_cell_walk(const __grid_constant__ exphil::policy::CellWalkArguments args) {
  using namespace exphil;
#if EXPHIL_CLUSTERS
  const policy::PolicyCell it(args);
  walk::CellWalk<policy::PolicyCell> frames(it, policy::dynamic_shared());
  if (it.leads()) policy::begin_launch_after();
  if (!it.follows()) policy::await_launch_before();
  frames.run(args.sequences, args.seq, args.together);
  if (it.follows()) policy::await_launch_before();  // who waits for its end waits for the launches before it
  if (!it.leads()) policy::put_zeros(args);
#endif
}
