#include "host/policy/state_memory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace exphil::host {
namespace {

constexpr std::int64_t kLineFloats = 16, kHugePageFloats = (std::int64_t{2} << 20) / 4;
constexpr std::int64_t kFewest = 2;  // states of a block: a session has two without a history

std::int64_t whole_lines(std::int64_t floats) {
  return std::max<std::int64_t>(1, (floats + kLineFloats - 1) / kLineFloats) * kLineFloats;
}

}  // namespace

StateMemory::StateMemory(std::int64_t floats, std::int64_t reserved)
    : floats_(floats), stride_(whole_lines(floats)), reserved_(reserved) {}

std::int64_t StateMemory::reservable(std::int64_t wanted, std::int64_t floats, std::size_t memory) {
  const std::size_t each = static_cast<std::size_t>(whole_lines(floats)) * sizeof(float);
  return std::min(wanted, static_cast<std::int64_t>(memory / 4 / each));
}

// Each has as many states as there are in use, or still to be reserved, so that a lone agent holds little, up
// to a huge page of them.
void StateMemory::add_block() {
  const std::int64_t most = std::max<std::int64_t>(1, kHugePageFloats / stride_),
                     states = std::min(most, std::max({kFewest, taken_, reserved_ - room_}));
  // A whole huge page, where it is nearly one: smaller blocks do not get any.
  const std::int64_t floats = states * stride_,
                     whole = states == most ? std::max(floats, kHugePageFloats) : floats;
  auto block = std::make_unique<Block>(whole, states);
  open_.reserve(blocks_.size() + 1);  // give_back() then allocates nothing
  Block* const added = block.get();
  blocks_.emplace(added->memory.data(), std::move(block));
  open_.push_back(added);
  ++empty_;
  room_ += states;
}

float* StateMemory::take() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (open_.empty() || room_ < reserved_) add_block();
  Block& block = *open_.back();
  if (block.is_empty()) --empty_;
  const bool used_before = !block.freed.empty();
  float* state = nullptr;
  if (used_before) {
    state = block.freed.back();
    block.freed.pop_back();
  } else {
    state = block.memory.data() + stride_ * block.fresh++;
  }
  if (block.is_full()) open_.pop_back();
  ++taken_;
  lock.unlock();
  if (used_before) std::memset(state, 0, static_cast<std::size_t>(floats_) * sizeof(float));
  return state;
}

void StateMemory::give_back(float* state) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::prev(blocks_.upper_bound(state));
  Block& block = *found->second;
  if (block.is_full()) open_.push_back(&block);
  block.freed.push_back(state);
  --taken_;
  if (!block.is_empty() || ++empty_ == 1 || room_ - block.states < reserved_) return;
  --empty_;
  room_ -= block.states;
  open_.erase(std::find(open_.begin(), open_.end(), &block));
  blocks_.erase(found);
}

std::size_t StateMemory::block_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [first, block] : blocks_) bytes += block->memory.bytes();
  return bytes;
}

}  // namespace exphil::host
