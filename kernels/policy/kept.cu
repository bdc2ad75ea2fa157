// Rows that sessions keep of their frames: new ones are put into their rings, and those of many windows are
// copied side by side. Launched by c_src/cuda/policy/rows_kept.cpp. Compiled without defines.
#include "kernels/common/launches.cuh"
#include "kernels/policy/kept_arguments.cuh"

namespace exphil {
namespace policy {

__device__ __forceinline__ void copy_row(const float* from, float* to, int values) {
  for (int i = static_cast<int>(threadIdx.x); i < values / 4; i += kKeptThreads) {
    reinterpret_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(from)[i];
  }
}

__device__ __forceinline__ KeptRing ring_of(const KeptArguments& args, unsigned sequence) {
  return args.rings == nullptr ? args.ring : args.rings[sequence];
}

__device__ __forceinline__ long long slot_of(const KeptRing& ring, int frame) {
  const int slot = ring.first + frame;
  return slot < ring.slots ? slot : slot - ring.slots;
}

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// grid: sequences, by blocks that share the fresh frames of each.
extern "C" __global__ void __launch_bounds__(kKeptThreads) policy_keep_rows(const KeptArguments args) {
  exphil::device::take_turn();
  const KeptRing ring = ring_of(args, blockIdx.x);
  for (int i = static_cast<int>(blockIdx.y); i < ring.fresh; i += static_cast<int>(gridDim.y)) {
    const long long row = ring.first_fresh + i;
    for (int copy = 0; copy < ring.copies; ++copy) {
      const long long slot = slot_of(ring, args.seq - ring.fresh + i) + copy * ring.slots;
      copy_row(args.new_hidden + row * args.hidden_values, ring.hidden + slot * args.hidden_values,
               args.hidden_values);
      copy_row(args.new_lead + row * args.lead_values, ring.lead + slot * args.lead_values, args.lead_values);
    }
  }
}

// grid: rows.
extern "C" __global__ void __launch_bounds__(kKeptThreads) policy_gather_rows(const KeptArguments args) {
  exphil::device::take_turn();
  const long long row = blockIdx.x;
  const KeptRing ring = ring_of(args, blockIdx.x / static_cast<unsigned>(args.seq));
  const long long slot = slot_of(ring, static_cast<int>(blockIdx.x % static_cast<unsigned>(args.seq)));
  copy_row(ring.hidden + slot * args.hidden_values, args.hidden + row * args.hidden_values,
           args.hidden_values);
  copy_row(ring.lead + slot * args.lead_values, args.lead + row * args.lead_values, args.lead_values);
}
