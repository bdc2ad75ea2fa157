#include "cuda/policy/state_arena.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "core/work/parallel.hpp"
#include "cuda/policy/wait.hpp"

namespace exphil::cuda {
namespace {

constexpr std::size_t kAtOnce = 8192;

// Calls body(i) for each of `count` states, on several threads where they are thousands: each is somewhere
// else in memory. A step's one state costs no more than the call.
template <class Body>
void for_each_state(std::size_t count, Body body) {
  const auto each = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) body(i);
  };
  if (count <= kAtOnce) return each(0, count);
  core::parallel_for(static_cast<std::int64_t>(count), kAtOnce, [&](std::int64_t begin, std::int64_t end) {
    each(static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
  });
}

}  // namespace

StateArena::StateArena(std::shared_ptr<Context> context, std::size_t state_bytes, std::int64_t slots)
    : context_(std::move(context)), state_bytes_(state_bytes), slot_bytes_((state_bytes + 255) / 256 * 256) {
  grow(std::max<std::int64_t>(slots, 1));
}

void StateArena::grow(std::int64_t slots) {
  const std::int64_t bytes =
      core::checked_multiply(static_cast<std::int64_t>(slot_bytes_), slots, ":max_sessions");
  free_.reserve(static_cast<std::size_t>(slots_ + slots));  // so that give_back never allocates
  chunks_.reserve(chunks_.size() + 1);
  DeviceBuffer chunk = context_->device_pool().allocate(static_cast<std::size_t>(bytes));
  // Kernels write no padding between a state's parts, and states are copied with it.
  context_->clear(chunk);
  chunks_.push_back(std::move(chunk));
  slots_ += slots;
  const CUdeviceptr first = chunks_.back().address();
  for (std::int64_t i = slots; i > 0; --i)
    free_.push_back(first + static_cast<std::size_t>(i - 1) * slot_bytes_);
}

void StateArena::make_room(std::size_t count) {
  if (free_.size() >= count) return;
  const auto missing = static_cast<std::int64_t>(count - free_.size());
  // Grow by half; where that does not fit, by only what is needed.
  try {
    grow(std::max({slots_ / 2, std::int64_t{16}, missing}));
  } catch (const core::Error& error) {
    if (error.kind() != core::ErrorKind::out_of_memory) throw;
    grow(missing);
  }
}

void StateArena::reserve(std::size_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  make_room(count);
}

CUdeviceptr StateArena::take() {
  policy::StatePlace place{};
  take(&place, 1);
  return reinterpret_cast<CUdeviceptr>(place.to);
}

void StateArena::take(policy::StatePlace* places, std::size_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  make_room(count);
  const CUdeviceptr* const behind = free_.data() + free_.size();
  for_each_state(count, [&](std::size_t i) { places[i].to = as_pointer<float>(*(behind - 1 - i)); });
  free_.resize(free_.size() - count);
}

CUdeviceptr StateArena::take_at_once() {
  const std::unique_lock<std::mutex> lock = lock_soon(mutex_);  // grow() holds it while it allocates
  if (free_.empty()) throw core::WouldWait{};
  const CUdeviceptr slot = free_.back();
  free_.pop_back();
  return slot;
}

void StateArena::give_back(CUdeviceptr slot) noexcept {
  const policy::StatePlace place{nullptr, as_pointer<float>(slot)};
  give_back(&place, 1);
}

void StateArena::give_back(const policy::StatePlace* places, std::size_t count) noexcept {
  if (count == 0 || places[0].to == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const std::size_t before = free_.size();
  free_.resize(before + count);  // within the capacity that grow() reserved
  for_each_state(count,
                 [&](std::size_t i) { free_[before + i] = reinterpret_cast<CUdeviceptr>(places[i].to); });
}

std::size_t StateArena::held_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<std::size_t>(slots_) * slot_bytes_;
}

// A state keeps its arena alive, so no other one has had the address meanwhile.
const CudaState& state_of(const StateArena& arena, const core::State& state) {
  if (state.owner() != &arena) {
    core::fail(core::ErrorKind::mismatch, "session", "the state is of another policy");
  }
  return static_cast<const CudaState&>(state);
}

// The destructor runs where the body of a constructor that calls this one throws.
NextStates::NextStates(StateArena& arena, std::size_t count, core::State* const* from, core::State* const* to)
    : arena_(arena),
      from_(from),
      to_(to),
      count_(count),
      many_(count > 1 ? new policy::StatePlace[count] : nullptr),
      places_(count > 1 ? many_.get() : &one_) {}

NextStates::NextStates(StateArena& arena, core::State* const* from, core::State* const* to,
                       std::int64_t count, Lookup lookup)
    : NextStates(arena, static_cast<std::size_t>(count), from, to) {
  if (lookup == Lookup::at_once || count_ <= kAtOnce) {
    reach(count_);
  } else {
    arena_.reserve(count_);
  }
}

NextStates::NextStates(StateArena& arena, const core::State& from, core::State* const* to, std::int64_t count)
    : NextStates(arena, static_cast<std::size_t>(count), nullptr, to) {
  const CudaState& source = state_of(arena, from);
  for (std::size_t i = 0; i < count_; ++i) state_of(arena, *to[i]);
  arena_.take(places_, count_);
  reached_ = count_;
  for (std::size_t i = 0; i < count_; ++i) {
    places_[i].from = i == 0 ? as_pointer<float>(source.slot()) : places_[i - 1].to;
  }
}

NextStates::NextStates(StateArena& arena, const CudaState& from, core::State* const* to, CUdeviceptr taken)
    : NextStates(arena, 1, nullptr, to) {
  state_of(arena, *to[0]);
  one_ = {as_pointer<float>(from.slot()), as_pointer<float>(taken)};
  reached_ = 1;
}

void NextStates::reach(std::size_t end) {
  const std::size_t first = reached_;
  if (end <= first) return;
  for_each_state(end - first, [&](std::size_t i) {
    core::State* const source = from_[first + i];
    places_[first + i].from = as_pointer<float>(state_of(arena_, *source).slot());
    if (source != to_[first + i]) state_of(arena_, *to_[first + i]);
  });
  arena_.take(places_ + first, end - first);
  reached_ = end;
}

NextStates::~NextStates() {
  if (assigned_ && !committed_) exchange();
  arena_.give_back(places_, reached_);
}

void NextStates::assign() noexcept {
  if (!assigned_) exchange();
  assigned_ = true;
}

void NextStates::commit() noexcept {
  assign();
  committed_ = true;
}

// The slots of the states for those of the places, which are returned to the arena in the end.
void NextStates::exchange() noexcept {
  first_stamp_ = arena_.stamps(reached_);
  for_each_state(reached_, [&](std::size_t i) {
    auto& state = static_cast<CudaState&>(*to_[i]);  // checked before
    const CUdeviceptr before = state.slot();
    state.set(reinterpret_cast<CUdeviceptr>(places_[i].to), first_stamp_ + i);
    places_[i].to = as_pointer<float>(before);
  });
}

}  // namespace exphil::cuda
