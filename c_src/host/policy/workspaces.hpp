// The workspaces of a policy's calls: the buffers of a pass, and a pool of free ones. Used by policy.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "host/policy/plan.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/matmul.hpp"
#include "host/simd/team.hpp"

namespace exphil::host {

// Buffers of one pass: kPassRows rows of every vector, one state, the team's counters, and scratch for each
// lane, so that a pass allocates nothing. Used by one call at a time.
class Workspace {
 public:
  struct Lane {
    std::vector<MatrixRows> at;  // of each vector, as the lane's current block finds it
    bool moved = false;          // whether one of them is elsewhere than in the workspace
    float* own = nullptr;        // ForwardPlan::own_floats
    float* scan = nullptr;       // ForwardPlan::scan_floats
  };

  Workspace(const ForwardPlan& plan, int lane_count);
  void begin(std::int64_t regions);  // before several lanes start a pass with at most so many
  Lane& next_lane();                 // called once by each of them

  std::vector<MatrixRows> at;  // of each vector, its rows; frames are the caller's
  float* state = nullptr;      // one agent's state
  Team team;
  std::vector<Lane> lanes;

 private:
  AlignedBuffer arena_;
  std::atomic<unsigned> taken_{0};
};

// Free workspaces. One is created with the policy, more where calls overlap, and none is freed before the
// policy: after warm-up a call takes a mutex and allocates nothing. Safe from any thread.
class WorkspacePool {
 public:
  struct GiveBack {
    WorkspacePool* pool;
    void operator()(Workspace* workspace) const { pool->give(std::unique_ptr<Workspace>(workspace)); }
  };
  // Held by one call, or by one of its threads.
  using Borrowed = std::unique_ptr<Workspace, GiveBack>;

  WorkspacePool(const ForwardPlan& plan, int lanes) : plan_(plan), lanes_(lanes) { borrow(); }

  // Throws std::bad_alloc where none is free and there is no memory.
  Borrowed borrow() { return Borrowed(take().release(), GiveBack{this}); }

 private:
  std::unique_ptr<Workspace> take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Workspace> taken = std::move(idle_.back());
        idle_.pop_back();
        return taken;
      }
      idle_.reserve(++made_);  // give() must not allocate, nor throw
    }
    // Without the lock: a step must not wait for a large call's memory.
    return std::make_unique<Workspace>(plan_, lanes_);
  }

  void give(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

  const ForwardPlan& plan_;
  const int lanes_;
  std::mutex mutex_;
  std::size_t made_ = 0;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace exphil::host
