// The frames of a tile of policy/batch_frame.cu, which the host may write while the launch runs: one thread
// of a cluster asks for a chunk's and tells the blocks, and each block reads some of them and sends them to
// all.
#pragma once

#include "kernels/policy/batch_frame_sums.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

class FrameNews : protected FrameSums {
 protected:
  using FrameSums::FrameSums;

  // The cluster's thread that asks the host.
  __device__ __forceinline__ bool leads() const { return rank_ == 0 && thread_ == 0; }
  __device__ __forceinline__ const unsigned long long* flag_of(int chunk) const {
    const int chunks = divide_up(args_.tile_rows, args_.chunk_rows);
    return args_.arrived + (tile_ * chunks + chunk) * kArrivedWords;
  }
  // Of the first chunk that it has not told of. The answer is under way while something else is done.
  __device__ __forceinline__ void ask() {
    if (told_ < chunks_) heard_ = load_system(flag_of(told_));
  }
  // Tells the blocks, where the frames are there; if it is chunk `needed`, after a wait.
  __device__ __forceinline__ void tell(int needed) {
    if (told_ == chunks_) return;
    bool come = heard_ == args_.number;
    if (!come && told_ == needed) {
      const unsigned long long end = nanoseconds() + args_.nanoseconds;
      while (!come && nanoseconds() < end) come = load_system(flag_of(told_)) == args_.number;
      if (!come) store_system(args_.missed, args_.number), come = true;
    }
    if (!come) return;
    fence_system();
    for (int rank = 0; rank < TEAM; ++rank) {
      device::send(&shared_.come.news_place, rank, 0.0f, &shared_.come.news[told_]);
    }
    ++told_;
  }

  // A thread's of a chunk, as float4s: those of a block's rows are one after another.
  static constexpr int kRowFours = X::kK / 4;
  static constexpr int kFetched = divide_up(divide_up(CHUNK, TEAM) * kRowFours, kThreads);

  // The first row of the chunk that the block reads, and how many float4s it reads.
  struct Fetched {
    int row, count;
  };
  __device__ __forceinline__ Fetched fetched_of(int chunk) const {
    const int rows = rows_of(chunk), each = divide_up(rows, TEAM), own = rank_ * each;
    return {chunk * args_.chunk_rows + own, least(each, rows - own) * kRowFours};
  }
  // The first chunk's are read and sent; more are told of.
  __device__ __forceinline__ void begin_frames(float4 (&frames)[kFetched]) {
    told_ = 0;
    if (leads()) {
      ask(), tell(0);
      ask(), tell(0);
    }
    device::await_bytes(&shared_.come.news[0], 0);
    fetch(0, frames);
    send(0, frames);
  }
  // Whether the warp has been told of the chunk.
  __device__ __forceinline__ bool may_fetch(int chunk) const {
    const bool told = device::have_bytes(&shared_.come.news[chunk], 0);
    return __shfl_sync(0xffffffffu, told ? 1 : 0, 0) != 0;
  }
  // By those that read some of them.
  __device__ __forceinline__ void await_news(int chunk) const {
    if (thread_ < fetched_of(chunk).count) device::await_bytes(&shared_.come.news[chunk], 0);
  }
  // Also where nothing is read of a chunk: a block must not end before what is sent to it has come.
  __device__ __forceinline__ void await_all_news() const {
    for (int chunk = 0; thread_ == 0 && chunk < chunks_; ++chunk) {
      while (!device::have_bytes(&shared_.come.news[chunk], 0)) {
      }
    }
  }
  __device__ __forceinline__ void fetch(int chunk, float4 (&to)[kFetched]) const {
    const Fetched mine = fetched_of(chunk);
    const float* const from = args_.frames + (first_row_ + mine.row) * X::kK;
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int at = thread_ + i * kThreads;
      if (at < mine.count) to[i] = device::load_ahead(from + 4 * at);
    }
  }
  __device__ __forceinline__ void send(int chunk, const float4 (&from)[kFetched]) const {
    const Fetched mine = fetched_of(chunk);
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int at = thread_ + i * kThreads;
      if (at >= mine.count) break;
      auto* const place =
          reinterpret_cast<float4*>(&shared_.x[mine.row + at / kRowFours][4 * (at % kRowFours)]);
#pragma unroll
      for (int rank = 0; rank < TEAM; ++rank) {
        device::send(place, rank, from[i], &shared_.come.frames[chunk]);
      }
    }
  }

 private:
  // In the thread that leads.
  int told_ = 0;  // chunks
  unsigned long long heard_ = 0;
};

#endif

}  // namespace policy
}  // namespace exphil
