// A layer's phases of rows for a team's frames: from what the leading product has written to what the scans
// read. One function for each kind of phase. Part of policy/window_team.cu.
#pragma once

#include "kernels/policy/window_team.cuh"

namespace exphil {
namespace policy {

// This block's channels of a vector of the team's own frames, for the scans.
template <int kVector>
__device__ __forceinline__ void TeamWindow::keep_own(const Frames& f) const {
  constexpr int kOwn = own_of(kVector);
  for (int i = thread_; i < kRows * kOwn; i += THREADS) {
    const int row_at = i / kOwn, channel = rank_ * kOwn + i % kOwn;
    if (!has_channel<kVector>(channel) || !exists(f, row_at + kFramesBefore)) continue;
    memory<kVector>(row(f, row_at + kFramesBefore))[channel] = own<kVector>()[i];
  }
}

template <int kConvolution, int kAt>
__device__ __forceinline__ void TeamWindow::convolve_rows(const Frames& f) {
  constexpr Convolution kPhase = kNetwork.convolutions[kConvolution];
  constexpr StagedPhase w = kPart.weights.phases[kAt];
  constexpr int kOwn = own_of(kPhase.in), kTaps = kPhase.taps, kBefore = kFramesBefore - (kTaps - 1);
  const float* const x = own<kPhase.in>();
  for (int i = thread_; i < kRows * kOwn; i += THREADS) {
    const int row_at = i / kOwn, c = i % kOwn;
    if (!has_channel<kPhase.in>(rank_ * kOwn + c)) continue;
    float taps[kTaps];
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
      const int local = row_at + kBefore + t;
      taps[t] = exists(f, local) ? x[local * kOwn + c] : 0.0f;
    }
    own<kPhase.out>()[i] = convolve(taps, w.channels.in(staged_) + c, kOwn, w.values.in(staged_)[c]);
  }
  __syncthreads();
  // Otherwise the product keeps it, after a barrier that it has anyway.
  constexpr WindowVector kOut = kWindow.vectors[kPhase.out];
  if constexpr (kOut.kept() && !kOut.in_rows) keep_own<kPhase.out>(f);
}

// Each block has the segment sums of its channels. Every block needs what short products read; the others are
// completed by one block for each frame.
template <int kProduct>
__device__ __forceinline__ bool common_at(int column) {
  constexpr Product kP = kNetwork.products[kProduct];
  bool common = kWindow.vectors[kP.out[0].vector].in_rows;
  for_each_number<1, kP.outputs>([&](auto out) {
    constexpr int kOut = decltype(out)::value;
    constexpr bool kBefore = kWindow.vectors[kP.out[kOut - 1].vector].in_rows;
    constexpr bool kThis = kWindow.vectors[kP.out[kOut].vector].in_rows;
    constexpr int kFirst = first_row(kNetwork, kP, kOut);
    if constexpr (kBefore != kThis) {
      if (column >= kFirst) common = kThis;
    }
  });
  return common;
}

template <int kProduct, int kAt>
__device__ __forceinline__ void TeamWindow::multiply_rows(const Frames& f) {
  constexpr Product kP = kNetwork.products[kProduct];
  constexpr int kOwn = own_of(kP.in), kOwnSegments = kOwn / kSegment, kWidth = kNetwork.rows(kP);
  constexpr int kTasks = kOwnSegments * kWidth, kSegments = segments_of(kP.in);
  constexpr StagedPhase w = kPart.weights.phases[kAt];
  const auto* const weights = reinterpret_cast<const Group*>(w.matrix.in(staged_));
  float* const parts = kPart.deep_parts[kAt].in(act_);
  for (int i = thread_; i < kTasks * kRows; i += THREADS) {
    const int row_at = i / kTasks, own_segment = i % kTasks / kWidth, j = i % kWidth;
    const int segment = rank_ * kOwnSegments + own_segment;
    if (!has_channel<kP.in>(segment * kSegment)) continue;
    const float* const x = own<kP.in>() + row_at * kOwn + own_segment * kSegment;
    float sum = 0.0f;
#pragma unroll
    for (int g = 0; g < kSegment / 4; ++g) {
      sum = dot4(widen(weights[(own_segment * (kSegment / 4) + g) * kWidth + j]),
                 reinterpret_cast<const float4*>(x)[g], sum);
    }
    float* const place = parts + (row_at * kSegments + segment) * kWidth + j;
    if (common_at<kProduct>(j)) {
      push_to_all(place, sum);
    } else {
      push(place, row_at % TEAM, sum);
    }
  }
  team_sync();
  if constexpr (kWindow.vectors[kP.in].kept()) keep_own<kP.in>(f);  // after the barrier, as in hidden_rows()
  finish_rows<kProduct, kAt>(f);
  __syncthreads();
}

// The rest of multiply_rows(): values from their sums.
template <int kProduct, int kAt>
__device__ __forceinline__ void TeamWindow::finish_rows(const Frames& f) {
  constexpr Product kP = kNetwork.products[kProduct];
  constexpr int kWidth = kNetwork.rows(kP), kSegments = segments_of(kP.in);
  const float* const parts = kPart.deep_parts[kAt].in(act_);
  const ProductMatrix matrix = weights<kAt>(f.layer);
  for (int i = thread_; i < kWidth * kRows; i += THREADS) {
    const int row_at = i / kWidth, j = i % kWidth;
    if (!common_at<kProduct>(j) && row_at % TEAM != rank_) continue;
    float sum = add_segments<kSegments>(parts + row_at * kSegments * kWidth + j, kWidth);
    sum = scaled(sum, matrix.row_scale, j);
    if constexpr (kP.biased) sum = __fadd_rn(sum, __ldg(matrix.bias + j));
    sum = activated_column<kProduct>(sum, j);
    bool kept = true;
    for_each_number<0, kP.outputs>([&](auto out) {
      constexpr int kVector = kP.out[decltype(out)::value].vector;
      constexpr int kFirst = first_row(kNetwork, kP, decltype(out)::value), kSize = size_of(kVector);
      constexpr WindowVector kAtVector = kWindow.vectors[kVector];
      if constexpr (kAtVector.in_rows || !kAtVector.kept()) {
        if (j < kFirst || j >= kFirst + kSize) return;
        if constexpr (kAtVector.in_rows) own<kVector>()[row_at * kSize + j - kFirst] = sum;
        if constexpr (!kAtVector.kept()) kept = false;
      }
    });
    if (!kept || !exists(f, row_at + kFramesBefore)) continue;
    memory<kP.out[0].vector>(row(f, row_at + kFramesBefore))[j] = sum;
  }
}

// This block's channels of an output.
template <int kProduct, int kAt, int kOut>
__device__ __forceinline__ void TeamWindow::multiply_short(const Frames& f) {
  using Own = OwnOf<kProduct>;
  constexpr Product kP = kNetwork.products[kProduct];
  constexpr StagedPhase w = kPart.weights.phases[kAt];
  constexpr int kVector = kP.out[kOut].vector, kOwn = own_of(kVector), kFirst = Own::first(kOut);
  const auto* const weights = reinterpret_cast<const Group*>(w.matrix.in(staged_)) + kFirst;
  for (int i = thread_; i < kRows * kOwn; i += THREADS) {  // a warp has whole segments
    const int row_at = i / kOwn, c = i % kOwn, channel = rank_ * kOwn + c;
    if (!has_channel<kVector>(channel)) continue;
    const float* const x = own<kP.in>() + row_at * size_of(kP.in);
    const float sum =
        dot_short<size_of(kP.in)>(weights + c, Own::kColumns, reinterpret_cast<const float4*>(x));
    const float value = activated<kProduct, kOut>(
        __fadd_rn(scaled(sum, w.rows.scale.in(staged_), kFirst + c), w.rows.bias.in(staged_)[kFirst + c]));
    if (exists(f, row_at + kFramesBefore)) memory<kVector>(row(f, row_at + kFramesBefore))[channel] = value;
    if constexpr (kWindow.vectors[kVector].averaged) {
      const float part = segment_sum<values_of(kVector)>(value, channel);
      if (c % kSegment != 0) continue;
      push(own<kVector>() + row_at * segments_of(kVector) + channel / kSegment, row_at % TEAM, part);
    }
  }
}

// One block completes each frame's mean.
template <int kMean>
__device__ __forceinline__ void TeamWindow::mean_of_rows(const Frames& f) {
  constexpr Mean kPhase = kNetwork.means[kMean];
  team_sync();
  for (int row_at = thread_; row_at < kRows; row_at += THREADS) {
    if (row_at % TEAM != rank_ || !exists(f, row_at + kFramesBefore)) continue;
    memory<kPhase.out>(row(f, row_at + kFramesBefore))[0] =
        mean_of_segments<values_of(kPhase.in), size_of(kPhase.in)>(own<kPhase.in>() +
                                                                   row_at * segments_of(kPhase.in));
  }
}

template <int kAt>
__device__ __forceinline__ void TeamWindow::row_phase(const Frames& f) {
  constexpr Phase kPhase = kNetwork.layer.phases[kAt];
  if constexpr (kPhase.kind == Kind::convolution) {
    convolve_rows<kPhase.index, kAt>(f);
  } else if constexpr (kPhase.kind == Kind::mean) {
    mean_of_rows<kPhase.index>(f);
  } else if constexpr (kNetwork.products[kPhase.index].is_short) {
    for_each_number<0, kNetwork.products[kPhase.index].outputs>(
        [&](auto out) { multiply_short<kPhase.index, kAt, decltype(out)::value>(f); });
  } else {
    multiply_rows<kPhase.index, kAt>(f);
  }
}

__device__ __forceinline__ void TeamWindow::row_phases(const Frames& f) {
  __syncthreads();
  for_each_number<1, kWindow.rows_end>([&](auto at) { row_phase<decltype(at)::value>(f); });
}

}  // namespace policy
}  // namespace exphil
