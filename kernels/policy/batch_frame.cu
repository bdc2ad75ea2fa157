// A frame of a batch of agents through a whole policy, in one launch: layers of two products and a cell that
// recalls its state, as policy/cell_batch.cuh, of up to three gates (GRU), then one product; or up to the
// output's phases, where those are others, which have launches of their own. Launched by
// c_src/cuda/policy/rows_frame.cpp. Compiled with the network and -D: CELL, its index; ROWS and CHUNK, the
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
// and makes what needs no frame, and a cluster begins with each chunk when its frames are there. Four warps
// of each block do not compute: they read frames over the bus (batch_frame_news.cuh), which takes as long as
// the first layer, and give most of their registers to the others. The wait is bounded. After it the launch
// goes on with other values and says so: no state that it has read is changed.
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
    if (thread_ >= kThreads) {
      device::give_registers<kReading>();
      return read();
    }
    device::take_registers<kComputing>();
    hold(args_.known != 0 ? kNetwork.layers : 0);
    if constexpr (kAnswers) copy_output_weights();
    device::cluster_arrive_relaxed(), device::cluster_wait();  // every block runs
    if (args_.known == 0) {
      await_places();
#pragma unroll 1
      for (int layer = 0; layer < kNetwork.layers; ++layer) add_states(layer);
      device::cluster_sync();  // no block reads states any more, which frames replace
    }
#pragma unroll 1
    for (int layer = 0; layer < kNetwork.layers; ++layer) {
      for_each_chunk(
          kNetwork.layers + layer,
          [&](int chunk) __attribute__((always_inline)) {
            if (layer == 0) await_frames(chunk), await_places();
            begin_cells(layer, chunk_of(chunk));
          },
          [&](const Chunk& chunk) __attribute__((always_inline)) { advance(layer, chunk); });
      exchange();
    }
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
