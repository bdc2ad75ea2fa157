// Calls back at ticks of a fixed rate, at absolute times of the steady clock: tick n is due at
// start + n / rate, computed from n each time, so that rounding and late wake-ups do not add up. Each call
// has been asked for; a ticker whose calls nobody wants costs nothing. One thread serves all tickers of the
// process; it starts with the first one, sleeps between ticks, and is joined when the library unloads.
// Used by nif/clock.cpp; the rates and timers by core/session/pace.cpp, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace exphil::core {

// A rate in ticks per 1,000,000 seconds: 60 FPS is 60'000'000.
using MicroHertz = std::int64_t;
inline constexpr MicroHertz kMostMicroHertz = MicroHertz{10'000} * 1'000'000;

// A number of frames per second as a rate. Throws invalid_argument for one that is outside
// [1, kMostMicroHertz], or not a number.
MicroHertz micro_hertz(double fps, const char* argument);

// The time from the start to tick `number`. `number` is at least 0, `rate` at least 1.
std::chrono::nanoseconds tick_offset(MicroHertz rate, std::int64_t number);

// For a thread that sleeps until a time and then runs for some microseconds. Its timers wake it within a
// microsecond, where Linux may otherwise delay them by 50. And since Linux 6.12 it gets a core at once where
// another thread computes, instead of at the next tick of the system (4 ms at 250 Hz): its turns are short.
void wake_precisely();

class Ticker {
 public:
  // Receives the number of the tick that is due. Runs on the ticker thread and delays every other ticker, so
  // it must be short and must not throw. Returns false to be called again at the next tick.
  using Callback = std::function<bool(std::int64_t number)>;

  // Tick 0 is due at `start`. Throws core::Error (invalid_argument) for a rate outside [1, kMostMicroHertz];
  // std::bad_alloc and std::system_error where memory or a thread cannot be had.
  Ticker(std::chrono::steady_clock::time_point start, MicroHertz rate, Callback callback);
  // No call begins after this returns; a call in progress on another thread may still end later.
  ~Ticker();
  // One call for tick `number`: at once where it is past. Where several ticks are due, the call is for the
  // last of them. A call asked for before, which has not begun, is the same one, and may come for an earlier
  // tick. From any thread, also from the callback.
  void ask(std::int64_t number);
  // Like the destructor; from any thread, more than once.
  void stop() noexcept;
  std::chrono::steady_clock::time_point due(std::int64_t number) const;
  std::int64_t last_due() const;  // the last tick that is due now; -1 before the start
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  struct Entry;

 private:
  std::shared_ptr<Entry> entry_;
};

}  // namespace exphil::core
