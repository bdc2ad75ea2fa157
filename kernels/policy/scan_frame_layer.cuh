// The input and a layer of a tile of policy/scan_frame.cu.
#pragma once

#include "kernels/policy/scan_frame_news.cuh"
#include "kernels/policy/state_values.cuh"

namespace exphil {
namespace policy {

#if EXPHIL_CLUSTERS

constexpr RowPlace kB = row_place(kNetwork, kScan.b), kC = row_place(kNetwork, kScan.c),
                   kDtIn = row_place(kNetwork, kNetwork.products[kLayer.dt].in);
// Channels at a time; groups of threads that share the agents; agents that a thread advances together, and
// how many times as many it loads ahead.
constexpr int kPassChannels = least(kOwn, kThreads / kAcross), kPasses = divide_up(kOwn, kPassChannels);
constexpr int kSharers = kThreads / (kPassChannels * kAcross);
constexpr int kTogether = kEach <= 8 ? 3 : 1, kTimes = kEach <= 4 ? 2 : 1;
constexpr int kOwnSegments = kOwn / kSegment;

class ScanFrameLayer : protected ScanFrameNews {
 protected:
  using ScanFrameNews::ScanFrameNews;

  // Hidden of the frame. The warps hold their weights.
  __device__ __forceinline__ void input() {
    const ProductColumn by = column_of<OfInput>(args_.of_input);
    find_norms<OfInput, kFrameStride>(shared_.wide, args_.input_epsilon, false);
    add_up<OfInput, kFrameStride>(args_.of_input, shared_.wide, shared_.parts);
    hold<OfIn>(args_.of_in);
    __syncthreads();
    finish<OfInput, OfInput::kSegments>(
        args_.of_input, by, shared_.parts,
        [&](int row, int, int column, const ProductColumn& of, float sum) __attribute__((always_inline)) {
          shared_.x[row][column] = of.template value<OfInput>(sum, norm_of<OfInput>(row), 0.0f, column);
        });
    __syncthreads();
    send_hidden();
  }
  __device__ __forceinline__ void send_hidden() const {
    send_rows<kShare>(Round::hidden, &shared_.x[0][rank_ * kShare], kXStride);
  }

  __device__ __forceinline__ void advance(int layer) {
    const bool last = layer + 1 == kNetwork.layers;
    begin_history(layer);
    expand(layer);
    __syncthreads();
    const int c = thread_ / kAcross % kPassChannels;
    load_ahead(layer, c);
    const ScanChannel of_scan = scan_channel(layer, c);
    DtChannel dt;
    if (kOneChannel) dt = dt_channel(of_dt(layer), rank_ * kOwn + thread_ % kOwn);
    find_common(layer);
    find_dt(layer, dt);
    hold<OfHidden>(matrix(args_.of_hidden, layer));
    if constexpr (kShape.staged > 0) stage<OfHidden>(matrix(args_.of_hidden, layer));
    scan(layer, of_scan);
    __syncthreads();
    send_rows<kOwn>(Round::scanned, shared_.wide + rank_ * kOwn, kYStride);
    contract(layer, last);
    if (last) return;
    __syncthreads();
    send_hidden();
  }

 private:
  // The last inputs of the block's channels.
  __device__ __forceinline__ void begin_history(int layer) const {
    constexpr int kRowFours = kOwn / 4;
    for (int at = thread_; at < rows_ * kPast * kRowFours; at += kThreads) {
      const int row = at / (kPast * kRowFours), tap = at / kRowFours % kPast, four = at % kRowFours * 4;
      device::copy_async<16>(&shared_.history[(row * kPast + tap) * kOwn + four],
                             from(row, layer, kConvolution.state_at) + tap * kChannels + rank_ * kOwn + four,
                             true);
    }
  }

