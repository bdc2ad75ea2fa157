// The operations of random_sessions.cpp: sessions, what they answered, and a thread that plays them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/session/session.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

// A frame that a session answered.
struct PlayedFrame {
  int before;          // the frame before it; -1: the session's beginning
  std::size_t number;  // of its observation
  std::vector<float> out;
  std::vector<std::uint8_t> state;  // of the session after it, where it was exported
};

// Windows that a policy answered in one call.
struct WindowCall {
  std::vector<std::size_t> numbers;
  std::int64_t count, seq;
  std::vector<float> out;
};

// A session of one round, and all its frames: going back makes them a tree.
struct RandomAgent {
  std::shared_ptr<core::Policy> policy;
  core::SessionOptions options;
  std::shared_ptr<core::Gatherer> gatherer;  // of its policy, or null
  std::unique_ptr<core::Session> session;
  std::vector<PlayedFrame> frames;
  std::vector<WindowCall> windows;
  int now = -1;              // its last frame
  std::size_t recorded = 0;  // how far it can go back
  std::unique_ptr<core::Snapshot> kept;
  int kept_at = -1;
  std::string wrong;  // the first thing that was, on its thread

  void new_session() { session = std::make_unique<core::Session>(policy, options, gatherer); }
  std::size_t d_output() const { return static_cast<std::size_t>(policy->config().d_output); }
};

// The observations of all agents, by number.
class Observations {
 public:
  static constexpr std::size_t kCount = 40;
  Observations(std::size_t d_input, std::uint64_t seed)
      : width_(d_input), values_(Random(seed).vector(kCount * d_input, -1.0f, 1.0f)) {}
  std::vector<float> rows(const std::vector<std::size_t>& numbers) const {
    std::vector<float> all;
    for (const std::size_t number : numbers) {
      all.insert(all.end(), at(number), at(number) + static_cast<std::ptrdiff_t>(width_));
    }
    return all;
  }
  const float* at(std::size_t number) const { return values_.data() + number * width_; }

 private:
  std::size_t width_;
  std::vector<float> values_;
};

// Random operations on agents that no other thread uses meanwhile. The same seed gives the same operations.
class RandomPlayer {
 public:
  RandomPlayer(std::vector<RandomAgent*> agents, const Observations& observations, std::uint64_t seed)
      : agents_(std::move(agents)), observations_(observations), random_(seed) {}

  // Ends with a state of each agent, or at the first exception, which is the agent's `wrong`.
  void run(std::int64_t operations);

 private:
  using Numbers = std::vector<std::size_t>;

  std::size_t pick(std::size_t count) { return static_cast<std::size_t>(random_.bits() % count); }
  Numbers some_frames(std::size_t count);
  void operate(RandomAgent& agent);
  void step(RandomAgent& agent, bool may_wait);
  void step_batch(RandomAgent& agent);
  void roll_back(RandomAgent& agent);
  void resimulate(RandomAgent& agent);
  void prefill(RandomAgent& agent);
  void window(RandomAgent& agent);

  const std::vector<RandomAgent*> agents_;
  const Observations& observations_;
  Random random_;
};

}  // namespace exphil::test
