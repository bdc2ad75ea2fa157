// How a resident policy uses the device. The defaults were chosen on an H200 (bench/results);
// EXPHIL_NATIVE_POLICY, a list like "team=8,threads=256", overrides them for benchmarks and tests. Results do
// not depend on these values.
#pragma once

#include <cstdint>

#include "core/backend.hpp"

namespace exphil::cuda {

struct PolicyTuning {
  static constexpr int kMostBatches = 4;

  int team = 0;                    // blocks in a team; 0: chosen by size
  int threads = 0;                 // of a team's block, for one agent; 0: the default
  int batch_threads = 0;           // the same for several agents
  int batch_agents = 8;            // agents per team at a time
  int cluster = -1;                // 1, 0; -1: where the device has clusters
  int staged = -1;                 // weights staged in shared memory (policy::Staging); -1: what fits
  int inline_obs = 1;              // one agent's observation is passed as a kernel argument
  std::int64_t fused_limit = -1;   // most agents per call for policy_step; more go through the products
  std::int64_t some_blocks = 384;  // fewest blocks of product_some; fewer: product_few
  std::int64_t many_blocks = 264;  // fewest blocks of product_many; fewer: product_some
  std::int64_t wide_rows = 2560;   // fewest rows of policy_product_wide, where a product has it
  std::int64_t slice_rows = 4096;  // rows of a slice of the products
  int lanes = 4;                   // slices in flight
  // A batch of more agents goes through several lanes: a slice's frames are copied while the kernels of
  // others run.
  std::int64_t agents_together = 256;
  int graphs = 1;            // slices of batches of one size may be launched as graphs; 0: kernel by kernel
  int window_blocks = 128;   // most blocks of a window's kernel; 0: windows go through the row kernels
  int window_team = 8;       // blocks of a team of policy_window_team; 0: windows go through policy_window
  int window_threads = 512;  // of its blocks
  int window_rows = 0;       // frames of its teams at a time; 0: half as many as blocks, at least 4
  int window_rounds = 1;     // most times that a team takes frames; longer windows go through policy_window
  int window_rings = 1;      // frames of windows for the row kernels are kept on the device; 0: on the host
  int windows_together = 0;  // so many go through the row kernels together; 0: 3 of WindowKernel, else 2
  int window_ahead = 1;      // the state before a window's last frame is computed before that frame is there
  // Most rows of a batch whose cell and products are one launch; by warpgroups all but for 0.
  std::int64_t cell_batch = 1024;
  // Fewest rows of a batch of several slices of which what needs no frame is computed ahead.
  std::int64_t ahead_rows = 512;
  // A batch's frame is one launch where the network and the device have it, and it is faster; 2: also where
  // it is not; 0: a launch for each layer.
  int batch_frame = 1;
  int batches = 2;      // of at most 1,024 agents at the same time; each has streams and memory of its own
  int frames_late = 1;  // it is launched before its frames are there, and waits for them; 0: after they are
  // The frames of a list of sessions are computed while it is looked up, for the group that it probably is;
  // 2: also so few that one thread copies them; 0: after that.
  int guess = 1;
  // Fewest bytes of a batch's answers that the device writes itself where they are in pinned memory, as
  // results of this size are. To ask costs more than to copy fewer.
  std::int64_t pinned_answers = core::kSmallestPooledResult;
  int walk_team = -1;  // blocks of a cluster of policy_cell_walk; 0: a launch for each frame; -1: chosen
  std::int64_t wide_walk = 240;  // fewest sequences of policy_cell_walk_wide, in tf32x3; 0: none
  int pipeline = 1;  // layers that are walked may run side by side: blocks that share a cluster's rows of the
                     // product between two; 0: one layer after another
  int counts = 1;  // blocks of a cluster count the bytes that they receive, in steps and walks; 0: a barrier
  std::int64_t armed_microseconds = 1000;  // how long a launch before its frames waits for them on the GPU
  std::int64_t spin_microseconds = 2000;   // before a waiting thread sleeps
};

// Read from the environment at every load. Throws invalid_argument for an unknown key or an invalid value.
PolicyTuning policy_tuning();

}  // namespace exphil::cuda
