#include "core/session/repeated_lists.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/work/reaper.hpp"

namespace exphil::core {

namespace {

// Null where the sessions make no group, of which the call itself tells; and where there is no memory for
// what the policy would keep, without which the call goes on.
std::shared_ptr<SessionGroup> kept_group(const std::vector<Session*>& sessions) {
  try {
    auto group = std::make_shared<SessionGroup>(sessions);
    group->keep();
    return group;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

RepeatedLists::Entry& RepeatedLists::entry_of(const Numbers& numbers) {
  Entry* const found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.numbers == numbers; });
  if (found != entries_.end()) return *found;
  Entry& oldest = *std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::make_pair(a.group != nullptr, a.used) < std::make_pair(b.group != nullptr, b.used);
  });
  // The policy may still write what it keeps of the group, for which its end waits.
  if (oldest.group) reap(std::move(oldest.group));
  oldest = Entry{numbers, 0, 0, nullptr};
  return oldest;
}

std::shared_ptr<SessionGroup> RepeatedLists::find(const Numbers& numbers,
                                                  const std::vector<Session*>& sessions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entry_of(numbers);
  entry.used = ++uses_;
  if (!entry.group && ++entry.calls > kCallsBefore) {
    entry.calls = 0;
    entry.group = kept_group(sessions);
  }
  return entry.group;
}

}  // namespace exphil::core
