// The products of policy_step as members of Step.
#pragma once

#include "kernels/policy/step.cuh"

namespace exphil {
namespace policy {

// The norm's factors of what a product reads for each agent, one warp per agent. The last warps: they have
// the fewest of a product's sums.
template <class P>
__device__ __forceinline__ void Step::norm_scales(bool first_layer) {
  constexpr int kCounted = kNetwork.counted(P::kProductOf), kFirst = kNetwork.counted_first(P::kProductOf);
  constexpr Norm kNorm = P::kProductOf.norm;
  for (int a = THREADS / 32 - 1 - thread() / 32; a < AGENTS; a += THREADS / 32) {
    const float* const x = act_.vector<P::kIn>()[a];
    const float epsilon = __uint_as_float(P::kProductOf.epsilon);
    NormFactors norm;
    if (kFirst != kCounted && first_layer) {
      norm = norm_factors<kNorm, kFirst, size_of(P::kIn)>(x, epsilon);
    } else {
      norm = norm_factors<kNorm, kCounted, size_of(P::kIn)>(x, epsilon);
    }
    if (thread() % 32 != 0) continue;
    act_.norm_scale(a) = norm.scale;
    if constexpr (P::kCentres) act_.norm_mean(a) = norm.mean;
  }
}

template <class P>
__device__ __forceinline__ float Step::row_sum(int agent, int row) const {
  return add_segments<P::kSegments>(act_.sums() + agent * P::kTasks + row, P::kRows);
}

// A row's value, with its bias, from the sum over its stored weights.
template <class P, List kList, int kAt>
__device__ __forceinline__ float Step::row_value(float sum, int agent, const char* w, int row) const {
  constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
  if constexpr (P::kNormed) {
    const float mean = P::kCentres ? act_.norm_mean(agent) : 0.0f;
    sum = centred<P::kCentres>(sum, kWeights.rows.scale.in(w), kWeights.rows.sums.in(w), row, mean);
    return __fmaf_rn(sum, act_.norm_scale(agent), kWeights.rows.bias.in(w)[row]);
  }
  sum = scaled(sum, kWeights.rows.scale.in(w), row);
  return kWeights.rows.bias.count == 0 ? sum : __fadd_rn(sum, kWeights.rows.bias.in(w)[row]);
}

// A row of this block, whose sums are there.
template <class P, List kList, int kAt>
__device__ __forceinline__ float Step::block_row(const Run& run, int agent, int row) const {
  if constexpr (P::kDiagonal) {
    constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
    static_assert(P::kNormed && P::kOutputs == 1, "a norm without a product");
    const int at = least(rank_ * P::kRows + row, size_of(P::kIn) - 1);  // of padding: its weight is 0
    const float mean = P::kCentres ? act_.norm_mean(agent) : 0.0f;
    return diagonal(act_.vector<P::kIn>()[agent][at], {act_.norm_scale(agent), mean},
                    kWeights.rows.sums.in(run.w)[row], kWeights.rows.bias.in(run.w)[row]);
  } else {
    return row_value<P, kList, kAt>(row_sum<P>(agent, row), agent, run.w, row);
  }
}

// The segment sums of a layer's first product with a matrix, of weights that are staged, that the thread
// holds, or that it reads now. Then it loads those that it will hold for the next layer.
template <class P>
__device__ __forceinline__ void Step::first_sums(const Run& run) {
  const float* const x = act_.vector<P::kIn>()[0];
  constexpr int kStride = size_of(P::kIn);
  const auto put = [&](int a, int task, float sum, int) __attribute__((always_inline)) {
    act_.sums()[a * P::kTasks + task] = sum;
  };
  if (STAGED == kStageAll && run.layer > 0) {
    segment_sums<P::kRows, P::kSegments, true>(staged_first(run.layer), x, kStride, put);
  } else if constexpr (kHoldFirst) {
    if (thread() >= kFirstThreads) return;
#pragma unroll
    for (int i = 0; i < kFirstPer; ++i) {
      int task = thread() + i * kFirstThreads;
      const bool exists = task < P::kTasks && thread() < kFirstThreads;
      if (AGENTS > 1 && !exists) continue;
      if (!exists) task = P::kTasks - 1;  // no branch: the sums of a thread are computed side by side
      const float* values = x + task / P::kRows * kSegment;
      float sum[AGENTS] = {};
#pragma unroll
      for (int j = 0; j < kSegment / 4; ++j) {
        const float4 weight = widen(held_[i][j]);
#pragma unroll
        for (int a = 0; a < AGENTS; ++a) {
          sum[a] = dot4(weight, *reinterpret_cast<const float4*>(values + a * kStride + 4 * j), sum[a]);
        }
      }
#pragma unroll
      for (int a = 0; a < AGENTS; ++a) {
        if (exists) put(a, task, sum[a], 0);
      }
    }
    if (STAGED != kStageAll && run.next >= 0) hold_first(run.next);
  } else {
    segment_sums<P::kRows, P::kSegments, false>(first_matrix(run.layer), x, kStride, put);
  }
}

// The segment sums of a product of a vector on the board, and the weights of its list, once they are there.
template <List kList, int kAt>
__device__ __forceinline__ void Step::sums_of_rows(Run& run) {
  using P = BlockProduct<list_of(kList).phases[kAt].index>;
  if constexpr (P::kNormed) norm_scales<P>(kList == List::layer && run.layer == 0);
  if constexpr (kList == List::layer && kAt == kFirstAt) {
    first_sums<P>(run);
    if constexpr (kAt == 0) run.w = section<kList>(run.layer);
  } else if constexpr (P::kDiagonal) {
    if constexpr (kAt == 0) run.w = section<kList>(run.layer);
  } else {
    if constexpr (kAt == 0) run.w = section<kList>(run.layer);
    if constexpr (P::kProductOf.adds) {
      constexpr int kVector = P::vector(0);
      static_assert(P::kOutputs == 1 && kPlan.on_board(kVector), "a product adds to a vector on the board");
      for (int i = thread(); i < AGENTS * P::kRows; i += THREADS) {
        const int row = rank_ * P::kRows + i % P::kRows;
        act_.residual()[i / P::kRows][i % P::kRows] =
            row < size_of(kVector) ? act_.vector<kVector>()[i / P::kRows][row] : 0.0f;
      }
    }
    constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
    segment_sums<P::kRows, P::kSegments, true>(
        kWeights.matrix.in(run.w), act_.vector<P::kIn>()[0], size_of(P::kIn),
        [&](int a, int task, float sum, int) { act_.sums()[a * P::kTasks + task] = sum; });
  }
}

// The vector as which an output is kept: the one itself, or what its convolution makes of it.
template <class P>
constexpr int kept_as(int output) {
  const int vector = P::vector(output), convolution = kPlan.convolution_of[vector];
  return convolution >= 0 ? kNetwork.convolutions[convolution].out : vector;
}
// How many values the blocks push of all outputs of a product. The policy's answer goes to the host.
template <class P>
constexpr int Step::pushed_by_outputs() {
  int pushed = 0;
  for_each_number<0, P::kOutputs>([&](auto output) {
    constexpr int kVector = kept_as<P>(decltype(output)::value);
    if (kVector != kNetwork.outs) pushed += pushed_by<kVector>();
  });
  return pushed;
}

// A product of a vector on the board: this block's rows.
template <List kList, int kAt>
__device__ __forceinline__ void Step::product_of_rows(Run& run) {
  using P = BlockProduct<list_of(kList).phases[kAt].index>;
  sums_of_rows<kList, kAt>(run);
  if (!run.pushes) board_.await_open(), run.pushes = true;
  __syncthreads();
  if constexpr (P::kChannelRows > 0) channel_rows<kList, kAt>(run);
  for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
    constexpr int kOutput = decltype(output)::value, kVector = P::vector(kOutput);
    if constexpr (kVector == kNetwork.outs) {
      answer_rows<kList, kAt, kOutput>(run);
    } else if constexpr (!P::channels(kOutput)) {
      push_rows<kList, kAt, kOutput>(run);
    }
  });
  constexpr int kPushed = pushed_by_outputs<P>();
  if constexpr (kPushed > 0) {
    board_.exchange(kPushed);
    for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
      copy_pushed<kept_as<P>(decltype(output)::value)>();
    });
  } else if constexpr (P::kChannelRows > 0) {
    __syncthreads();
  }
}

