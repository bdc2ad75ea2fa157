// Lists of sessions that are stepped again and again, each kept as a group (session_group.hpp): to look up
// and lock a thousand sessions one by one takes longer than their frames take on a GPU, and a group's policy
// may keep something from one frame to the next. A group is given up when one of its sessions ends. Of one
// model; used by nif/group.cpp. Safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/session/session.hpp"
#include "core/session/session_group.hpp"

namespace exphil::core {

class RepeatedLists {
 public:
  // A number of each session, in the order of the list. No other session ever has it, also when this one has
  // ended: so a list with the same numbers has the same sessions, and a group whose sessions have ended is
  // never found again.
  using Numbers = std::vector<std::uint64_t>;

  RepeatedLists() : lists_(std::make_shared<Lists>()) {}

  // The group that a list of so many sessions is probably, which begins with that one; null where no group is
  // likely. Its sessions may have ended.
  std::shared_ptr<SessionGroup> guess(std::uint64_t first_number, std::size_t count);

  // The group of a list that several calls had before; null for any other. The sessions outlive the use of
  // it. guess: what was taken to be its group, if anything. Throws std::bad_alloc.
  std::shared_ptr<SessionGroup> find(const Numbers& numbers, const std::vector<Session*>& sessions,
                                     const SessionGroup* guess = nullptr);

 private:
  struct Entry {
    Numbers numbers;
    int calls = 0;
    std::uint64_t used = 0;  // the later, the higher
    std::shared_ptr<SessionGroup> group;
    // After a wrong guess it is none until so many calls were its own; the next time twice as many.
    int distrust = 0, next_distrust = 4;
  };

  // Sessions know it, and may end later than it.
  struct Lists final : SessionWatcher {
    void ended(const Session& session) noexcept override;
    // These under the mutex. Of the list; else the one that is given up for it: the one used longest ago,
    // first of those without a group.
    Entry& entry_of(const Numbers& numbers);

    std::mutex mutex;
    std::array<Entry, 32> entries;  // of as many processes, with a list each
    std::uint64_t uses = 0;
  };

  std::shared_ptr<SessionGroup> add_group(const Numbers& numbers, const std::vector<Session*>& sessions);

  const std::shared_ptr<Lists> lists_;
};

}  // namespace exphil::core
