// Which launch of a device waits on it, and how it is cancelled; without a device.
#include "cuda/device/doorbell.hpp"

#include <memory>
#include <thread>

#include "cuda/device/slow_call.hpp"
#include "support/catch.hpp"

namespace exphil::cuda {
namespace {

struct Bell {
  explicit Bell(ArmedSlot& slot) : doorbell(slot) { doorbell.open(&cancelled); }
  // Whether the device would end launch `number` (kernels/policy/armed.cuh).
  bool ends(unsigned number) const {
    return static_cast<int>(static_cast<unsigned>(__atomic_load_n(&cancelled, __ATOMIC_ACQUIRE)) - number) >=
           0;
  }
  std::uint64_t cancelled = 0;
  Doorbell doorbell;
};

TEST_CASE("a launch that is armed is cancelled, and one that was taken is not", "[cuda][policy][armed]") {
  ArmedSlot slot;
  Bell bell(slot);
  CHECK(bell.doorbell.arm(1));
  CHECK(bell.doorbell.armed(1));
  CHECK(bell.doorbell.take(1));
  CHECK_FALSE(bell.doorbell.take(1));
  slot.cancel();
  CHECK_FALSE(bell.ends(1));
  CHECK(bell.doorbell.arm(2));
  CHECK_FALSE(bell.ends(1));  // it may still run
  slot.cancel();
  CHECK(bell.ends(2));
  CHECK_FALSE(bell.doorbell.take(2));
  CHECK_FALSE(bell.ends(3));
}

TEST_CASE("one launch of a device is armed", "[cuda][policy][armed]") {
  ArmedSlot slot;
  Bell first(slot);
  auto second = std::make_unique<Bell>(slot);
  CHECK(first.doorbell.arm(7));
  CHECK(second->doorbell.arm(3));
  CHECK(first.ends(7));
  CHECK_FALSE(second->ends(3));
  second.reset();
  slot.cancel();
  CHECK(first.doorbell.arm(8));
  CHECK_FALSE(first.ends(8));
}

TEST_CASE("a slow call cancels what is armed, and nothing is armed during it", "[cuda][policy][armed]") {
  ArmedSlot slot;
  Bell bell(slot);
  CHECK(bell.doorbell.arm(1));
  {
    const SlowCall slow(&slot);
    CHECK(bell.ends(1));
    CHECK_FALSE(bell.doorbell.arm(2));
    CHECK_FALSE(bell.doorbell.armed(2));
  }
  CHECK(bell.doorbell.arm(3));
  CHECK_FALSE(bell.ends(3));
}

TEST_CASE("what stops the launches of one device leaves those of another", "[cuda][policy][armed]") {
  ArmedSlot here, there;
  Bell first(here), second(there);
  CHECK(first.doorbell.arm(1));
  CHECK(second.doorbell.arm(1));
  CHECK(first.doorbell.armed(1));
  here.cancel();
  CHECK(first.ends(1));
  CHECK_FALSE(second.ends(1));
  {
    const SlowCall slow(&here);
    CHECK(SlowCall::in_progress());
    CHECK_FALSE(first.doorbell.arm(2));
    CHECK_FALSE(second.ends(1));
    CHECK(second.doorbell.arm(2));
  }
  CHECK(first.doorbell.arm(3));
  {
    const SlowCall of_all;
    CHECK(first.ends(3));
    CHECK(second.ends(2));
    CHECK_FALSE(first.doorbell.arm(4));
    CHECK_FALSE(second.doorbell.arm(4));
  }
  CHECK(first.doorbell.arm(5));
  CHECK(second.doorbell.arm(5));
  ArmedSlot::cancel_all();
  CHECK(first.ends(5));
  CHECK(second.ends(5));
  CHECK_FALSE(SlowCall::in_progress());
}

TEST_CASE("numbers of launches wrap around", "[cuda][policy][armed]") {
  ArmedSlot slot;
  Bell bell(slot);
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
  ArmedSlot slot;
  Bell bell(slot);
  std::thread slow([&slot] {
    for (int i = 0; i < 2000; ++i) const SlowCall call(i % 2 == 0 ? &slot : nullptr);
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