// The products of layers [layer, end) that need nothing of the frame. The block alone: nothing is pushed. The
// states of the first one are under way.
__device__ __forceinline__ void Step::early_products(int layer, int end) {
  constexpr bool kAny = [] {
    bool any = false;
    for (int i = 0; i < kNetwork.layer.count; ++i) any = any || is_early(List::layer, i);
    return any;
  }();
  if constexpr (kAny) {
#pragma unroll 1
    for (; layer < least(end, kNetwork.layers); ++layer) {
      recall(layer);
      if (layer + 1 < kNetwork.layers) load_recalled(layer + 1);
      __syncthreads();  // before the first wait for weights, too
      Run run{section<List::layer>(layer), layer, -1, 0, true};
      for_each_number<0, kNetwork.layer.count>([&](auto at) __attribute__((always_inline)) {
        constexpr int kAt = decltype(at)::value;
        if constexpr (is_early(List::layer, kAt)) {
          using P = BlockProduct<kNetwork.layer.phases[kAt].index>;
          static_assert(kAt > 0 && P::kChannelRows == P::kRows, "cells alone read what it writes");
          sums_of_rows<List::layer, kAt>(run);
          __syncthreads();
          channel_rows<List::layer, kAt>(run);
          __syncthreads();
        }
      });
    }
  }
}

