// How many launches of a gatherer are under way, and whether a thread collects the frames of the next one, in
// one word. Used by gatherer.hpp. Every function is safe from any thread; all of them have one order
// (seq_cst), which gatherer.hpp needs.
#pragma once

#include <atomic>

namespace exphil::core {

class LaunchPlaces {
 public:
  // most: launches that may be under way at the same time.
  explicit LaunchPlaces(unsigned most) : most_(most) {}
  unsigned most() const { return most_; }

  // All places at once, where none is taken and nobody collects.
  bool take_all() noexcept {
    unsigned none = 0;
    return word_.compare_exchange_strong(none, most_);
  }
  void give_all_back() noexcept { word_.fetch_sub(most_); }

  // Whether a thread may collect: nobody does, and a place is free. beside: even where a launch is under way.
  bool may_collect(bool beside) const noexcept { return allows(word_.load(), beside); }
  // The right to do so, where it may.
  bool collect(bool beside) noexcept {
    unsigned word = word_.load();
    do {
      if (!allows(word, beside)) return false;
    } while (!word_.compare_exchange_weak(word, word + kCollects));
    return true;
  }
  bool is_collected() const noexcept { return word_.load() >= kCollects; }
  void stop_collecting() noexcept { word_.fetch_sub(kCollects); }
  // What was collected is a launch under way; another thread may collect.
  void begin_launch() noexcept { word_.fetch_sub(kCollects - 1); }
  void end_launch() noexcept { word_.fetch_sub(1); }

 private:
  static constexpr unsigned kCollects = 1 << 16;  // added to the number of launches
  bool allows(unsigned word, bool beside) const { return word == 0 || (beside && word < most_); }

  const unsigned most_;
  std::atomic<unsigned> word_{0};
};

}  // namespace exphil::core
