#include "core/session/repeated_lists.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/work/reaper.hpp"

namespace exphil::core {

namespace {

// A list that changes with every match that ends is not worth a group each time.
constexpr int kCallsBefore = 4;

// Null where the sessions make no group, of which the call itself tells; and where there is no memory for
// what the policy would keep, without which the call goes on. The reaper destroys it, whoever had it last,
// because the policy may still write what it keeps of the group, for which its end waits.
std::shared_ptr<SessionGroup> kept_group(const std::vector<Session*>& sessions) {
  try {
    auto made = std::make_shared<SessionGroup>(sessions);
    made->keep();
    SessionGroup* const group = made.get();
    return {group, [made = std::move(made)](SessionGroup*) mutable { reap(std::move(made)); }};
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

RepeatedLists::Entry& RepeatedLists::Lists::entry_of(const Numbers& numbers) {
  Entry* const found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.numbers == numbers; });
  if (found != entries.end()) return *found;
  Entry& oldest = *std::min_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::make_pair(a.group != nullptr, a.used) < std::make_pair(b.group != nullptr, b.used);
  });
  oldest = Entry{};
  oldest.numbers = numbers;
  return oldest;
}

void RepeatedLists::Lists::ended(const Session& session) noexcept {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Entry& entry : entries) {
    if (entry.group && entry.group->has(session)) entry = Entry{};
  }
}

std::shared_ptr<SessionGroup> RepeatedLists::guess(std::uint64_t first_number, std::size_t count) {
  const std::lock_guard<std::mutex> lock(lists_->mutex);
  const Entry* likely = nullptr;
  for (const Entry& entry : lists_->entries) {
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
  std::unique_lock<std::mutex> lock(lists_->mutex);
  Entry& entry = lists_->entry_of(numbers);
  entry.used = ++lists_->uses;
  entry.distrust = std::max(0, entry.distrust - 1);
  for (Entry& other : lists_->entries) {
    if (guess == nullptr || other.group.get() != guess || &other == &entry) continue;
    other.distrust = other.next_distrust;
    other.next_distrust = std::min(2 * other.next_distrust, kMostDistrust);
  }
  if (entry.group || ++entry.calls <= kCallsBefore) return entry.group;
  entry.calls = 0;
  lock.unlock();
  return add_group(numbers, sessions);
}

// Without the lock, because a GPU may allocate memory for it. The list may have lost its entry meanwhile.
std::shared_ptr<SessionGroup> RepeatedLists::add_group(const Numbers& numbers,
                                                       const std::vector<Session*>& sessions) {
  std::shared_ptr<SessionGroup> made = kept_group(sessions);
  if (!made) return nullptr;
  for (Session* const session : sessions) session->tell_when_it_ends(lists_);
  const std::lock_guard<std::mutex> lock(lists_->mutex);
  Entry& entry = lists_->entry_of(numbers);
  if (!entry.group) entry.group = std::move(made);
  entry.used = ++lists_->uses;
  return entry.group;
}

}  // namespace exphil::core
