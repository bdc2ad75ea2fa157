// Memory of states: apart, zeros, used again, and given back when it is not needed.
#include "host/policy/state_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace exphil::test {
namespace {

using host::StateMemory;

bool all_are(const float* state, std::int64_t floats, float value) {
  return std::all_of(state, state + floats, [&](float found) { return found == value; });
}

TEST_CASE("states are apart and zeros, whatever was there before", "[host][policy]") {
  for (const std::int64_t floats : {1, 16, 33, 18000, 300000, 700000}) {
    CAPTURE(floats);
    StateMemory memory(floats);
    const int count = floats > 100000 ? 5 : 90;
    std::vector<float*> states;
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < count; ++i) {
        states.push_back(memory.take());
        CHECK(reinterpret_cast<std::uintptr_t>(states.back()) % 64 == 0);
        CHECK(all_are(states.back(), floats, 0.0f));
        std::fill_n(states.back(), floats, static_cast<float>(states.size()));
      }
      for (std::size_t i = 0; i < states.size(); ++i) {
        CHECK(all_are(states[i], floats, static_cast<float>(i + 1)));
      }
      // Every third one goes, so that blocks have room in their middle.
      std::vector<float*> kept;
      for (std::size_t i = 0; i < states.size(); ++i) {
        if (i % 3 == 0) {
          memory.give_back(states[i]);
        } else {
          kept.push_back(states[i]);
        }
      }
      states = kept;
      for (std::size_t i = 0; i < states.size(); ++i) {
        std::fill_n(states[i], floats, static_cast<float>(i + 1));
      }
    }
    for (float* state : states) memory.give_back(state);
  }
}

TEST_CASE("blocks of states grow with their number, and go when they are empty", "[host][policy]") {
  constexpr std::int64_t kFloats = 18000;
  constexpr std::size_t kState = kFloats * sizeof(float), kHugePage = std::size_t{2} << 20;
  StateMemory memory(kFloats);
  std::vector<float*> states;
  for (int i = 0; i < 500; ++i) {
    states.push_back(memory.take());
    if (i == 1) CHECK(memory.block_bytes() <= 2 * kState + 256);
    CHECK(memory.block_bytes() <= 2 * states.size() * (kState + 64) + 2 * kHugePage);
  }
  const std::size_t all = memory.block_bytes();
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 250; ++i) memory.give_back(states[static_cast<std::size_t>(i)]);
    for (int i = 0; i < 250; ++i) states[static_cast<std::size_t>(i)] = memory.take();
  }
  CHECK(memory.block_bytes() <= all + kHugePage);
  for (float* state : states) memory.give_back(state);
  CHECK(memory.block_bytes() <= kHugePage + kState);
}

TEST_CASE("states that are reserved have memory from the first one on, and keep it", "[host][policy]") {
  constexpr std::int64_t kFloats = 18000, kReserved = 100;
  constexpr std::size_t kState = kFloats * sizeof(float), kHugePage = std::size_t{2} << 20;
  StateMemory memory(kFloats, kReserved);
  CHECK(memory.block_bytes() == 0);
  std::vector<float*> states{memory.take()};
  const std::size_t all = memory.block_bytes();
  CHECK(all >= kReserved * kState);
  CHECK(all <= kReserved * (kState + 64) + 2 * kHugePage);
  while (states.size() < kReserved) states.push_back(memory.take());
  CHECK(memory.block_bytes() == all);
  while (states.size() < 3 * kReserved) states.push_back(memory.take());
  CHECK(memory.block_bytes() > all);
  for (float* state : states) memory.give_back(state);
  CHECK(memory.block_bytes() >= kReserved * kState);
  CHECK(memory.block_bytes() <= all + 2 * kHugePage);
  states.assign(1, memory.take());
  CHECK(all_are(states.front(), kFloats, 0.0f));
  memory.give_back(states.front());
}

TEST_CASE("at most a quarter of the machine's memory is reserved", "[host][policy]") {
  constexpr std::size_t kGigabyte = std::size_t{1} << 30;
  CHECK(StateMemory::reservable(100, 1 << 18, 4 * kGigabyte) == 100);  // of 1 MB each
  CHECK(StateMemory::reservable(1 << 24, 1 << 18, 4 * kGigabyte) == 1024);
  CHECK(StateMemory::reservable(1 << 24, 1, 4 * kGigabyte) == (1 << 24));  // of a line each
  CHECK(StateMemory::reservable(1 << 24, 17, kGigabyte) == (1 << 21));
  CHECK(StateMemory::reservable(100, 1 << 18, 0) == 0);
}

TEST_CASE("states are taken and given back by many threads", "[host][policy]") {
  StateMemory memory(40);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int number = 1; number <= 4; ++number) {
    threads.emplace_back([&, number] {
      std::vector<float*> own;
      for (int round = 0; round < 2000; ++round) {
        own.push_back(memory.take());
        wrong += all_are(own.back(), 40, 0.0f) ? 0 : 1;
        std::fill_n(own.back(), 40, static_cast<float>(number));
        if (round % 3 != 0) continue;
        wrong += all_are(own.front(), 40, static_cast<float>(number)) ? 0 : 1;
        memory.give_back(own.front());
        own.erase(own.begin());
      }
      for (float* state : own) memory.give_back(state);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace exphil::test
