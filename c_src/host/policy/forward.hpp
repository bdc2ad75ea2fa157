// The forward pass of a resident policy over rows of frames. step, step of many, prefill and window all use
// this code, so that they give the same bits.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "host/policy/weights.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/shared_pass.hpp"
#include "host/simd/team.hpp"

namespace exphil::host {

// One agent's state: for each layer the scan's panels {blocks, d_state, kPanel}, then the last inputs of the
// convolution {d_conv - 1, padded(d_inner)}, oldest first.
struct StateLayout {
  std::int64_t ssm = 0, conv = 0, layers = 0;  // floats for each layer; layers
  explicit StateLayout(const core::PolicyConfig& config);
  std::int64_t floats() const { return layers * (ssm + conv); }
  float* ssm_of(float* state, std::int64_t layer) const { return state + layer * (ssm + conv); }
  float* conv_of(float* state, std::int64_t layer) const { return ssm_of(state, layer) + ssm; }
};

// Rows of one pass: enough to reuse every weight from L1, few enough that the activations stay
// in L2.
inline constexpr std::int64_t kPassRows = 64;

// Up to this many rows each lane normalises for itself, which takes less time than a barrier.
inline constexpr std::int64_t kFewRows = 4;

// Buffers of one pass: kPassRows rows of every activation, one state, the team's counters, and scratch for
// each lane, so that a pass allocates nothing. Used by one call at a time.
class Workspace {
 public:
  Workspace(const PackedWeights& weights, int lanes);
  float *hidden, *norm;      // {kPassRows, padded(d_model)}
  float *x, *conv, *z, *dt;  // {kPassRows, padded(d_inner)}
  float* projected;          // {kPassRows, padded(dt_rank + 2 d_state)}
  float* head_hidden;        // {kPassRows, padded(hidden values of all two-layer heads)}
  float* head;               // {kPassRows, padded(d_output)}
  float* state;              // one agent's state
  Team team;

  struct Lane {
    float* norm;  // {kFewRows, padded(d_model)}
    float* scan;  // scan_scratch_floats
  };
  int lanes() const { return static_cast<int>(lanes_.size()); }
  void begin();      // before the lanes of a pass start
  Lane next_lane();  // called once by each lane

 private:
  AlignedBuffer arena_;
  std::vector<Lane> lanes_;
  std::atomic<unsigned> taken_{0};
};

// Rows of a ring: the input projection of each frame, and the halves of the first layer's in_proj.
struct FrontRows {
  float *hidden = nullptr, *x = nullptr, *z = nullptr;  // row strides padded(d_model), padded(d_inner) twice
};

// Frames that a pass puts into a ring before anything else.
struct FreshFrames {
  std::int64_t count = 0;      // at most kPassRows
  const float* obs = nullptr;  // {count, d_input}
  FrontRows to;
  std::int64_t twin = 0;  // each row is also written this many rows on
};

// `agents` sequences of `frames` rows each (agents times frames at most kPassRows), agent after agent.
struct Pass {
  float* const* states = nullptr;  // {agents}, advanced by `frames`
  // {agents}: where each state is read, if it is not advanced in place. Only for passes of one frame.
  float* const* from = nullptr;
  std::int64_t agents = 0, frames = 0;
  const float* obs = nullptr;  // {agents, frames, d_input}; unused where there is a front
  FrontRows front;             // of one agent: its rows of a ring
  FreshFrames fresh;
  // {agents, frames - first_output, d_output}: outputs of the first rows may be skipped.
  float* out = nullptr;
  std::int64_t first_output = 0;
  bool decays_input = false;  // core::PolicySpec::decays_input of the sequence
  int lanes = 1;              // at most this many threads run the pass; no more than the workspace has
  int side = 0;               // of the calling thread (host/simd/team.hpp)
  // Null, or where a thread waits that takes part as the only other lane.
  SharedPass* shared = nullptr;
};

// Cannot fail: all memory is in the workspace.
void forward(const PackedWeights& weights, const Pass& pass, Workspace& work) noexcept;

}  // namespace exphil::host