  // What a channel of the convolution has.
  struct Taps {
    float weights[kPast + 1], bias;
  };
  __device__ __forceinline__ Taps taps_of(int layer, int own) const {
    const float *const taps = of_layer(args_.taps, bytes_to(layer)), *const bias = of_layer(args_.taps_bias,
                                                                                            bytes_to(layer));
    const int channel = rank_ * kOwn + own;
    Taps made;
#pragma unroll
    for (int t = 0; t <= kPast; ++t) {
      made.weights[t] = __ldg(taps + t * kChannels + channel);
    }
    made.bias = __ldg(bias + channel);
    return made;
  }
  // x and z of the block's channels, and the convolution of x. The warps hold their weights.
  __device__ __forceinline__ void expand(int layer) {
    const ProductMatrix of = matrix(args_.of_in, layer);
    const ProductColumn by = column_of<OfIn>(of);
    Taps taps;
    if (kOneColumn<OfIn>) taps = taps_of(layer, thread_ % kOwn);
    if (kHasInput || layer > 0) await(Round::hidden, layer + (kHasInput ? 0 : 1));
    find_norms<OfIn, kXStride>(shared_.x[0], args_.epsilon, layer == 0);
    add_up<OfIn, kXStride>(of, shared_.x[0], shared_.wide);
    hold<OfParts>(matrix(args_.of_parts, layer));
    device::copies_done();
    __syncthreads();
    finish<OfIn, OfIn::kSegments>(
        of, by, shared_.wide,
        [&](int row, int own, int column, const ProductColumn& with, float sum)
            __attribute__((always_inline)) {
              const float value = with.template value<OfIn>(sum, norm_of<OfIn>(row), 0.0f, column);
              if (own >= kOwn) {
                shared_.z[row][own - kOwn] = value;
                return;
              }
              float inputs[kPast + 1];
#pragma unroll
              for (int t = 0; t < kPast; ++t) inputs[t] = shared_.history[(row * kPast + t) * kOwn + own];
              inputs[kPast] = value;
              if (!kOneColumn<OfIn>) taps = taps_of(layer, own);
              shared_.u[row][own] = convolve(inputs, taps.weights, 1, taps.bias);
              float* const next = to(row, layer, kConvolution.state_at) + rank_ * kOwn + own;
#pragma unroll
              for (int t = 0; t < kPast; ++t) next[t * kChannels] = inputs[t + 1];
            });
  }

  // b, c and what dt is made of, in every block.
  __device__ __forceinline__ void find_common(int layer) {
    const ProductMatrix of = matrix(args_.of_parts, layer);
    constexpr int kOfSegment = ROWS * OfParts::kStride;
    float* const own = shared_.parts + rank_ * kOwnSegments * kOfSegment;
    add_up<OfParts, kUStride>(of, shared_.u[0], own);
    __syncthreads();
    send<kCommon>(Round::parts, kOwnSegments * rows_,
                  [&](int run) { return own + run / rows_ * kOfSegment + run % rows_ * OfParts::kStride; });
    const ProductColumn by = column_of<OfParts>(of);
    await(Round::parts, layer);
    finish<OfParts, kChannels / kSegment>(
        of, by, shared_.parts,
        [&](int row, int at, int, const ProductColumn& with, float sum) __attribute__((always_inline)) {
          shared_.common[row][at] = with.template value<OfParts>(sum, {1.0f, 0.0f}, 0.0f, at);
        });
    __syncthreads();
  }

  // dt of a channel: its weights and bias.
  static constexpr int kDtGroups = size_of(kNetwork.products[kLayer.dt].in) / 4;
  struct DtChannel {
    Group weights[kDtGroups];
    float bias;
  };
  __device__ __forceinline__ DtChannel dt_channel(const ShortMatrix& of, int channel) const {
    DtChannel made;
#pragma unroll
    for (int g = 0; g < kDtGroups; ++g) {
      made.weights[g] = __ldg(static_cast<const Group*>(of.weights) + g * kChannels + channel);
    }
    made.bias = __ldg(of.bias + channel);
    return made;
  }
  __device__ __forceinline__ ShortMatrix of_dt(int layer) const {
    const long long bytes = bytes_to(layer);
    return {static_cast<const char*>(args_.of_dt.weights) + bytes, of_layer(args_.of_dt.bias, bytes)};
  }
  static constexpr bool kOneChannel = kThreads % kOwn == 0 && kDtGroups <= 8;
  __device__ __forceinline__ void find_dt(int layer, const DtChannel& one) const {
    const ShortMatrix of = of_dt(layer);
#pragma unroll 2
    for (int at = thread_; at < rows_ * kOwn; at += kThreads) {
      const int row = at / kOwn, own = at % kOwn, channel = rank_ * kOwn + own;
      const DtChannel with = kOneChannel ? one : dt_channel(of, channel);
      const float dt =
          short_row<kLayer.dt>(of, with.weights, 1, &shared_.common[row][kDtIn.at], channel, with.bias);
      shared_.dt[row][own] = dt;
      if constexpr (kHasMean) {
        const float sum = segment_sum<values_of(kScan.dt)>(dt, channel);
        if (lane_ == 0) shared_.means[row][channel / kSegment] = sum;
      }
    }
    __syncthreads();
    if constexpr (kHasMean) {
      send_rows<kOwnSegments>(Round::means, &shared_.means[0][rank_ * kOwnSegments], kChannels / kSegment);
      await(Round::means, layer);
      if (thread_ < rows_) {
        shared_.mean[thread_] = mean_of_segments<values_of(kScan.dt), kChannels>(shared_.means[thread_]);
      }
      __syncthreads();
    }
  }

