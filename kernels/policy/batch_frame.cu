// A frame of a batch of agents through a whole policy, in one launch: layers of two products and a cell that
// recalls its state, as policy/cell_batch.cuh, of up to three gates (GRU), then one product; or up to the
// output's phases, where those are others, which have launches of their own. Launched by
// c_src/cuda/policy/batch_frame.cpp. Compiled with the network and -D: CELL, its index; ROWS and CHUNK, the
// most agents of a tile and of a chunk; TEAM, blocks of a cluster; CLUSTER=1.
//
// A cluster has a tile of agents, and each of its blocks has the hidden values of all of them in its shared
// memory. A block has kFrameUnits units with all gates, a lane for each, and some of the outputs; after a
// layer the blocks send each other their units. A warp has a segment of the products' inner dimension: its
// lanes hold the weights of their units in registers for all agents of the tile, and load those of the next
// product while the sums of the segments are added. Shared memory hands a warp a word for each lane in a
// cycle, even where all of them read the same, and four warps multiply meanwhile: so each value that is read
// has to be used for several products, here as many as gates.
//
// The launch may come before the frames, which the host then writes to its own memory: it reads the states
// and makes what needs no frame, and a cluster begins with each chunk when its frames are there. One thread
// asks for them (some 300 that ask for one word of the host take 45 us) and tells all blocks;
// each block reads some of them while it computes the chunk before, and sends them to all. The wait is
// bounded. After it the launch goes on with other values and says so: no state that it has read is changed.
//
// The order of each sum is that of policy/dot.cuh: a frame has the bits of a step.
#include "kernels/policy/batch_frame_output.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

class BatchFrame : FrameOutput {
 public:
  using FrameOutput::FrameOutput;

  // A frame of the tile.
  __device__ __forceinline__ void run() {
    if (thread_ == 0) {
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        device::begin_arrivals(&shared_.come.frames[chunk]),
            device::begin_arrivals(&shared_.come.news[chunk]);
      }
      device::publish_arrivals();
    }
    hold(args_.known != 0 ? kNetwork.layers : 0);
    if constexpr (kAnswers) copy_output_weights();
    for (int row = thread_; row < rows_; row += kThreads) {
      shared_.places[row] = args_.states[first_row_ + row];
    }
    if (args_.known == 0) {
#pragma unroll 1
      for (int layer = 0; layer < kNetwork.layers; ++layer) add_states(layer);
    }
    for (int chunk = 0; thread_ == 0 && chunk < chunks_; ++chunk) {
      device::expect_bytes(&shared_.come.news[chunk], sizeof(float));
      device::expect_bytes(&shared_.come.frames[chunk],
                           static_cast<unsigned>(rows_of(chunk) * X::kK * static_cast<int>(sizeof(float))));
    }
    device::cluster_sync();  // every block runs, and reads no states any more
    float4 frames[kFetched];
    begin_frames(frames);
#pragma unroll 1
    for (int layer = 0; layer < kNetwork.layers; ++layer) {
      bool fetched = true;  // the next chunk, where the layer's frames are fetched and there is one
      for_each_chunk(
          kNetwork.layers + layer,
          [&](int chunk) __attribute__((always_inline)) {
            if (layer == 0) {
              device::await_bytes(&shared_.come.frames[chunk], 0);
              fetched = chunk + 1 == chunks_;
              if (!fetched && may_fetch(chunk + 1)) fetch(chunk + 1, frames), fetched = true;
              if (leads()) ask();
            }
            begin_cells(layer, chunk_of(chunk));
          },
          [&](int chunk) __attribute__((always_inline)) {
            if (layer > 0) return;
            if (leads()) tell(chunk + 1);
            if (!fetched) await_news(chunk + 1), fetch(chunk + 1, frames);
            if (chunk + 1 < chunks_) send(chunk + 1, frames);
          },
          [&](const Chunk& chunk) __attribute__((always_inline)) { advance(layer, chunk); });
      exchange();
    }
    await_all_news();
    if constexpr (kAnswers) {
      answer();
    } else {
      put_hidden();
    }
  }
};

#endif

}  // namespace policy
}  // namespace exphil

// grid: {TEAM * tiles}
extern "C" __global__ void TEAM_SHAPE
__launch_bounds__(exphil::policy::frame_shape(exphil::policy::kNetwork, CELL, ROWS, CHUNK).threads(), 1)
    policy_batch_frame(const __grid_constant__ exphil::policy::FrameArguments args) {
#if EXPHIL_CLUSTERS
  using namespace exphil::policy;
  BatchFrame(args, *reinterpret_cast<FrameShared*>(dynamic_shared())).run();
#endif
}
