// Counts what this thread allocates with operator new, and makes allocations fail, of this thread or of any.
// The program's operator new and std::aligned_alloc are replaced (allocations.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace exphil::test {

// Counts from construction to destruction. Not nested. For tests on one thread; others are not counted.
class Allocations {
 public:
  Allocations();
  ~Allocations();
  Allocations(const Allocations&) = delete;
  Allocations& operator=(const Allocations&) = delete;

  // Fails the allocation number `number`, from 1, and those after it up to `count` in all.
  void fail(std::int64_t number, std::int64_t count = 1);

  std::int64_t count() const;     // allocations so far
  std::int64_t bytes() const;     // allocated and not yet freed on this thread
  std::int64_t peak() const;      // the maximum of bytes()
  std::int64_t failures() const;  // failures injected
};

// One allocation of the process fails, on any thread. One object at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(int skip);  // fails the allocation after `skip` successful ones
  ~FailingAllocation();                  // ends the injection
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  bool happened() const;
};

// 1: exempts this thread from FailingAllocation; -1: ends that. Calls nest.
void pause_failing_allocations(int change);

}  // namespace exphil::test
