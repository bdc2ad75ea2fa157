// What a tile of policy/batch_frame.cu has from the host's memory: the places of its states, and its frames,
// which may come while the launch runs. Warps that do nothing else read them: each block some, which it sends
// to all. One thread of the cluster asks the host for each chunk and tells the blocks: some 300 that ask for
// one word of the host take 45 us. A thread that computed and read had to wait for the bus when it sent.
// Copies without registers are no way: bulk copies to all blocks and copies of 16 bytes bring 5 and 15 GB/s
// over the bus, loads of 16 bytes 40 (bench/results/gated.md).
#pragma once

#include "kernels/policy/batch_frame_sums.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

class FrameNews : protected FrameSums {
 protected:
  using FrameSums::FrameSums;

  // ---- by the threads that compute ----

  __device__ __forceinline__ void await_places() const { device::await_bytes(&shared_.come.places, 0); }
  __device__ __forceinline__ void await_frames(int chunk) const {
    device::await_bytes(&shared_.come.frames[chunk], 0);
  }

  // ---- by the others ----

  __device__ __forceinline__ void read() const {
    if (reader() == 0) begin_news();
    const float4 place = read_place();
    device::cluster_arrive_relaxed(), device::cluster_wait();  // every block runs
    send_place(place);
    if (args_.known == 0) device::cluster_sync();  // no block reads states any more, which frames replace
    if (reader() < kReaders) read_frames();
    if (rank_ == 0 && reader() == kReaders) lead();
  }

 private:
  static constexpr int kReaders = 32 * (kReadingWarps - 1);  // the first of them; another warp leads

  __device__ __forceinline__ int reader() const { return thread_ - kThreads; }
  __device__ __forceinline__ void begin_news() const {
    device::begin_arrivals(&shared_.come.places);
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      device::begin_arrivals(&shared_.come.frames[chunk]), device::begin_arrivals(&shared_.come.news[chunk]);
    }
    device::publish_arrivals();
    device::expect_bytes(&shared_.come.places,
                         static_cast<unsigned>(rows_ * static_cast<int>(sizeof(StatePlace))));
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      device::expect_bytes(&shared_.come.news[chunk], sizeof(float));
      device::expect_bytes(&shared_.come.frames[chunk],
                           static_cast<unsigned>(rows_of(chunk) * X::kK * static_cast<int>(sizeof(float))));
    }
  }
  // One thread asks the host for the frames of each chunk, and tells all blocks.
  __device__ __forceinline__ void lead() const {
    const int chunks = divide_up(args_.tile_rows, args_.chunk_rows);
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      await_frames_of(args_, tile_ * chunks + chunk);
      for (int rank = 0; rank < TEAM; ++rank) {
        device::send(&shared_.come.news_place, rank, 0.0f, &shared_.come.news[chunk]);
      }
    }
  }

  // Of the tile; beyond it, where the thread reads none.
  __device__ __forceinline__ int place_row() const {
    static_assert(kReaders >= kOwnRows, "a thread for each of a block's rows");
    return reader() < kOwnRows ? rank_ * kOwnRows + reader() : rows_;
  }
  // The place of a thread's state, which is in the host's memory.
  __device__ __forceinline__ float4 read_place() const {
    const int row = place_row();
    if (row >= rows_) return {};
    return device::load_ahead(reinterpret_cast<const float*>(args_.states + first_row_ + row));
  }
  __device__ __forceinline__ void send_place(const float4& place) const {
    const int row = place_row();
    if (row >= rows_) return;
    auto* const to = reinterpret_cast<float4*>(&shared_.places[row]);
    for (int rank = 0; rank < TEAM; ++rank) device::send(to, rank, place, &shared_.come.places);
  }

  // A thread's of a chunk, as float4s: those of a block's rows are one after another. It reads some of them
  // at a time, a piece, for which it has registers.
  static constexpr int kRowFours = X::kK / 4;
  static constexpr int kOfChunk = divide_up(divide_up(CHUNK, TEAM) * kRowFours, kReaders);
  static constexpr int kRead = least(kOfChunk, 3), kPieces = divide_up(kOfChunk, kRead);
  using Values = float4[kRead];

  // The first row of the chunk that the block reads, and how many float4s it reads.
  struct Own {
    int row, count;
  };
  __device__ __forceinline__ Own own_of(int chunk) const {
    const int rows = rows_of(chunk), each = divide_up(rows, TEAM), own = rank_ * each;
    return {chunk * args_.chunk_rows + own, least(each, rows - own) * kRowFours};
  }
  // Pieces of all chunks by number.
  __device__ __forceinline__ void load(int piece, Values& to) const {
    const Own own = own_of(piece / kPieces);
    const float* const from = args_.frames + (first_row_ + own.row) * X::kK;
#pragma unroll
    for (int i = 0; i < kRead; ++i) {
      const int at = reader() + (piece % kPieces * kRead + i) * kReaders;
      if (at < own.count) to[i] = device::load_ahead(from + 4 * at);
    }
  }
  __device__ __forceinline__ void send(int piece, const Values& from) const {
    const Own own = own_of(piece / kPieces);
#pragma unroll
    for (int i = 0; i < kRead; ++i) {
      const int at = reader() + (piece % kPieces * kRead + i) * kReaders;
      if (at >= own.count) break;
      auto* const place =
          reinterpret_cast<float4*>(&shared_.x[own.row + at / kRowFours][4 * (at % kRowFours)]);
#pragma unroll 1
      for (int rank = 0; rank < TEAM; ++rank) {
        device::send(place, rank, from[i], &shared_.come.frames[piece / kPieces]);
      }
    }
  }
  // Two pieces at a time are on their way, if the host has the second one.
  __device__ __forceinline__ void read_frames() const {
    Values even, odd;
    bool loaded = false;
#pragma unroll 1
    for (int piece = 0; piece < chunks_ * kPieces; piece += 2) {
      loaded = move(piece, loaded, even, odd);
      if (piece + 1 < chunks_ * kPieces) loaded = move(piece + 1, loaded, odd, even);
    }
  }
  // loaded: what the thread has of the piece is on its way; returns whether that of the next one is.
  __device__ __forceinline__ bool move(int piece, bool loaded, Values& values, Values& next) const {
    if (!loaded) {
      device::await_bytes(&shared_.come.news[piece / kPieces], 0);
      load(piece, values);
    }
    const int chunk = (piece + 1) / kPieces;
    const bool told = chunk < chunks_ && device::have_bytes(&shared_.come.news[chunk], 0);
    if (told) load(piece + 1, next);
    send(piece, values);
    return told;
  }
};

#endif

}  // namespace policy
}  // namespace exphil
