// The cache of plans, with plans that are numbers (driver_test.cpp runs these over the fake driver).
#include "cuda/scan/plan_cache.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "cuda/cuda_test.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::ScanShape;
using Cache = cuda::PlanCache<std::int64_t>;

ScanShape of_batch(std::int64_t batch) {
  ScanShape shape;
  shape.batch = batch, shape.seq = 5, shape.dim = 3, shape.state = 2;
  return shape;
}

TEST_CASE("a plan is made once for each shape", "[.fake]") {
  const auto context = cuda::Context::open(0);
  Cache cache;
  int made = 0;
  const auto get = [&](const ScanShape& shape) {
    return *cache.get(*context, shape, [&] { return ++made, shape.batch; });
  };
  for (int round = 0; round < 3; ++round) {
    for (const std::int64_t batch : {1, 2, 7}) CHECK(get(of_batch(batch)) == batch);
  }
  CHECK(made == 3);
  ScanShape other = of_batch(1);
  other.add(core::ScanOperand::d);
  get(other);
  other.options.dt_softplus = true;
  get(other);
  CHECK(made == 5);
}

TEST_CASE("the cache of plans is bounded, and a plan in use stays", "[.fake]") {
  const auto context = cuda::Context::open(0);
  Cache cache;
  std::size_t made = 0;
  const auto get = [&](std::int64_t batch) {
    return cache.get(*context, of_batch(batch), [&] { return ++made, batch; });
  };
  const auto first = get(1);
  const auto most = static_cast<std::int64_t>(Cache::kMostPlans);
  for (std::int64_t batch = 2; batch <= most + 1; ++batch) CHECK(*get(batch) == batch);
  CHECK(first.use_count() == 1);  // the cache has let it go
  CHECK(*first == 1);
  CHECK(*get(1) == 1);
  CHECK(made == Cache::kMostPlans + 2);
}

TEST_CASE("a plan that cannot be made is tried again", "[.fake]") {
  const auto context = cuda::Context::open(0);
  Cache cache;
  const auto fail = []() -> std::int64_t { core::fail(core::ErrorKind::compile_failed, "", "no kernel"); };
  for (int round = 0; round < 2; ++round) {
    const core::Error error = thrown_by([&] { cache.get(*context, of_batch(1), fail); });
    CHECK(error.kind() == core::ErrorKind::compile_failed);
  }
  CHECK(*cache.get(*context, of_batch(1), [] { return std::int64_t{4}; }) == 4);
}

TEST_CASE("threads that ask for plans at once get those of their shapes", "[.fake]") {
  const auto context = cuda::Context::open(0);
  Cache cache;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 4000; ++i) {
        const std::int64_t batch = (i * 7 + t) % 400;
        wrong += *cache.get(*context, of_batch(batch), [&] { return batch; }) != batch;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace exphil::test