// The rows of outputs that are divided by channels: kept, or handed on to a convolution.
template <List kList, int kAt>
__device__ __forceinline__ void Step::channel_rows(const Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  constexpr int kItems = AGENTS * P::kChannelRows;
#pragma unroll
  for (int k = 0; k < divide_up(kItems, THREADS); ++k) {
    const int item = thread() + k * THREADS;
    if (item >= kItems) continue;
    const int agent = item / P::kChannelRows, place = item % P::kChannelRows;
    int row = place;  // among all of the product's
    for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
      constexpr int kOutput = decltype(output)::value;
      constexpr int kFirst = P::channel_first(kOutput), kSkipped = P::first(kOutput) - kFirst;
      if (kSkipped > 0 && P::channels(kOutput) && place >= kFirst) row = place + kSkipped;
    });
    const float value = block_row<P, kList, kAt>(run, agent, row);
    for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
      constexpr int kOutput = decltype(output)::value, kVector = P::vector(kOutput);
      constexpr int kFirst = P::channel_first(kOutput);
      if constexpr (P::channels(kOutput)) {
        if (place < kFirst || place >= kFirst + P::rows(kOutput)) return;
        if constexpr (is_early(kList, kAt)) {
          act_.recalled<kVector>(run.layer)[agent][place - kFirst] = activated<kIndex, kOutput>(value);
        } else if constexpr (kPlan.convolution_of[kVector] >= 0) {
          convolve_channel<kPlan.convolution_of[kVector]>(run, agent, place - kFirst, k, value);
        } else {
          keep<kVector>(agent, place - kFirst, activated<kIndex, kOutput>(value));
        }
      }
    });
  }
}

// So many threads add up the same row and share its pushes.
constexpr int push_sharers(int rows) {
  return least(TEAM, power_of_two_within(THREADS / (AGENTS * rows)));
}
// Many outputs begin at different threads, behind those that keep rows: warps push them beside each other.
template <class P>
constexpr int first_pusher(int output) {
  if (!kNetwork.has(Kind::angle)) return 0;
  int first = AGENTS * P::kChannelRows;
  for (int o = 0; o < output; ++o) {
    if (!P::channels(o)) first += AGENTS * P::rows(o) * push_sharers(P::rows(o));
  }
  return first % THREADS;
}

