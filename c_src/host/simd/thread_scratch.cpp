#include "host/simd/thread_scratch.hpp"

#include <pthread.h>

#include <memory>
#include <new>

#include "host/simd/aligned.hpp"

namespace exphil::host {

namespace {

struct Blocks {
  AlignedBuffer of_use[kScratchUses];
};

pthread_key_t make_key() {
  pthread_key_t key{};
  if (pthread_key_create(&key, [](void* blocks) { delete static_cast<Blocks*>(blocks); }) != 0) {
    throw std::bad_alloc();
  }
  return key;
}

}  // namespace

float* thread_scratch(Scratch use, std::int64_t floats) {
  static const pthread_key_t key = make_key();
  auto* blocks = static_cast<Blocks*>(pthread_getspecific(key));
  if (blocks == nullptr) {
    auto made = std::make_unique<Blocks>();
    if (pthread_setspecific(key, made.get()) != 0) throw std::bad_alloc();
    blocks = made.release();
  }
  AlignedBuffer& block = blocks->of_use[static_cast<int>(use)];
  block.reserve(floats);
  return block.data();
}

float* thread_scratch(Scratch use, std::int64_t floats, AlignedBuffer* large) {
  constexpr std::int64_t kKept = std::int64_t{1} << 20;
  if (floats <= kKept) return thread_scratch(use, floats);
  large->reserve(floats);
  return large->data();
}

}  // namespace exphil::host
