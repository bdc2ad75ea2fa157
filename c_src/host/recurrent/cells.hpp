// The cells of the fused recurrent operators over rows of channels, compiled for each SIMD target. Elements
// are f32, f16 or bf16 in tensors, and f32 in between. Used by host/recurrent. Any thread.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"
#include "host/simd/simd.hpp"
#include "kernels/common/cells.cuh"

namespace exphil::host {

// Channels of one sweep at most: its rows stay in L1.
inline constexpr std::int64_t kSweepColumns = 128;

// Neighbouring channels of one sequence under a cell that is linear in its state. Addresses are those of the
// channels at the first step; the next step is `stride` elements behind. Null where there is none.
struct LinearSweep {
  formulas::Cell cell = formulas::Cell::min_gru;
  core::Dtype dtype = core::Dtype::f32;
  std::int64_t steps = 0, columns = 0, stride = 0;
  const void* x[3] = {};
  const void* h0 = nullptr;
  void *h = nullptr, *final_h = nullptr;
};
void sweep_linear(const LinearSweep& sweep);

// Its gradient, from the last step to the first. before: {steps, padded(columns)}, the state before each
// step.
struct LinearSweepBack {
  LinearSweep of;
  const float* before = nullptr;
  const void *dh = nullptr, *d_final = nullptr;
  void* d_x[3] = {};
  void* d_h0 = nullptr;
};
// The states before the steps: from the results of the operator where they are f32, else walked again.
void states_before(const LinearSweep& sweep, const float* h, float* before);
void sweep_linear_back(const LinearSweepBack& sweep);

// One step of a GRU or an LSTM for all units of one sequence. x: the row of wx, gates of `hidden` units one
// behind another. sums: those of the state, each gate padded(hidden) floats. states: padded(hidden) floats
// each, before the step; receive those after it.
struct DenseStep {
  formulas::Cell cell = formulas::Cell::gru;
  core::Dtype dtype = core::Dtype::f32;
  std::int64_t hidden = 0;
  const void* x = nullptr;
  const float* sums = nullptr;
  float* states[2] = {};
  void* h = nullptr;
};
void dense_step(const DenseStep& step);

// before: the states before the step. d_states: the gradient of those after it, to which that of the
// output, dh, is added; receives that of those before it, without what passes through the sums. d_sums
// receives the gradient of the sums, in their layout, and may be `sums`; d_x, d_rh receive rows of wx.
struct DenseStepBack {
  formulas::Cell cell = formulas::Cell::gru;
  core::Dtype dtype = core::Dtype::f32;
  std::int64_t hidden = 0;
  const void *x = nullptr, *dh = nullptr;
  const float *sums = nullptr, *before[2] = {};
  float *d_states[2] = {}, *d_sums = nullptr;
  void *d_x = nullptr, *d_rh = nullptr;
};
void dense_step_back(const DenseStepBack& step);

}  // namespace exphil::host
