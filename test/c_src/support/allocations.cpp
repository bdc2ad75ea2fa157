#include "support/allocations.hpp"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace exphil::test {

namespace {

// Trivial, so that its thread-local storage needs neither memory nor a destructor.
struct Counts {
  bool counting = false;
  std::int64_t count, bytes, peak, failures, fail_from, fail_until;
};
thread_local Counts counts;

constexpr int kNever = -1;
std::atomic<int> good{kNever};  // allocations before the one that fails
thread_local int paused = 0;

bool fails() {
  if (paused > 0) return false;
  int now = good.load(std::memory_order_relaxed);
  while (now >= 0 && !good.compare_exchange_weak(now, now - 1)) {
  }
  return now == 0;
}

void* allocate_aligned(std::size_t alignment, std::size_t size) {
  void* memory = nullptr;
  const int error = posix_memalign(&memory, alignment, size);
  if (error != 0) errno = error;
  return error == 0 ? memory : nullptr;
}

void* allocate(std::size_t size, std::size_t alignment) {
  if (fails()) return nullptr;
  if (counts.counting) {
    ++counts.count;
    if (counts.count >= counts.fail_from && counts.count < counts.fail_until) {
      ++counts.failures;
      return nullptr;
    }
  }
  void* memory = alignment > alignof(std::max_align_t)
                     ? allocate_aligned(alignment, (size + alignment - 1) / alignment * alignment)
                     : std::malloc(size > 0 ? size : 1);
  if (counts.counting && memory != nullptr) {
    counts.bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
    counts.peak = std::max(counts.peak, counts.bytes);
  }
  return memory;
}

void release(void* memory) {
  if (counts.counting && memory != nullptr) {
    counts.bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  }
  std::free(memory);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

FailingAllocation::FailingAllocation(int skip) {
  good = skip;
}
FailingAllocation::~FailingAllocation() {
  good = kNever;
}
bool FailingAllocation::happened() const {
  return good == kNever;
}

void pause_failing_allocations(int change) {
  paused += change;
}

Allocations::Allocations() {
  counts = {};
  counts.counting = true;
}
Allocations::~Allocations() {
  counts.counting = false;
}
void Allocations::fail(std::int64_t number, std::int64_t count) {
  counts.fail_from = number;
  counts.fail_until = number + count;
}
std::int64_t Allocations::count() const {
  return counts.count;
}
std::int64_t Allocations::bytes() const {
  return counts.bytes;
}
std::int64_t Allocations::peak() const {
  return counts.peak;
}
std::int64_t Allocations::failures() const {
  return counts.failures;
}

}  // namespace exphil::test

using exphil::test::allocate;
using exphil::test::allocate_or_throw;
using exphil::test::release;

constexpr std::size_t kUsual = alignof(std::max_align_t);

void* operator new(std::size_t size) {
  return allocate_or_throw(size, kUsual);
}
void* operator new[](std::size_t size) {
  return allocate_or_throw(size, kUsual);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, kUsual);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, kUsual);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete[](void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

// Packed weights, states and workspaces of the host backend (host/simd/aligned.cpp).
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return exphil::test::fails() ? nullptr : exphil::test::allocate_aligned(alignment, size);
}