// Pushes this block's rows of a vector on the board to all blocks.
template <List kList, int kAt, int kOutput>
__device__ __forceinline__ void Step::push_rows(const Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  constexpr int kVector = P::vector(kOutput), kRows = P::rows(kOutput), kFirst = P::first(kOutput);
  constexpr int kSharers = push_sharers(kRows), kPusher = first_pusher<P>(kOutput);
  const int first = kPusher == 0 ? thread() : (thread() + THREADS - kPusher) % THREADS;
  for (int i = first; i < AGENTS * kRows * kSharers; i += THREADS) {
    const int sharer = i / (AGENTS * kRows), agent = i / kRows % AGENTS, row = i % kRows;
    const int place = rank_ * kRows + row;
    if (TEAM * kRows > size_of(kVector) && place >= size_of(kVector)) continue;
    float value = block_row<P, kList, kAt>(run, agent, kFirst + row);
    value = activated<kIndex, kOutput>(value);
    if constexpr (P::kProductOf.adds) value = __fadd_rn(value, act_.residual()[agent][row]);
    board_.push(&act_.vector<kVector>()[agent][place], value, sharer, kSharers);
  }
}

// This block's rows of the policy's answer.
template <List kList, int kAt, int kOutput>
__device__ __forceinline__ void Step::answer_rows(const Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  constexpr int kRows = P::rows(kOutput), kFirst = P::first(kOutput);
  for (int i = thread(); i < AGENTS * kRows; i += THREADS) {
    const int agent = i / kRows, row = i % kRows;
    const int answer = rank_ * kRows + row;
    if (TEAM * kRows > kAnswers && answer >= kAnswers) continue;
    if (run.first + agent >= answers_.count) continue;
    const float value = block_row<P, kList, kAt>(run, agent, kFirst + row);
    store(run.first + agent, answer, activated<kIndex, kOutput>(value));
  }
}

// So many neighbouring threads add up the same segment of one agent and share its pushes.
template <class P>
constexpr int depth_sharers() {
  return AGENTS > 1 ? 1 : least(least(TEAM, 32), power_of_two_within(THREADS / least(P::kTasks, THREADS)));
}

// A product of a vector that is divided by channels: each block has the segment sums of its channels, and
// every block adds them all up.
template <List kList, int kAt>
__device__ __forceinline__ void Step::product_of_depth(Run& run) {
  constexpr int kIndex = list_of(kList).phases[kAt].index;
  using P = BlockProduct<kIndex>;
  static_assert(!P::kNormed && !P::kProductOf.adds, "a norm needs all of a vector");
  constexpr PhaseWeights kWeights = weights_of<kList, kAt>();
  constexpr int kSegments = segments_of(P::kIn), kFirst = P::vector(0);
  constexpr int kSharers = depth_sharers<P>();
  segment_sums<P::kRows, P::kSegments, true, kSharers>(
      kWeights.matrix.in(run.w), act_.vector<P::kIn>()[0], P::kColumns,
      [&](int a, int task, float sum, int sharer) {
        const int segment = rank_ * P::kSegments + task / P::kRows;
        if (has_channel<P::kIn>(segment * kSegment)) {
          board_.push(&act_.product_parts<kIndex>()[a][segment][task % P::kRows], sum, sharer, kSharers);
        }
      });
  constexpr int kParts = AGENTS * kSegments * P::kRows;
  board_.exchange(kParts);
  board_.copy(&act_.product_parts<kIndex>()[0][0][0], kParts);
  for (int i = thread(); i < AGENTS * P::kRows; i += THREADS) {
    const int agent = i / P::kRows, row = i % P::kRows;
    const float sum = add_segments<kSegments>(&act_.product_parts<kIndex>()[agent][0][row], P::kRows);
    float value = row_value<P, kList, kAt>(sum, agent, run.w, row);
    for_each_number<0, P::kOutputs>([&](auto output) __attribute__((always_inline)) {
      constexpr int kOutput = decltype(output)::value;
      constexpr int kBegin = first_row(kNetwork, P::kProductOf, kOutput);
      if constexpr (P::kProductOf.out[kOutput].activation != Activation::none) {
        if (row >= kBegin && row < kBegin + size_of(P::vector(kOutput)))
          value = activated<kIndex, kOutput>(value);
      }
    });
    act_.vector<kFirst>()[agent][row] = value;
  }
  __syncthreads();
}

}  // namespace policy
}  // namespace exphil
