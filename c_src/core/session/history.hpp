// What a session needs to go back: its state before each of its last frames, in entries that are used in
// turn. A frame reads one entry and writes the next, so that recording costs it nothing, and going back is a
// subtraction. A session without history has one entry. Where a frame may be answered and yet fail, because
// its batch failed on another device, there is one more entry: it takes the next frame, and none that one can
// go back to is lost. Used by session.cpp, under its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/session/play.hpp"

namespace exphil::core {

class History {
 public:
  // `frames`: how far back it goes. Not carried: a session with a window, which needs only the play states.
  // spare: with that one more entry. Throws out_of_memory.
  History(Policy& policy, std::int64_t frames, bool carried, bool spare = false);

  std::int64_t frames() const { return frames_; }
  // The frames recorded since the history began, at most frames().
  std::int64_t recorded() const { return recorded_; }

  // The entry that is `by` frames after the current one; before it where `by` is negative. From -recorded()
  // to frames(): that far ahead are the entries that the next frames write. No state where not carried.
  State* state(std::int64_t by = 0) const { return states_.empty() ? nullptr : states_[index(by)].get(); }
  bool carried() const { return !states_.empty(); }
  // Whether a frame goes from one entry to another. Where it does not, the current state is always the first.
  // These two never change, and need no lock.
  bool moves() const { return plays_.size() > 1; }
  State* first_state() const { return states_[0].get(); }
  // Asks for the memory that state() reads, and does not wait for it.
  void prefetch() const { __builtin_prefetch(states_.data()); }
  PlayState& play() { return plays_[static_cast<std::size_t>(current_)]; }

  // After a frame whose state was written to state(1): that entry is now the current one. Its play state is a
  // copy of the previous one.
  void advance();
  void go_back(std::int64_t frames);  // at most recorded()
  void begin_anew() { recorded_ = 0; }

 private:
  // by: at most one turn in either direction. No division: a batch asks for thousands.
  std::size_t index(std::int64_t by) const {
    const auto entries = static_cast<std::int64_t>(plays_.size());
    const std::int64_t at = current_ + by;
    return static_cast<std::size_t>(at < 0 ? at + entries : at < entries ? at : at - entries);
  }

  const std::int64_t frames_;
  std::vector<std::unique_ptr<State>> states_;
  std::vector<PlayState> plays_;
  std::int64_t current_ = 0, recorded_ = 0;
};

}  // namespace exphil::core
