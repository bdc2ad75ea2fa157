#include "nif/held.hpp"

namespace exphil::nif {

namespace {

struct Counts {
  std::atomic<std::int64_t> limit{0}, calls{0}, long_calls{0}, longest_processor_time{0}, longest_time{0};
};
Counts counts;

void raise_to(std::atomic<std::int64_t>& longest, std::int64_t value) noexcept {
  std::int64_t before = longest.load(std::memory_order_relaxed);
  while (before < value && !longest.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

void HeldTimer::count(std::int64_t processor_time, std::int64_t time) noexcept {
  counts.calls.fetch_add(1, std::memory_order_relaxed);
  if (processor_time >= counts.limit.load(std::memory_order_relaxed)) counts.long_calls.fetch_add(1);
  raise_to(counts.longest_processor_time, processor_time);
  raise_to(counts.longest_time, time);
}

HeldCalls take_held_calls(std::int64_t limit) noexcept {
  counts.limit = limit;
  HeldCalls taken;
  taken.calls = counts.calls.exchange(0);
  taken.long_calls = counts.long_calls.exchange(0);
  taken.longest_processor_time = counts.longest_processor_time.exchange(0);
  taken.longest_time = counts.longest_time.exchange(0);
  HeldTimer::on_ = true;
  return taken;
}

}  // namespace exphil::nif
