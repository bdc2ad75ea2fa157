// The last outputs of windows of one agent, in one launch, by teams of blocks: what policy/window.cu does,
// with the same bits and fewer barriers of the grid. A team takes a few frames from the observation (or from
// the output of the layer before) up to what the scans read. For that it computes again what convolutions
// read of the frames before them. So the teams exchange values only before and after the scans, which need
// all frames of a channel. Within a team (a cluster) blocks share the columns of each product, and write to
// each other's shared memory. Launched by c_src/cuda/policy/window.cpp, cooperatively.
//
// Compiled with the network and TEAM (blocks in a team, a power of two), THREADS, ROWS (frames of a team at a
// time), CLUSTER (0 for teams of one block only).
#include "kernels/policy/window_team_input.cuh"
#include "kernels/policy/window_team_rows.cuh"

namespace exphil {
namespace policy {

// Sums over segments of this block's columns of the leading product's outputs, with the late ones or without.
template <bool kLate>
__device__ __forceinline__ void TeamWindow::leading_sums() {
  using Own = OwnOf<kLead>;
  constexpr int kFrames = lead_frames(kLeadOutputs, kLate);
  const auto* const weights = reinterpret_cast<const Group*>(kPart.weights.phases[0].matrix.in(staged_));
  const float* const h = own<kNetwork.hidden>();
  float* const parts = kPart.lead_parts.in(act_);
  for (int task = thread_; task < kLeadTasks; task += THREADS) {
    const int segment = task / kLeadOwn, c = task % kLeadOwn;
    float sums[kFrames] = {};
#pragma unroll
    for (int j = 0; j < kSegment / 4; ++j) {
      const Group* const w = weights + (segment * (kSegment / 4) + j) * Own::kColumns;
      float4 row[kLeadOutputs];
      for_each_number<0, kLeadOutputs>([&](auto out) {
        constexpr int kOut = decltype(out)::value, kOwn = own_of(Own::vector(kOut));
        if constexpr (!kLate && lead_late(kOut)) return;
        row[kOut] = widen(w[Own::first(kOut) + (kOwn == kLeadOwn ? c : least(c, kOwn - 1))]);
      });
#pragma unroll
      for (int i = 0; i < kAll; ++i) {
        const float4 value =
            *reinterpret_cast<const float4*>(h + i * kHiddenSize + segment * kSegment + 4 * j);
        for_each_number<0, kLeadOutputs>([&](auto out) {
          constexpr int kOut = decltype(out)::value, kSkips = lead_skips(kOut);
          if constexpr (!kLate && lead_late(kOut)) return;
          constexpr int kFirst = lead_frames(kOut) - kSkips;
          if (i >= kSkips) sums[kFirst + i] = dot4(row[kOut], value, sums[kFirst + i]);
        });
      }
    }
#pragma unroll
    for (int i = 0; i < kFrames; ++i) parts[i * kLeadTasks + task] = sums[i];
  }
}

// The leading product: what convolutions read in shared memory, of all frames. Of the last layer, late
// outputs are needed for the last frame only; of the first one a session keeps them.
__device__ __forceinline__ void TeamWindow::leading(const Frames& f) {
  const bool late = f.layer == 0 || f.layer + 1 < kLayerCount || f.begin + kRows >= args_.seq;
  norms<kLead>(kAll);
  if (late) {
    leading_sums<true>();
  } else {
    leading_sums<false>();
  }
  __syncthreads();
  for_each_number<0, kLeadOutputs>([&](auto out) {
    if (late || !lead_late(decltype(out)::value)) leading_values<decltype(out)::value>(f);
  });
}

// This block's channels of an output of the leading product.
template <int kOut>
__device__ __forceinline__ void TeamWindow::leading_values(const Frames& f) {
  using Own = OwnOf<kLead>;
  constexpr int kVector = Own::vector(kOut), kOwn = own_of(kVector), kSkips = lead_skips(kOut);
  constexpr int kFirst = Own::first(kOut), kColumn = first_row(kNetwork, Own::kP, kOut);
  constexpr RowVectors kEnds = kPart.weights.phases[0].rows;
  for (int i = thread_; i < (kAll - kSkips) * kOwn; i += THREADS) {
    const int local = i / kOwn + kSkips, c = i % kOwn, channel = rank_ * kOwn + c;
    if (!has_channel<kVector>(channel) || local < f.fresh) continue;
    const float* const part = kPart.lead_parts.in(act_) + (lead_frames(kOut) + i / kOwn) * kLeadTasks + c;
    const NormFactors norm{kPart.norm_scale.in(act_)[local], kPart.norm_mean.in(act_)[local]};
    const float value = activated<kLead, kOut>(
        value_of<kLead>(add_segments<kLeadSegments>(part, kLeadOwn), kEnds.scale.in(staged_),
                        kEnds.sums.in(staged_), kFirst + c, kEnds.bias.in(staged_)[kFirst + c], norm));
    if constexpr (kWindow.vectors[kVector].convolved) own<kVector>()[local * kOwn + c] = value;
    keep_leading<kWindow.vectors[kVector].kept()>(f, local, kColumn + channel, value);
  }
}

// Where a scan, or a later frame of a session, reads the leading product's outputs.
template <bool kKept>
__device__ __forceinline__ void TeamWindow::keep_leading(const Frames& f, int local, int column,
                                                         float value) {
  if (f.layer == 0) {
    if ((!kKept && args_.slots == 0) || !keeps(f, local)) return;
    put(args_.front_lead, kLeadWidth, fresh_row(f, local), column, value);
  } else if (kKept && exists(f, local)) {
    memory<kLeadVector>(row(f, local))[column] = value;
  }
}

// What convolutions read of the frames that are in the front.
__device__ __forceinline__ void TeamWindow::load_leading(const Frames& f) {
  for_each_number<0, kLeadOutputs>([&](auto out) {
    constexpr int kVector = OwnOf<kLead>::vector(decltype(out)::value), kOwn = own_of(kVector);
    if constexpr (kWindow.vectors[kVector].convolved) {
      for (int i = thread_; i < f.fresh * kOwn; i += THREADS) {
        const int local = i / kOwn, channel = rank_ * kOwn + i % kOwn;
        if (!has_channel<kVector>(channel) || !exists(f, local)) continue;
        own<kVector>()[i] = vector_row<kVector>(0, f.window, f.step(local))[channel];
      }
    }
  });
}

__device__ __forceinline__ void TeamWindow::first_layer() {
  const InputColumns columns(args_.weights[0].weights, rank_, thread_);
  for (int group = team_; group < groups(); group += teams_) {
    const Frames f = frames(0, group);
    float4 obs[kObsEach];
    read_obs(f, obs);
    if (group == team_) stage(0);
    share_obs(obs);
    if (f.fresh < kAll) input(f, columns);
    if (group == team_) await_staged();
    if (f.fresh < kAll) leading(f);
    load_leading(f);
    row_phases(f);
  }
}

__device__ __forceinline__ void TeamWindow::later_layer(int layer, const ClosingColumns& columns) {
  for (int group = team_; group < groups(); group += teams_) {
    const Frames f = frames(layer, group);
    closing(f, columns);
    if (group == team_) await_staged();
    leading(f);
    row_phases(f);
  }
}

// The last layer's output of a window's last frame, and the output block.
__device__ __forceinline__ void TeamWindow::answer(int window, const ClosingColumns& columns,
                                                   const LastColumns& last) {
  float* const y = own<kClosed>();
  for (int i = thread_; i < kClosedSize; i += THREADS) y[i] = memory<kClosed>(window)[i];
  __syncthreads();
  hidden_rows<1>(
      columns, weights<kLastPhase>(kLayerCount - 1), y,
      [&](int, int column) { return layer_hidden(kLayerCount - 1, window, args_.seq - 1)[column]; },
      [](int, int, float) {});
  for_each_number<0, kOutputPhases>([&](auto at) {
    constexpr int kAt = decltype(at)::value, kProduct = kNetwork.output.phases[kAt].index;
    if constexpr (kAt + 1 == kOutputPhases) {
      output<kAt>(window, last);
    } else {
      output<kAt>(window, OwnColumns<kProduct>(output_weights<kAt>().weights, rank_, thread_));
    }
  });
}

// A product of the output block: the answer, or a vector for all blocks of the team.
template <int kAt>
__device__ __forceinline__ void TeamWindow::output(
    int window, const OwnColumns<kNetwork.output.phases[kAt].index>& columns) {
  constexpr int kProduct = kNetwork.output.phases[kAt].index;
  constexpr int kIn = kNetwork.products[kProduct].in, kOut = kNetwork.products[kProduct].out[0].vector;
  using Columns = OwnColumns<kProduct>;
  float* const parts = kPart.parts.in(act_);
  const ProductMatrix& matrix = output_weights<kAt>();
  norms<kProduct>(1);
  columns.template sum_segments<1>(own<kIn>(), parts);
  __syncthreads();
  for (int i = thread_; i < Columns::kColumns; i += THREADS) {
    const int column = rank_ * Columns::kColumns + i;
    if (column >= Columns::kOutputs) continue;
    const float sum = add_segments<Columns::kSegs>(parts + i, Columns::kColumns);
    const NormFactors norm{kPart.norm_scale.in(act_)[0], kPart.norm_mean.in(act_)[0]};
    const float value = activated<kProduct, 0>(value_of<kProduct>(sum, matrix.row_scale, matrix.row_sums,
                                                                  column, __ldg(matrix.bias + column), norm));
    if constexpr (kOut == kNetwork.outs) {
      store(window, column, value);
    } else {
      push_to_all(own<kOut>() + column, value);
    }
  }
  if constexpr (kOut != kNetwork.outs) team_sync();
}

// After the last scans, when the barrier that began at `before` is over.
__device__ __forceinline__ void TeamWindow::answers(const ClosingColumns& columns, unsigned before) {
  const LastColumns last(output_weights<kOutputPhases - 1>().weights, rank_, thread_);
  wait_at_barrier(args_.barrier, before);
  for (int window = team_; window < args_.count; window += teams_) {
    answer(window, columns, last);
    team_sync();  // of which the last one's memory is no longer read
  }
}

__device__ __forceinline__ void TeamWindow::run() {
  first_layer();
#pragma unroll 1
  for (int l = 0;; ++l) {
    const bool is_last = l + 1 == kLayerCount;
    // Otherwise the compiler keeps the addresses of all layers in local memory.
    thread_ = launder(thread_), rank_ = launder(rank_);
    unsigned before = arrive_at_barrier(args_.barrier);
    if (!is_last) stage(l + 1);  // arrives during the scans
    wait_at_barrier(args_.barrier, before);
    advance_time(l, act_);
    before = arrive_at_barrier(args_.barrier);
    if (is_last && team_ >= args_.count) return;
    const ClosingColumns columns(weights<kLastPhase>(l).weights, rank_, thread_);
    if (is_last) return answers(columns, before);
    wait_at_barrier(args_.barrier, before);
    later_layer(l + 1, columns);
  }
}

}  // namespace policy
}  // namespace exphil

// grid: teams * TEAM blocks; dynamic shared memory: kPart.
extern "C" __global__ void TEAM_SHAPE __launch_bounds__(THREADS, 1)
    policy_window_team(const __grid_constant__ exphil::policy::WindowArguments args,
                       const __grid_constant__ exphil::policy::InlineFrame frame) {
  using namespace exphil::policy;
  TeamWindow(args, frame, reinterpret_cast<char*>(dynamic_shared())).run();
}
