#include "core/session/history.hpp"

#include <algorithm>

namespace exphil::core {

History::History(Policy& policy, std::int64_t frames, bool carried, bool spare)
    : frames_(frames), plays_(static_cast<std::size_t>(frames) + (spare ? 2 : 1)) {
  if (!carried) return;
  states_.reserve(plays_.size());
  while (states_.size() < plays_.size()) states_.push_back(policy.new_state());
  if (frames > 0) policy.reserve_chain(frames);
}

void History::advance() {
  const std::size_t next = index(1);
  if (plays_.size() > 1) plays_[next] = play();
  current_ = static_cast<std::int64_t>(next);
  recorded_ = std::min(recorded_ + 1, frames());
}

void History::go_back(std::int64_t frames) {
  current_ = static_cast<std::int64_t>(index(-frames));
  recorded_ -= frames;
}

}  // namespace exphil::core
