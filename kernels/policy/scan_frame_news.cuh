// What a tile of policy/scan_frame.cu has from the host's memory: the places of its states, and its frames,
// which may come while the launch runs.
#pragma once

#include "kernels/policy/scan_frame_sums.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

constexpr Lanes kSpread(values_of(kScan.b));
constexpr int kAcross = kSpread.lanes, kEach = kSpread.each, kStates = kSpread.size();

class ScanFrameNews : protected ScanFrameSums {
 protected:
  using ScanFrameSums::ScanFrameSums;

  // Each block reads some agents' places and frames, which may be in the host's memory, and sends them to
  // all. The states are on their way to the L2 before the frames are there.
  __device__ __forceinline__ void begin() {
    if (thread_ == 0) begin_rounds();
    if constexpr (kHasInput) {
      hold<OfInput>(args_.of_input);
    } else {
      hold<OfIn>(args_.of_in);
    }
    const int each = divide_up(rows_, TEAM), first = rank_ * each, own = least(each, rows_ - first);
    float4 place;
    if (thread_ < own) {
      place = device::load_ahead(reinterpret_cast<const float*>(args_.states + first_row_ + first + thread_));
    }
    __syncthreads();
    device::cluster_arrive_relaxed(), device::cluster_wait();  // every block runs
    if (thread_ < own) {
      auto* const to = reinterpret_cast<float4*>(&shared_.places[first + thread_]);
      for (int rank = 0; rank < TEAM; ++rank) device::send(to, rank, place, word_of(Round::places));
    }
    __syncwarp();
    await(Round::places, 0);
    fetch_states();
    if (rank_ == 0 && thread_ == kThreads - 1) lead();
    __syncwarp();
    await(Round::news, 0);
    constexpr int kRowFours = kFrame / 4;
    for (int at = thread_; at < own * kRowFours; at += kThreads) {
      const int row = first + at / kRowFours, four = at % kRowFours * 4;
      const float4 value = device::load_ahead(args_.frames + (first_row_ + row) * kFrame + four);
      float* const to = kHasInput ? shared_.wide + row * kFrameStride + four : &shared_.x[row][four];
      for (int rank = 0; rank < TEAM; ++rank) {
        device::send(reinterpret_cast<float4*>(to), rank, value, word_of(Round::frames));
      }
    }
    __syncwarp();
    await(Round::frames, 0);
  }

 private:
  __device__ __forceinline__ void begin_rounds() const {
    for (device::Arrivals& arrived : shared_.arrived) device::begin_arrivals(&arrived);
    device::publish_arrivals();
    expect(Round::places, rows_ * static_cast<int>(sizeof(StatePlace)));
    expect(Round::news, sizeof(float));
    expect(Round::frames, rows_ * kFrame * static_cast<int>(sizeof(float)));
    if (!kAnswers) return;
    const int each = divide_up(rows_, TEAM), own = most(0, least(each, rows_ - rank_ * each));
    expect(Round::answers, own * (OfAnswers::kAllSegments * OfAnswers::kAll + kHidden) * 4);
  }
  // One thread asks the host for the frames of the tile, and tells all blocks.
  __device__ __forceinline__ void lead() const {
    await_frames_of(args_, tile_);
    for (int rank = 0; rank < TEAM; ++rank) {
      device::send(&shared_.mean[0], rank, 0.0f, word_of(Round::news));
    }
  }
  // The states of all layers to the L2.
  __device__ __forceinline__ void fetch_states() const {
    constexpr int kLine = 32, kWords = kNetwork.state_words(kOwn * kStates);
    for (int row = warp_; row < rows_; row += kWarps) {
      const float* line = shared_.places[row].from + kScan.state_at + rank_ * kWords;
#pragma unroll 1
      for (int layer = 0; layer < kNetwork.layers; ++layer, line += args_.layer_floats) {
        for (int word = lane_ * kLine; word < kWords; word += 32 * kLine) device::fetch_ahead(line + word);
      }
    }
  }

 protected:
  // The state of a row in a layer.
  __device__ __forceinline__ const float* from(int row, int layer, int at) const {
    return shared_.places[row].from + layer * args_.layer_floats + at;
  }
  __device__ __forceinline__ float* to(int row, int layer, int at) const {
    return shared_.places[row].to + layer * args_.layer_floats + at;
  }
};

#endif

}  // namespace policy
}  // namespace exphil
