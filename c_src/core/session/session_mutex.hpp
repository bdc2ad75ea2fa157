// A session's mutex, and a claim of a group to many of them at once. A group that goes on call after call has
// one mutex for all of its sessions then: of a thousand sessions, locking and unlocking each takes 20 us of a
// call. Whoever locks a session by itself waits for the group's call and ends the claim, so that the group
// locks each session again.
//
// Used by core/session/session.hpp and session_group.cpp. A thread that has a session's mutex may wait for a
// claim's, and never the other way round, so that they cannot deadlock. Safe from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "core/work/handover_mutex.hpp"

namespace exphil::core {

class GroupClaim {
 public:
  // A lock with which the group has all of its sessions; none where it has not.
  std::unique_lock<std::mutex> enter() { return if_whole(std::unique_lock<std::mutex>(mutex_)); }
  // The same, without waiting for another call of the group.
  std::unique_lock<std::mutex> try_enter() {
    return if_whole(std::unique_lock<std::mutex>(mutex_, std::try_to_lock));
  }

  // By who has locked all of the sessions, and has claimed each.
  void complete() {
    const std::lock_guard<std::mutex> lock(mutex_);
    whole_ = true;
  }

 private:
  friend class SessionMutex;

  std::unique_lock<std::mutex> if_whole(std::unique_lock<std::mutex> lock) const {
    if (lock && !whole_) lock.unlock();
    return lock;
  }

  std::mutex mutex_;
  bool whole_ = false;  // under mutex_: no session was locked by itself since complete()
};

class SessionMutex {
 public:
  void lock() {
    mutex_.lock();
    end_claim();
  }

  // False also where a group's call has the session.
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    if (!claim_) return true;
    std::unique_lock<std::mutex> group(claim_->mutex_, std::try_to_lock);
    if (!group) return mutex_.unlock(), false;
    end(std::move(group));
    return true;
  }

  void unlock() noexcept { mutex_.unlock(); }
  void hand_over(std::shared_ptr<HandoverMutex::Task> task) noexcept { mutex_.hand_over(std::move(task)); }

  // When the session ends, which waits for the group's call: so who has entered a claim may use its sessions.
  void end_claim() noexcept {
    if (claim_) end(std::unique_lock<std::mutex>(claim_->mutex_));
  }

  // By the holder: a group may use the session without it from when the claim is complete and this unlocked.
  void claim(std::shared_ptr<GroupClaim> claim) noexcept { claim_ = std::move(claim); }

 private:
  void end(std::unique_lock<std::mutex> group) noexcept {
    claim_->whole_ = false;
    group.unlock();
    claim_.reset();
  }

  HandoverMutex mutex_;
  std::shared_ptr<GroupClaim> claim_;  // under mutex_
};

}  // namespace exphil::core
