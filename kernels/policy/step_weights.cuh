// How a block loads its weights where STAGED, and waits for those of a list.
#pragma once

#include "kernels/policy/step.cuh"

namespace exphil {
namespace policy {

// Opens the board, and starts copying the staged weights of this block. The block synchronises before the
// first of them is awaited.
__device__ __forceinline__ void Step::start() {
  if (thread() == THREADS - 32) {  // of the warp with the fewest weights of its own
    board_.begin();
#if STAGED
    constexpr int kSections = 2 + kNetwork.layers;
    for (int i = 0; i < kSections + kNetwork.layers; ++i) bulk_init(act_.arrived() + i);
    bulk_publish_init();
    if (kTeam.input.bytes > 0) stage(0, kTeam.input_at, kTeam.input_at, kTeam.input.bytes);
    for (int l = 0; l < kNetwork.layers; ++l) {
      stage(2 + l, kTeam.layer_at(l), kTeam.layer_at(l), kTeam.layer.bytes);
    }
    for (int l = 1; STAGED == kStageAll && l < kNetwork.layers; ++l) {
      stage(kSections + l, kTeam.staged_first_at(l), kTeam.first_at(l), kTeam.first_bytes);
    }
    stage(1, kTeam.output_at, kTeam.output_at, kTeam.output.bytes);
#endif
  }
  board_.open();
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

// The matrix of a layer's first product, where that is staged.
__device__ __forceinline__ const void* Step::staged_first(int layer) const {
#if STAGED
  bulk_wait(act_.arrived() + 2 + kNetwork.layers + layer);
#endif
  return staged_ + kTeam.staged_first_at(layer);
}

#if STAGED
__device__ __forceinline__ void Step::stage(int arrived, long long to, long long from, long long bytes) {
  bulk_copy(act_.arrived() + arrived, staged_ + to, share_ + from, static_cast<unsigned>(bytes));
}
#endif

}  // namespace policy
}  // namespace exphil
