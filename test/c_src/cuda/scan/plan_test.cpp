// How a scan is cut for a device, and its slices of the batch: needs no device.
#include "cuda/scan/plan.hpp"

#include <vector>

#include "cuda/scan/forward.hpp"
#include "cuda/scan/kinds.hpp"
#include "support/catch.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {
namespace {

using core::ScanShape;
using formulas::Discretization;

TEST_CASE("a scan plan covers every state and channel and fits the device", "[cuda][scan]") {
  for (const auto& properties : {device(132, 227), device(40, 64), device(1, 48)}) {
    for (const std::int64_t state : {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 128, 256}) {
      for (const std::int64_t dim : {1, 3, 31, 64, 65, 1031}) {
        for (const bool complex : {false, true}) {
          for (int rule = 0; rule < 6; ++rule) {
            for (const std::int64_t seq : {0, 1, 60, 100000}) {
              ScanShape p = kind(3, seq, dim, state);
              p.complex = complex;
              p.options.discretization = static_cast<Discretization>(rule);
              const cuda::ScanPlan plan = cuda::plan_scan(p, properties);
              INFO("state " << state << " dim " << dim << " complex " << complex << " rule " << rule);
              CHECK(plan.sequential);
              CHECK(plan.lanes * plan.per_lane >= state);
              // Two states a lane or more: a lane's sum always starts with pairs.
              if (state > 1) CHECK(plan.per_lane >= 2);
              CHECK((plan.lanes & (plan.lanes - 1)) == 0);
              CHECK(plan.spans * plan.span_channels == dim);
              CHECK(plan.blocks_per_span * plan.groups * (32 / plan.lanes) >= plan.span_channels);
              CHECK(plan.times == 1);
              CHECK(plan.groups * 32 <= plan.max_threads);
              CHECK(cuda::scan_layout(p, plan).bytes() <= properties.max_shared_per_block);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("whether a scan walks time does not depend on the batch", "[cuda][scan]") {
  for (const std::int64_t seq : {1, 60, 64, 65, 1024, 70001}) {
    for (const std::int64_t dim : {1, 64, 512, 1536, 20000}) {
      for (const std::int64_t batch : {1, 2, 8, 64, 4096}) {
        ScanShape p = kind(batch, seq, dim, 16);
        INFO("batch " << batch << " seq " << seq << " dim " << dim);
        CHECK(cuda::scans_sequentially(p) == (seq <= 64 || dim == 20000));
        p.options.algorithm = core::ScanAlgorithm::sequential;
        CHECK(cuda::scans_sequentially(p));
        p.options.algorithm = core::ScanAlgorithm::chunked;
        CHECK_FALSE(cuda::scans_sequentially(p));
      }
    }
  }
}

// Steps and the bytes of some rows are ints in the chunked kernel.
TEST_CASE("a scan beyond 31 bits walks time even where chunks are asked for", "[cuda][scan]") {
  const auto walks = [](ScanShape p) {
    p.options.algorithm = core::ScanAlgorithm::chunked;
    return cuda::scans_sequentially(p);
  };
  const std::int64_t steps = (std::int64_t{1} << 31) - (std::int64_t{1} << 20);
  CHECK_FALSE(walks(kind(1, steps - 1, 4, 4)));
  CHECK(walks(kind(1, steps, 4, 4)));
  // Rows of x.
  ScanShape p = kind(1, 1024, (std::int64_t{1} << 19) - 1, 16);
  CHECK_FALSE(walks(p));
  p.dim += 1;
  CHECK(walks(p));
  p.dtype = core::Dtype::bf16;
  CHECK_FALSE(walks(p));
  // Rows of b and of c: 256 states of f32, f16 and c64.
  p = kind(1, 1024, 2048, 256);
  CHECK_FALSE(walks(p));
  for (auto* layout : {&p.b_layout, &p.c_layout}) {
    layout->groups = 2048;
    CHECK(walks(p));
    layout->groups /= 2;
    CHECK_FALSE(walks(p));
    p.complex = true;
    CHECK(walks(p));
    p.complex = false, layout->groups = 2048, p.dtype = core::Dtype::f16;
    CHECK_FALSE(walks(p));
    p.dtype = core::Dtype::f32, layout->groups = 1;
  }
}

TEST_CASE("blocks do not cross the groups of b and c", "[cuda][scan]") {
  ScanShape p = kind(2, 100, 42, 16);
  p.b_layout.groups = 2, p.c_layout.groups = 3;
  const cuda::ScanPlan plan = cuda::plan_scan(p, device(132, 227));
  CHECK(plan.span_channels == 7);
  CHECK(plan.spans == 6);
}

TEST_CASE("a batch beyond one grid is cut into several launches", "[cuda][scan]") {
  const ScanShape p = kind((std::int64_t{1} << 31) + 5, 1, 8, 16);
  const auto launches = cuda::scan_launches(device(132, 227), p, {});
  REQUIRE(launches.size() == 2);
  CHECK(std::int64_t{launches[0].grid_x} + launches[1].grid_x == p.batch);
}

TEST_CASE("a slice of the batch reads its own sequences", "[cuda][scan]") {
  ScanSpec spec;
  spec.batch = 5;
  spec.z = spec.initial_state = true;
  spec.b_groups = 0;
  const ScanCase whole(spec);
  const ScanExpected all = expect(whole.call()), part = expect(slice_of(whole.call(), 2, 3));
  const std::size_t row = static_cast<std::size_t>(spec.seq * spec.dim);
  CHECK(std::vector<double>(all.y.begin() + static_cast<std::ptrdiff_t>(2 * row), all.y.end()) == part.y);
}

}  // namespace
}  // namespace exphil::test
