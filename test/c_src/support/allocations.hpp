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
  std::int64_t bytes() const;     // allocated and not freed again, on this thread
  std::int64_t peak() const;      // the most of them at once
  std::int64_t failures() const;  // how many were made to fail
};

// One allocation of the process fails, whichever thread makes it. One at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(int skip);  // the next allocation but `skip`
  ~FailingAllocation();                  // none fails any more
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  bool happened() const;
};

// 1: no FailingAllocation in this thread; -1: as before. Calls nest.
void pause_failing_allocations(int change);

}  // namespace exphil::test