  // Where the lane's states of channel c of the block are in an agent's.
  __device__ __forceinline__ int place_of(int c) const {
    return (rank_ * kOwn + c) * kStates + thread_ % kAcross * kEach;
  }
  // The thread's agent number i.
  static __device__ __forceinline__ int row_of(int i) {
    return i * kSharers + (kSharers > 1 ? static_cast<int>(threadIdx.x) / (kPassChannels * kAcross) : 0);
  }
  // The states of kTogether agents from the thread's number `first` on.
  using States = float[kTogether][kEach];
  __device__ __forceinline__ void load(States& to, int first, int layer, int place) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int row = row_of(first + i);
      load_states<true>(from(least(row, rows_ - 1), layer, kScan.state_at), place, row < rows_, to[i]);
    }
  }
  __device__ __forceinline__ void load_ahead(int layer, int c) {
#pragma unroll
    for (int t = 0; t < kTimes; ++t) load(states_[t], t * kTogether, layer, place_of(c));
  }

  // What the lane has of a channel.
  struct ScanChannel {
    float a[kEach], d;
  };
  __device__ __forceinline__ ScanChannel scan_channel(int layer, int c) const {
    const float *const a = of_layer(args_.a, bytes_to(layer)), *const d = of_layer(args_.d, bytes_to(layer));
    ScanChannel made;
#pragma unroll
    for (int n = 0; n < kEach; ++n) made.a[n] = __ldg(a + place_of(c) + n);
    made.d = __ldg(d + rank_ * kOwn + c);
    return made;
  }
  __device__ __forceinline__ void scan(int layer, ScanChannel of) {
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      const int c = pass * kPassChannels + thread_ / kAcross % kPassChannels;
      if (pass > 0) load_ahead(layer, c), of = scan_channel(layer, c);
#pragma unroll 1
      for (int first = 0; first * kSharers < rows_; first += kTimes * kTogether) {
#pragma unroll
        for (int t = 0; t < kTimes; ++t) {
          const int number = first + t * kTogether;
          scan(states_[t], number, layer, c, of);
          load(states_[t], number + kTimes * kTogether, layer, place_of(c));
        }
      }
    }
  }
  // Of channel c, agents from the thread's number `first` on. All lanes go the same way, those of agents
  // beyond the last one too: they add up together.
  __device__ __forceinline__ void scan(States& states, int first, int layer, int c, const ScanChannel& of) {
    const int lane = thread_ % kAcross, channel = rank_ * kOwn + c;
    const int rows = device::launder(rows_);
    float sum[kTogether], u[kTogether], z[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int row = least(row_of(first + i), rows - 1);
      const float dt = shared_.dt[row][c];
      float b[kEach], read[kEach];
      device::load_floats(&shared_.common[row][kB.at + lane * kEach], b);
      device::load_floats(&shared_.common[row][kC.at + lane * kEach], read);
      const float input_dt = kHasMean ? shared_.mean[row] : dt;
      u[i] = shared_.u[row][c], z[i] = shared_.z[row][c];
      sum[i] = policy::advance(states[i], of.a, b, read, dt, __fmul_rn(input_dt, u[i]),
                               kScan.decays_input && args_.decays_input != 0);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) sum[i] = add_lanes<kAcross>(sum[i]);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int row = row_of(first + i);
      if (row < rows) store_states<true>(states[i], to(row, layer, kScan.state_at), place_of(c));
      const float y = gate(sum[i], of.d, u[i], z[i]);
      if (lane == i % kAcross && row < rows) shared_.wide[row * kYStride + channel] = y;
    }
  }

  // What the scan gives makes the block's values of hidden.
  __device__ __forceinline__ void contract(int layer, bool last) {
    const ProductMatrix of = matrix(args_.of_hidden, layer);
    const ProductColumn by = column_of<OfHidden>(of);
    await(Round::scanned, layer);
    add_up<OfHidden, kYStride, (kShape.staged > 0)>(of, shared_.wide, shared_.parts);
    if (!last) hold<OfIn>(matrix(args_.of_in, layer + 1));
    if (kAnswers && last) hold<OfAnswers>(args_.of_out);
    __syncthreads();
    finish<OfHidden, OfHidden::kSegments>(
        of, by, shared_.parts,
        [&](int row, int, int column, const ProductColumn& with, float sum) __attribute__((always_inline)) {
          const float value =
              with.template value<OfHidden>(sum, {1.0f, 0.0f}, shared_.x[row][column], column);
          if (last && !kAnswers) {
            args_.out[(first_row_ + row) * kHidden + column] = value;
          } else {
            shared_.x[row][column] = value;
          }
        });
  }

  States states_[kTimes];
};

#endif

}  // namespace policy
}  // namespace exphil
