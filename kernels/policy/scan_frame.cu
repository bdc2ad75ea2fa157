// A frame of a batch of agents through a whole network of scans (Mamba) in one launch, or up to the output's
// phases, where those are others than one product. By themselves these are a launch for each phase. Launched
// by c_src/cuda/policy/rows_frame.cpp. Compiled with the network and -D: ROWS, the most agents of a tile;
// TEAM, blocks of a cluster; CLUSTER=1.
//
// A cluster has a tile of agents. Each of its blocks has the hidden values of all of them in its shared
// memory, and some channels: their x, z, convolution, dt and scan it computes alone. The product behind the
// convolution is divided by its inner dimension: each block has the sums of its channels' segments for b, c
// and what dt is made of, and sends them to all, which add them up. What the scan gives goes to all blocks,
// and so does hidden. Each block counts the bytes that it receives: a barrier of the cluster would wait for
// the loads that are under way, of the next weights and states.
#include "kernels/policy/scan_frame_layer.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

class ScanFrame : ScanFrameLayer {
 public:
  using ScanFrameLayer::ScanFrameLayer;

  __device__ __forceinline__ void run() {
    begin();
    if constexpr (kHasInput) input();
#pragma unroll 1
    for (int layer = 0; layer < kNetwork.layers; ++layer) advance(layer);
    if constexpr (kAnswers) {
      answer();
    } else {
      device::cluster_arrive(), device::cluster_wait();  // no block sends to one that has ended
    }
  }

 private:
  // Each block has the sums over its values of hidden, for all agents, and sends those of an agent, and the
  // values, to the block that answers it. They go to where no block reads any more what was there.
  __device__ __forceinline__ void answer() {
    constexpr int kOfSegment = ROWS * OfAnswers::kStride, kOwnSums = OfAnswers::kSegments;
    constexpr int kRowSums = OfAnswers::kAllSegments * OfAnswers::kStride, kRow = kRowSums + kHidden;
    __syncthreads();
    add_up<OfAnswers, kXStride>(args_.of_out, &shared_.x[0][rank_ * kShare], shared_.parts);
    __syncthreads();
    const int each = divide_up(rows_, TEAM), first = rank_ * each, own = most(0, least(each, rows_ - first));
    // A row's segments of sums, then its values.
    constexpr int kSumFours = OfAnswers::kAll / 4, kFours = kOwnSums * kSumFours + kShare / 4;
    for (int at = thread_; at < rows_ * kFours; at += kThreads) {
      const int row = at / kFours, four = at % kFours, segment = four / kSumFours, in = four % kSumFours * 4;
      const bool is_sum = segment < kOwnSums;
      const int value = (four - kOwnSums * kSumFours) * 4 + rank_ * kShare;
      const float* const from = is_sum ? shared_.parts + segment * kOfSegment + row * OfAnswers::kStride + in
                                       : &shared_.x[row][value];
      float* const to = shared_.history + row % each * kRow +
                        (is_sum ? (rank_ * kOwnSums + segment) * OfAnswers::kStride + in : kRowSums + value);
      device::send(reinterpret_cast<float4*>(to), row / each, *reinterpret_cast<const float4*>(from),
                   word_of(Round::answers));
    }
    await(Round::answers, 0);
    if constexpr (OfAnswers::kNormed) {
      const NormArguments of{args_.out_epsilon, 0};
      for (int row = warp_; row < own; row += kWarps) {
        const NormFactors found = row_factors<OfAnswers>(shared_.history + row * kRow + kRowSums, of);
        if (lane_ == 0) shared_.norms[row] = found;
      }
      __syncthreads();
    }
    for (int at = thread_; at < own * kOutputs; at += kThreads) {
      const int row = at / kOutputs, column = at % kOutputs;
      const float sum =
          add_segments<OfAnswers::kAllSegments>(shared_.history + row * kRow + column, OfAnswers::kStride);
      const ProductColumn with = column_of<OfAnswers>(args_.of_out, column);
      args_.out[(first_row_ + first + row) * kOutputs + column] =
          with.template value<OfAnswers>(sum, norm_of<OfAnswers>(row), 0.0f, column);
    }
    __syncthreads();
    if (thread_ != 0) return;
    tell_finished(args_);
  }
};

#endif

}  // namespace policy
}  // namespace exphil

// grid: {TEAM * tiles}
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(exphil::policy::kScanFrameThreads, 1)
    policy_scan_frame(const __grid_constant__ exphil::policy::ScanFrameArguments args) {
#if EXPHIL_CLUSTERS
  using namespace exphil::policy;
  ScanFrame(args, *reinterpret_cast<ScanFrameShared*>(dynamic_shared())).run();
#endif
}
