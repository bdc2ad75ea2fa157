// Which launch of the process waits on the device, and how it is cancelled; without a device.
#include "cuda/device/doorbell.hpp"

#include <memory>
#include <thread>

#include "cuda/device/slow_call.hpp"
#include "support/catch.hpp"

namespace exphil::cuda {
namespace {

struct Bell {
  Bell() { doorbell.open(&cancelled); }
  // Whether the device would end launch `number` (kernels/policy/armed.cuh).
  bool ends(unsigned number) const {
    return static_cast<int>(static_cast<unsigned>(__atomic_load_n(&cancelled, __ATOMIC_ACQUIRE)) - number) >=
           0;
  }
  std::uint64_t cancelled = 0;
  Doorbell doorbell;
};

TEST_CASE("a launch that is armed is cancelled, and one that was taken is not", "[cuda][policy][armed]") {
  Bell bell;
  CHECK(bell.doorbell.arm(1));
  CHECK(bell.doorbell.armed(1));
  CHECK(bell.doorbell.take(1));
  CHECK_FALSE(bell.doorbell.take(1));
  Doorbell::cancel_any();
  CHECK_FALSE(bell.ends(1));
  CHECK(bell.doorbell.arm(2));
  CHECK_FALSE(bell.ends(1));  // it may still run
  Doorbell::cancel_any();
  CHECK(bell.ends(2));
  CHECK_FALSE(bell.doorbell.take(2));
  CHECK_FALSE(bell.ends(3));
}

TEST_CASE("one launch of the process is armed", "[cuda][policy][armed]") {
  Bell first;
  auto second = std::make_unique<Bell>();
  CHECK(first.doorbell.arm(7));
  CHECK(second->doorbell.arm(3));
  CHECK(first.ends(7));
  CHECK_FALSE(second->ends(3));
  second.reset();
  Doorbell::cancel_any();
  CHECK(first.doorbell.arm(8));
  CHECK_FALSE(first.ends(8));
}

TEST_CASE("a slow call cancels what is armed, and nothing is armed during it", "[cuda][policy][armed]") {
  Bell bell;
  CHECK(bell.doorbell.arm(1));
  {
    const SlowCall slow;
    CHECK(bell.ends(1));
    CHECK_FALSE(bell.doorbell.arm(2));
    CHECK_FALSE(bell.doorbell.armed(2));
  }
  CHECK(bell.doorbell.arm(3));
  CHECK_FALSE(bell.ends(3));
}

TEST_CASE("numbers of launches wrap around", "[cuda][policy][armed]") {
  Bell bell;
  constexpr unsigned kStride = 1u << 28;
  unsigned number = 1;
  for (int i = 0; i < 40; ++i, number += kStride) {
    REQUIRE(bell.doorbell.arm(number));
    REQUIRE_FALSE(bell.ends(number));
    if (i % 7 == 6) {
      bell.doorbell.cancel();
      REQUIRE(bell.ends(number));
      REQUIRE_FALSE(bell.ends(number + 1));
    } else {
      REQUIRE(bell.doorbell.take(number));
    }
  }
}

// Either the slow call cancels the launch, or the launch is not made.
TEST_CASE("no launch waits through a slow call on another thread", "[cuda][policy][armed]") {
  Bell bell;
  std::thread slow([] {
    for (int i = 0; i < 2000; ++i) const SlowCall call;
  });
  for (unsigned number = 1; number <= 2000; ++number) {
    if (!bell.doorbell.arm(number)) continue;
    if (bell.doorbell.take(number)) {
      CHECK_FALSE(bell.ends(number));
    } else {
      while (!bell.ends(number)) std::this_thread::yield();  // the other thread is about to write the word
    }
  }
  slow.join();
}

}  // namespace
}  // namespace exphil::cuda
