// The launches that wait on the GPUs; see doorbell.hpp.
#include "cuda/device/doorbell.hpp"

namespace exphil::cuda {

namespace {

// Sets the word to `number` unless a later number is there already: two threads may cancel different
// launches.
void raise(std::uint64_t* word, unsigned number) noexcept {
  std::uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (static_cast<int>(number - static_cast<unsigned>(seen)) > 0 &&
         !__atomic_compare_exchange_n(word, &seen, std::uint64_t{number}, false, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED)) {
  }
}

}  // namespace

ArmedSlot::ArmedSlot() {
  const std::lock_guard<std::mutex> lock(all_mutex_);
  next_ = first_;
  first_ = this;
}

ArmedSlot::~ArmedSlot() {
  const std::lock_guard<std::mutex> lock(all_mutex_);
  ArmedSlot** slot = &first_;
  while (*slot != this) slot = &(*slot)->next_;
  *slot = next_;
}

void ArmedSlot::cancel_last() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Doorbell* const armed = last_.load(); armed != nullptr) armed->cancel();
}

void ArmedSlot::cancel_all() noexcept {
  const std::lock_guard<std::mutex> lock(all_mutex_);
  for (ArmedSlot* slot = first_; slot != nullptr; slot = slot->next_) slot->cancel();
}

Doorbell::~Doorbell() {
  const std::lock_guard<std::mutex> lock(slot_.mutex_);
  if (slot_.last_.load() == this) slot_.last_.store(nullptr);
}

// The order of the writes and reads here and in SlowCall decides that one of the two threads sees the other.
bool Doorbell::arm(unsigned number) {
  {
    const std::lock_guard<std::mutex> lock(slot_.mutex_);
    if (Doorbell* const other = slot_.last_.load(); other != nullptr) other->cancel();
    slot_.last_.store(this);
  }
  // So that the word never falls behind by half of all numbers. Far below those of launches that still run.
  raise(cancelled_, number - kNumberWindow);
  armed_.store(number);
  if (slot_.slow_calls_.load() == 0 && ArmedSlot::slow_calls_of_all_.load() == 0) return true;
  armed_.store(0);
  return false;
}

void Doorbell::cancel() noexcept {
  if (const unsigned number = armed_.exchange(0); number != 0) raise(cancelled_, number);
}

}  // namespace exphil::cuda
