// Fails an operation at each point where it can fail: the Nth allocation or the Nth driver call, for every N.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.hpp"

namespace exphil::test {

// Runs the call with failure number n (from 0) injected. False where the call ended before it.
using Failing = std::function<bool(int n, const std::function<void()>& call)>;

// Allocation number n of the process fails, on any thread (support/allocations.hpp).
bool fail_allocation(int n, const std::function<void()>& call);

// Runs an operation once. It may throw core::Error with a message, or std::bad_alloc, which nif/ reports as
// out_of_memory; anything else fails the test. `check` is then called with whether it threw.
struct Attempt {
  std::function<void()> run;
  std::function<void(bool threw)> check;
};

// Prepares an attempt, runs it with failure n and checks it, for n = 0, 1, ... until one ends before its
// failure. Returns how many threw.
int fail_at_each_point(const std::string& name, const Failing& failing,
                       const std::function<Attempt()>& prepare);

// An operation that changes nothing but its results, which it writes in place.
struct Operation {
  using Results = std::vector<std::vector<std::uint8_t>>;
  std::string name;
  Results results;
  std::function<void(Results& results)> run;
  bool on_host = false;  // works without the backend's device
};

// What a backend offers beside the operations of a policy (support/policy_faults.hpp), on small tensors:
// scans, associative scans, the gradients of both, semiseparable layers, and memory for results. The channels
// are multiples of `width`.
std::vector<Operation> backend_operations(const std::shared_ptr<core::Backend>& backend,
                                          const std::vector<core::AssociativeOp>& ops,
                                          std::int64_t width = 1);

// Loads a policy of make_policy({}) and plays one frame.
Operation load_of_policy(const std::shared_ptr<core::Backend>& backend);

// Fails each operation at each point. After a failure `idle` is called, which checks that nothing was kept,
// and the same operation gives the bits that it gives without one. The first round does not repeat a call
// that failed, so that what a first call builds (kernels, pools) is built among failures.
void fail_operations(std::vector<Operation> operations, const Failing& failing,
                     const std::function<void()>& idle);

}  // namespace exphil::test
