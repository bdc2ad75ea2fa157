#include "core/work/polling.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "core/work/pause.hpp"

namespace exphil::core {

namespace {

using Clock = PollingPlace::Clock;

std::atomic<int> pollers{0}, companions{0};
std::atomic<int (*)()> replaced_count{nullptr};

// Of the machine, as /proc/loadavg counts the threads of all of them.
int machine_cores() {
  static const int count = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return count;
}

// "0.10 0.20 0.30 4/111 9643": 4 threads run or want to.
int read_runnable_threads() noexcept {
  static const int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  char text[128];
  const ssize_t size = file < 0 ? 0 : pread(file, text, sizeof(text) - 1, 0);
  if (size <= 0) return 0;
  text[size] = 0;
  const char* slash = std::strchr(text, '/');
  if (slash == nullptr) return 0;
  while (slash > text && slash[-1] >= '0' && slash[-1] <= '9') --slash;
  return std::atoi(slash);
}

bool take_place() noexcept {
  const int most = std::max(1, machine_cores() - 1);
  if (pollers.fetch_add(1, std::memory_order_relaxed) < most) return true;
  pollers.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

}  // namespace

int runnable_threads() noexcept {
  int (*const replacement)() = replaced_count.load(std::memory_order_relaxed);
  return replacement != nullptr ? replacement() : read_runnable_threads();
}

void set_runnable_threads(int (*count)()) noexcept {
  replaced_count.store(count, std::memory_order_relaxed);
}

bool cores_are_wanted() noexcept {
  constexpr std::chrono::microseconds kAge{50};
  static std::atomic<Clock::rep> looked{0};
  static std::atomic<bool> wanted{false};
  const Clock::time_point now = Clock::now();
  if (now.time_since_epoch() - Clock::duration(looked.load(std::memory_order_relaxed)) > kAge) {
    looked.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    const int own = pollers.load(std::memory_order_relaxed) + companions.load(std::memory_order_relaxed);
    wanted.store(runnable_threads() - own > machine_cores(), std::memory_order_relaxed);
  }
  return wanted.load(std::memory_order_relaxed);
}

PollingPlace::PollingPlace() noexcept : has_place_(take_place()) {}

PollingPlace::~PollingPlace() {
  if (has_place_) pollers.fetch_sub(1, std::memory_order_relaxed);
  if (has_companion_) companions.fetch_sub(1, std::memory_order_relaxed);
}

void PollingPlace::add_companion() noexcept {
  if (has_companion_) return;
  has_companion_ = true;
  companions.fetch_add(1, std::memory_order_relaxed);
}

bool PollingPlace::may_poll() noexcept {
  const Clock::time_point now = Clock::now();
  if (!has_place_ || !may_ || now < next_look_) return has_place_ && may_;
  next_look_ = now + kLook;
  wanted_ = runnable_threads() - companions.load(std::memory_order_relaxed) > machine_cores();
  refusals_ = wanted_ ? refusals_ + 1 : 0;
  if (refusals_ == kRefusals) may_ = false;
  return may_;
}

bool PollingPlace::poll_until(Clock::time_point due, std::chrono::nanoseconds bound) noexcept {
  const Clock::time_point begin = Clock::now();
  const Clock::time_point end = due - begin > bound ? begin + bound : due;
  while (Clock::now() < end) {
    if (!may_poll()) return false;
    for (int i = 0; i < 8; ++i) pause_briefly();
  }
  return may_poll();
}

}  // namespace exphil::core
