#include "support/faults.hpp"

#include <algorithm>
#include <new>

#include "core/error.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace exphil::test {

bool fail_allocation(int n, const std::function<void()>& call) {
  const FailingAllocation failure(n);
  call();
  return failure.happened();
}

namespace {

bool throws(const std::function<void()>& call) {
  try {
    call();
  } catch (const core::Error& error) {
    CHECK_FALSE(std::string(error.what()).empty());
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

enum class Round { cold, warm };

int fail_operation(Operation& operation, Round round, const Failing& failing,
                   const std::function<void()>& idle) {
  const auto poison = [&operation] {
    for (auto& bytes : operation.results) std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xff});
  };
  Operation::Results right;
  if (round == Round::warm) {
    poison();
    const Operation::Results poisoned = operation.results;
    operation.run(operation.results);
    right = operation.results;
    for (std::size_t i = 0; i < right.size(); ++i) CHECK(right[i] != poisoned[i]);
  }
  return fail_at_each_point(operation.name, failing, [&] {
    poison();
    return Attempt{[&] { operation.run(operation.results); },
                   [&](bool threw) {
                     idle();
                     if (round == Round::cold) return;
                     if (threw) {
                       poison();
                       operation.run(operation.results);
                     }
                     CHECK(operation.results == right);
                   }};
  });
}

}  // namespace

int fail_at_each_point(const std::string& name, const Failing& failing,
                       const std::function<Attempt()>& prepare) {
  int thrown = 0;
  bool reached = true;
  for (int n = 0; reached; ++n) {
    const Attempt attempt = prepare();
    INFO(name << ", failure " << n);
    REQUIRE(n < 10000);
    bool threw = false;
    reached = failing(n, [&] { threw = throws(attempt.run); });
    if (threw) ++thrown;
    attempt.check(threw);
  }
  return thrown;
}

void fail_operations(std::vector<Operation> operations, const Failing& failing,
                     const std::function<void()>& idle) {
  for (const Round round : {Round::cold, Round::warm}) {
    for (Operation& operation : operations) {
      INFO((round == Round::cold ? "cold " : "warm ") << operation.name);
      const int thrown = fail_operation(operation, round, failing, idle);
      if (round == Round::warm && !operation.on_host) CHECK(thrown > 0);
    }
  }
}

}  // namespace exphil::test
