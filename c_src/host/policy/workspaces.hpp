// The workspaces of a policy's calls: the buffers of a pass, a pool of free ones, and holders that give them
// back. Used by policy.cpp. The pool is safe from any thread, a holder is one call's. Taking one throws
// std::bad_alloc where none is free and there is no memory.
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
  Workspace(const ForwardPlan& plan, int lanes);
  const MatrixRows* at() const { return at_.data(); }  // of each vector, its rows; frames are the caller's
  float* state;                                        // one agent's state
  Team team;

  struct Lane {
    MatrixRows* at;  // of each vector, as the lane's current block finds it
    float* own;      // ForwardPlan::own_floats
    float* scan;     // ForwardPlan::scan_floats
  };
  int lanes() const { return static_cast<int>(lanes_.size()); }
  void begin();      // before the lanes of a pass start
  Lane next_lane();  // called once by each lane

 private:
  AlignedBuffer arena_;
  std::vector<MatrixRows> at_;
  std::vector<std::vector<MatrixRows>> lane_rows_;
  std::vector<Lane> lanes_;
  std::atomic<unsigned> taken_{0};
};

// Free workspaces. One is created with the policy, more where calls overlap, and none is freed before the
// policy: after warm-up a call takes a mutex and allocates nothing.
class WorkspacePool {
 public:
  WorkspacePool(const ForwardPlan& plan, int lanes) : plan_(plan), lanes_(lanes) { give(take()); }

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

 private:
  const ForwardPlan& plan_;
  const int lanes_;
  std::mutex mutex_;
  std::size_t made_ = 0;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

// Holds a workspace for the duration of one piece of work.
class Borrowed {
 public:
  explicit Borrowed(WorkspacePool& pool) : pool_(pool), workspace_(pool.take()) {}
  ~Borrowed() { pool_.give(std::move(workspace_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Workspace& operator*() { return *workspace_; }

 private:
  WorkspacePool& pool_;
  std::unique_ptr<Workspace> workspace_;
};

// Workspaces for a call on several threads, all taken before the first state changes.
class BorrowedForThreads {
 public:
  BorrowedForThreads(WorkspacePool& pool, int threads) : pool_(pool) {
    workspaces_.reserve(static_cast<std::size_t>(threads));
    try {
      for (int i = 0; i < threads; ++i) workspaces_.push_back(pool_.take());
    } catch (...) {
      give_all();
      throw;
    }
  }
  ~BorrowedForThreads() { give_all(); }
  BorrowedForThreads(const BorrowedForThreads&) = delete;
  BorrowedForThreads& operator=(const BorrowedForThreads&) = delete;

  // Called once by each thread; a thread that does all remaining work calls again after the others ended.
  Workspace& next() {
    return *workspaces_[taken_.fetch_add(1, std::memory_order_relaxed) % workspaces_.size()];
  }

 private:
  void give_all() {
    for (auto& workspace : workspaces_) pool_.give(std::move(workspace));
  }

  WorkspacePool& pool_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  std::atomic<unsigned> taken_{0};
};

}  // namespace exphil::host
