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
  oldest = Entry{};
  oldest.numbers = numbers;
  return oldest;
}

std::shared_ptr<SessionGroup> RepeatedLists::guess(std::uint64_t first_number, std::size_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Entry* likely = nullptr;
  for (const Entry& entry : entries_) {
    if (!entry.group || entry.distrust > 0 || entry.numbers.size() != count ||
        entry.numbers[0] != first_number)
      continue;
    if (likely == nullptr || entry.used > likely->used) likely = &entry;
  }
  return likely != nullptr ? likely->group : nullptr;
}

std::shared_ptr<SessionGroup> RepeatedLists::find(const Numbers& numbers,
                                                  const std::vector<Session*>& sessions,
                                                  const SessionGroup* guess) {
  constexpr int kMostDistrust = 256;
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entry_of(numbers);
  entry.used = ++uses_;
  if (!entry.group && ++entry.calls > kCallsBefore) {
    entry.calls = 0;
    entry.group = kept_group(sessions);
  }
  entry.distrust = std::max(0, entry.distrust - 1);
  for (Entry& other : entries_) {
    if (guess == nullptr || other.group.get() != guess || &other == &entry) continue;
    other.distrust = other.next_distrust;
    other.next_distrust = std::min(2 * other.next_distrust, kMostDistrust);
  }
  return entry.group;
}

}  // namespace exphil::core
