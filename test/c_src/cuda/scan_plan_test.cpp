// How a scan is cut for a device, and its slices of the batch: needs no device.
#include "cuda/scan_plan.hpp"

#include <set>
#include <vector>

#include "cuda/scan_launcher.hpp"
#include "cuda/scan_slice.hpp"
#include "support/catch.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {
namespace {

using core::ScanProblem;
using formulas::Discretization;

cuda::DeviceProperties device(int multiprocessors, int shared_kilobytes) {
  cuda::DeviceProperties properties;
  properties.multiprocessors = multiprocessors;
  properties.max_shared_per_block = shared_kilobytes * 1024;
  return properties;
}

ScanProblem kind(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state) {
  ScanProblem p;
  p.batch = batch, p.seq = seq, p.dim = dim, p.state = state;
  return p;
}

TEST_CASE("a scan plan covers every state and channel and fits the device", "[cuda][scan]") {
  for (const auto& properties : {device(132, 227), device(40, 64), device(1, 48)}) {
    for (const std::int64_t state : {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 128, 256}) {
      for (const std::int64_t dim : {1, 3, 31, 64, 65, 1031}) {
        for (const bool complex : {false, true}) {
          for (int rule = 0; rule < 6; ++rule) {
            for (const std::int64_t seq : {0, 1, 60, 1000}) {
              ScanProblem p = kind(3, seq, dim, state);
              p.complex = complex;
              p.options.discretization = static_cast<Discretization>(rule);
              const cuda::ScanPlan plan = cuda::plan_scan(p, properties);
              INFO("state " << state << " dim " << dim << " complex " << complex << " rule " << rule);
              CHECK(plan.lanes * plan.per_lane >= state);
              CHECK((plan.lanes & (plan.lanes - 1)) == 0);
              CHECK(plan.spans * plan.span_channels == dim);
              CHECK(plan.blocks_per_span * plan.groups * (32 / plan.lanes) >= plan.span_channels);
              CHECK(plan.groups * plan.times * 32 <= plan.max_threads);
              CHECK(cuda::scan_layout(p, plan).bytes() <= properties.max_shared_per_block);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("what decides a scan's rounding does not depend on the batch", "[cuda][scan]") {
  for (const std::int64_t seq : {1, 60, 64, 65, 1024, 70001}) {
    for (const std::int64_t dim : {1, 64, 512, 1536, 20000}) {
      for (const std::int64_t state : {3, 16, 33, 256}) {
        std::set<std::pair<bool, int>> plans;
        for (const std::int64_t batch : {1, 2, 8, 64, 4096}) {
          const cuda::ScanPlan plan = cuda::plan_scan(kind(batch, seq, dim, state), device(132, 227));
          plans.emplace(plan.sequential, plan.sequential ? 0 : plan.steps);
          // Two states a lane or more: a lane's sum always starts with pairs.
          if (state > 1) CHECK(plan.per_lane >= 2);
        }
        CHECK(plans.size() == 1);
      }
    }
  }
}

TEST_CASE("blocks do not cross the groups of b and c", "[cuda][scan]") {
  ScanProblem p = kind(2, 100, 42, 16);
  p.b_layout.groups = 2, p.c_layout.groups = 3;
  const cuda::ScanPlan plan = cuda::plan_scan(p, device(132, 227));
  CHECK(plan.span_channels == 7);
  CHECK(plan.spans == 6);
}

TEST_CASE("a batch beyond one grid is cut into several launches", "[cuda][scan]") {
  const ScanProblem p = kind((std::int64_t{1} << 31) + 5, 1, 8, 16);
  const auto launches = cuda::scan_launches(device(132, 227), p, {});
  REQUIRE(launches.size() == 2);
  CHECK(std::int64_t{launches[0].grid_x} + launches[1].grid_x == p.batch);
}

TEST_CASE("a slice of the batch reads and writes its own sequences", "[cuda][scan]") {
  ScanSpec spec;
  spec.batch = 5;
  spec.z = spec.initial_state = true;
  spec.b_groups = 0;
  const ScanCase whole(spec);
  const ScanProblem p = whole.problem();
  const ScanExpected all = expect(p), part = expect(cuda::slice_batch(p, 2, 3));
  const std::size_t row = static_cast<std::size_t>(spec.seq * spec.dim);
  CHECK(std::vector<double>(all.y.begin() + static_cast<std::ptrdiff_t>(2 * row), all.y.end()) == part.y);
  std::vector<float> y(5 * row), last(static_cast<std::size_t>(p.state_floats()));
  core::ScanOutputs out;
  out.y = y.data(), out.final_state = last.data();
  const core::ScanOutputs slice = cuda::slice_batch(p, out, 2);
  CHECK(slice.y == y.data() + 2 * row);
  CHECK(slice.final_state == last.data() + 2 * spec.dim * spec.state);
  CHECK(slice.y_reverse == nullptr);
  CHECK(slice.states == nullptr);
}

}  // namespace
}  // namespace exphil::test
