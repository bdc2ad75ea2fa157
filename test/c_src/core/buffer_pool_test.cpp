#include "core/buffer_pool.hpp"

#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "core/work/reaper.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/numbers.hpp"

namespace exphil::core {

TEST_CASE("buffers are aligned, of the size asked for, and reused", "[buffer_pool]") {
  BufferPool pool;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{3932160}, std::size_t{9} << 20}) {
    void* first = nullptr;
    {
      const ResultBuffer buffer = pool.allocate(bytes);
      CHECK(buffer.bytes() == bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
      std::memset(buffer.data(), 0xab, bytes);
      first = buffer.data();
    }
    CHECK(pool.allocate(bytes).data() == first);
  }
}

TEST_CASE("live buffers never share memory", "[buffer_pool]") {
  BufferPool pool;
  test::Random random(3);
  std::vector<std::pair<ResultBuffer, unsigned char>> live;
  int wrong = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::size_t bytes = 1 + random.bits() % 20000;
    const unsigned char mark = static_cast<unsigned char>(random.bits());
    live.emplace_back(pool.allocate(bytes), mark);
    std::memset(live.back().first.data(), mark, bytes);
    if (live.size() < 20) continue;
    const std::size_t gone = random.bits() % live.size();
    const auto* bytes_of = static_cast<const unsigned char*>(live[gone].first.data());
    for (std::size_t i = 0; i < live[gone].first.bytes(); ++i) wrong += bytes_of[i] != live[gone].second;
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(gone));
  }
  CHECK(wrong == 0);
}

TEST_CASE("the cache is bounded and can be trimmed", "[buffer_pool]") {
  constexpr std::size_t limit = 1 << 20;
  BufferPool pool(limit);
  {
    std::vector<ResultBuffer> live;
    for (int i = 0; i < 40; ++i) live.push_back(pool.allocate(100000));
  }
  drain_reaper();
  CHECK(pool.cached_bytes() <= limit);
  CHECK(pool.cached_bytes() > limit / 2);
  pool.trim();
  CHECK(pool.cached_bytes() == 0);
  CHECK(test::error_of([&] { pool.allocate(SIZE_MAX / 8); }).kind == ErrorKind::out_of_memory);
}

TEST_CASE("buffers outlive the pool and are freed from any thread", "[buffer_pool]") {
  std::optional<BufferPool> pool(std::in_place);
  ResultBuffer buffer = pool->allocate(1 << 16);
  pool.reset();
  std::memset(buffer.data(), 1, buffer.bytes());
  std::thread([moved = std::move(buffer)]() mutable { ResultBuffer gone = std::move(moved); }).join();
  CHECK(buffer.data() == nullptr);
}

}  // namespace exphil::core
