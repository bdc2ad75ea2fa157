#include "core/session/group_locks.hpp"

#include <algorithm>
#include <functional>

#include "core/error.hpp"
#include "core/session/session.hpp"

namespace exphil::core {

std::vector<Session*> GroupLocks::in_address_order(std::vector<Session*> sessions) {
  std::sort(sessions.begin(), sessions.end(), std::less<Session*>());
  if (std::adjacent_find(sessions.begin(), sessions.end()) != sessions.end()) {
    fail(ErrorKind::invalid_argument, "sessions", "sessions must be distinct; a session appears twice");
  }
  return sessions;
}

GroupLocks::GroupLocks(const std::vector<Session*>& sessions, const std::vector<Session*>& ordered,
                       GroupClaiming& claiming)
    : sessions_(sessions),
      claiming_(claiming),
      claimed_(claiming.claim ? claiming.claim->enter() : std::unique_lock<std::mutex>()) {
  if (claimed_ || try_lock()) return;
  ordered.empty() ? lock(in_address_order(sessions_)) : lock(ordered);
}

GroupLocks::~GroupLocks() {
  if (claimed_) return;
  if (claiming_.claim) claim();
  unlock(sessions_, sessions_.size());
}

// Rarely where others use the sessions again and again: each of them ends the claim.
void GroupLocks::claim() noexcept {
  constexpr int kMostPatience = 64;
  if (claiming_.complete) {
    claiming_.complete = false, claiming_.calls = 0;
    claiming_.patience = std::min(2 * claiming_.patience, kMostPatience);
  }
  if (++claiming_.calls < claiming_.patience) return;
  for (Session* session : sessions_) session->mutex_.claim(claiming_.claim);
  claiming_.claim->complete();
  claiming_.complete = true;
}

bool GroupLocks::try_lock() {
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    if (i + kAhead < sessions_.size()) __builtin_prefetch(&sessions_[i + kAhead]->mutex_, 1);
    if (sessions_[i]->mutex_.try_lock()) continue;
    unlock(sessions_, i);
    return false;
  }
  return true;
}

void GroupLocks::lock(const std::vector<Session*>& ordered) {
  std::size_t locked = 0;
  try {
    for (; locked < ordered.size(); ++locked) ordered[locked]->mutex_.lock();
  } catch (...) {
    unlock(ordered, locked);
    throw;
  }
}

void GroupLocks::unlock(const std::vector<Session*>& sessions, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) __builtin_prefetch(&sessions[i + kAhead]->mutex_, 1);
    sessions[i]->mutex_.unlock();
  }
}

}  // namespace exphil::core
