// What the scans that are parallel in time share: where a block finds its channels, how a tile's pieces are
// dealt out to threads, addresses and barriers of a cluster. Part of scan/chunked.cu and
// scan/short.cu.
#pragma once

#include "kernels/scan/elements.cuh"

namespace exphil {
namespace scan {

// A block's sequence, span and first channel, where Blocks blocks share a column of Across channels.
struct Column {
  int batch, span, first;
};
template <int Blocks, int Across>
EXPHIL_DEVICE Column find_column(const Arguments& p) {
  const unsigned block = blockIdx.x / Blocks, in_batch = block % p.blocks_per_batch,
                 span = in_batch / p.blocks_per_span;
  return {static_cast<int>(block / p.blocks_per_batch), static_cast<int>(span),
          static_cast<int>(span * static_cast<unsigned>(p.span_channels) +
                           in_batch % p.blocks_per_span * Across)};
}

// How Tile rows of Pieces pieces of Size elements are dealt out to Threads threads: piece by piece, row after
// row, kRows rows at a time, or a row in kRounds where there are more pieces than threads.
template <int Threads, int Tile, int Pieces, int Size>
struct Deal {
  static constexpr bool kWhole = Threads >= Pieces;
  static constexpr int kRows = kWhole ? Threads / Pieces : 1;
  // Places in shared memory add up: a round's is the first's and a constant.
  static constexpr bool kAdds = (kRows & (kRows - 1)) == 0;
  static constexpr int kRounds = kWhole ? 1 : (Pieces + Threads - 1) / Threads;
  static EXPHIL_DEVICE int row(int thread) { return kWhole ? thread / Pieces : 0; }
  static EXPHIL_DEVICE int column(int thread) { return (kWhole ? thread % Pieces : thread) * Size; }
  // visit(i, k): the row row() + i, the column column() + k.
  template <class Visit>
  static EXPHIL_DEVICE void visit_all(int thread, Visit visit) {
#pragma unroll
    for (int i = 0; i < Tile; i += kRows) {
#pragma unroll
      for (int k = 0; k < kRounds; ++k) {
        const bool spare = (Threads % Pieces != 0 && row(thread) >= kRows) ||
                           (Tile % kRows != 0 && i + row(thread) >= Tile) ||
                           (kRounds > 1 && column(thread) + k * Threads * Size >= Pieces * Size);
        if (!spare) visit(i, k * Threads * Size);
      }
    }
  }
};

EXPHIL_DEVICE unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
// The same place in another block of the cluster.
EXPHIL_DEVICE unsigned cluster_address(const void* pointer, int block) {
  unsigned address = shared_address(pointer);
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(block));
  return address;
}
// Every thread of the cluster has arrived before one's wait ends, and sees what the others had written by
// then.
EXPHIL_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
EXPHIL_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

}  // namespace scan
}  // namespace exphil
