// The forward pass of a resident policy over rows of frames. step, step of many, prefill and window all use
// this code, so that they give the same bits.
#pragma once

#include <cstdint>

#include "host/policy/phases.hpp"
#include "host/policy/plan.hpp"
#include "host/policy/weights.hpp"
#include "host/policy/workspaces.hpp"
#include "host/simd/shared_pass.hpp"

namespace exphil::host {

// Rows of a ring from one slot on: an array for each vector of ForwardPlan::kept, with its row step.
struct RingRows {
  float* const* arrays = nullptr;  // null: no ring
  std::int64_t slot = 0;
};

// Frames that a pass puts into a ring before anything else.
struct FreshFrames {
  std::int64_t count = 0;      // at most kPassRows
  const float* obs = nullptr;  // {count, d_input}
  RingRows to;
  std::int64_t twin = 0;  // each row is also written this many rows on
};

// agents times frames is at most kPassRows.
struct Pass : PassRows {
  const float* obs = nullptr;  // {agents, frames, d_input}; unused where there is a front
  RingRows front;              // of one agent: its rows of a ring
  FreshFrames fresh;
  // {agents, frames - first_output, d_output}: with one agent, outputs of the first rows may be skipped.
  float* out = nullptr;
  std::int64_t first_output = 0;
  int lanes = 1;  // at most this many threads run the pass; no more than the workspace has
  int side = 0;   // of the calling thread (host/simd/team.hpp)
  // Null, or where a thread waits that takes part as the only other lane.
  SharedPass* shared = nullptr;
};

// Cannot fail: all memory is in the workspace.
void forward(const PackedWeights& weights, const ForwardPlan& plan, const Pass& pass,
             Workspace& work) noexcept;

}  // namespace exphil::host
