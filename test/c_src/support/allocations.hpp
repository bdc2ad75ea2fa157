// Counts what this thread allocates with operator new, and makes one of its allocations fail. The program's
// operator new is replaced (allocations.cpp). For tests on one thread; other threads are not counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace exphil::test {

// Counts from construction to destruction. Not nested.
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

}  // namespace exphil::test
