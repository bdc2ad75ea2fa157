// The locks of all sessions of a group, for a call. Used by core/session/session_group.cpp.
//
// To order thousands of sessions takes longer than to lock them, and addresses in order are memory without
// one. So they are locked in that order only where one of them is in use, or is there twice: nothing waits
// while it holds locks that were taken in another order, and calls that wait take them all in one order, so
// that they cannot deadlock. A kept group whose sessions nobody else uses claims them all, and then locks the
// claim.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "core/session/session_mutex.hpp"

namespace exphil::core {

class Session;

// Of a kept group: its claim to the sessions; of another one null. The numbers are used with all locks.
struct GroupClaiming {
  std::shared_ptr<GroupClaim> claim;
  bool complete = false;  // until somebody ends it
  int calls = 0;          // without it since then
  int patience = 2;       // so many, before it is made again
};

class GroupLocks {
 public:
  // A group asks for the memory of so many sessions ahead: of thousands no cache has it, and a session takes
  // less time than its memory needs.
  static constexpr std::size_t kAhead = 16;

  // Throws invalid_argument where a session appears twice.
  static std::vector<Session*> in_address_order(std::vector<Session*> sessions);

  // ordered: in_address_order() of them, or empty where it is not known. Throws as that does. All arguments
  // outlive the locks.
  GroupLocks(const std::vector<Session*>& sessions, const std::vector<Session*>& ordered,
             GroupClaiming& claiming);
  ~GroupLocks();
  GroupLocks(const GroupLocks&) = delete;
  GroupLocks& operator=(const GroupLocks&) = delete;

 private:
  void claim() noexcept;
  bool try_lock();
  static void lock(const std::vector<Session*>& ordered);
  static void unlock(const std::vector<Session*>& sessions, std::size_t count) noexcept;

  const std::vector<Session*>& sessions_;
  GroupClaiming& claiming_;
  const std::unique_lock<std::mutex> claimed_;
};

}  // namespace exphil::core
