// How a block loads its weights where STAGED, and waits for those of a list.
#pragma once

#include "kernels/policy/step.cuh"

namespace exphil {
namespace policy {

// Opens the board, and starts loading all weights of this block; the first use needs the block's sync in
// group().
__device__ __forceinline__ void Step::start() {
  board_.open();
#if STAGED
  if (thread() == 0) {
    for (int i = 0; i < 2 + kNetwork.layers; ++i) bulk_init(act_.arrived() + i);
    bulk_publish_init();
    if (kTeam.input.bytes > 0) stage(0, kTeam.input_at, kTeam.input.bytes);
    for (int l = 0; l < kNetwork.layers; ++l) stage(2 + l, kTeam.layer_at(l), kTeam.layer.bytes);
    stage(1, kTeam.output_at, kTeam.output.bytes);
  }
#endif
  hold_first(0);
}

// Waits for the weights of a list.
template <List kList>
__device__ __forceinline__ const char* Step::section(int layer) const {
  if constexpr (kList == List::input) return section(0, kTeam.input_at);
  if constexpr (kList == List::output) return section(1, kTeam.output_at);
  return section(2 + layer, kTeam.layer_at(layer));
}

__device__ __forceinline__ const char* Step::section(int arrived, long long at) const {
#if STAGED
  bulk_wait(act_.arrived() + arrived);
  return staged_ + at;
#else
  (void)arrived;
  return share_ + at;
#endif
}

#if STAGED
__device__ __forceinline__ void Step::stage(int arrived, long long at, long long bytes) {
  bulk_copy(act_.arrived() + arrived, staged_ + at, share_ + at, static_cast<unsigned>(bytes));
}
#endif

}  // namespace policy
}  // namespace exphil
