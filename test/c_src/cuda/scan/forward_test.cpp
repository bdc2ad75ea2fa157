// Which kernel runs a scan, the plans of the general one, and its slices of the batch; needs no device.
#include "cuda/scan/forward.hpp"

#include <set>
#include <string>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/scan/kinds.hpp"
#include "support/catch.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {
namespace {

using core::ScanShape;
using formulas::Discretization;

TEST_CASE("a general plan covers every state and channel and fits the device", "[cuda][scan]") {
  for (const auto& properties : {device(132, 227), device(40, 64), device(1, 48)}) {
    for (const std::int64_t state : {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 128, 256}) {
      for (const std::int64_t dim : {1, 3, 31, 64, 65, 1031}) {
        for (const bool complex : {false, true}) {
          for (int rule = 0; rule < 6; ++rule) {
            for (const std::int64_t seq : {0, 1, 60, 100000}) {
              ScanShape p = kind(3, seq, dim, state);
              p.complex = complex;
              p.options.discretization = static_cast<Discretization>(rule);
              const cuda::LaunchPlan plan = cuda::kGeneralScan.plan(p, properties, nullptr);
              INFO("state " << state << " dim " << dim << " complex " << complex << " rule " << rule);
              CHECK(plan.spec.file == "scan/general.cu");
              const int lanes = number_of(plan.spec, "LANES"), per_lane = number_of(plan.spec, "PER_LANE");
              CHECK(lanes * per_lane >= state);
              // At least two states per lane: a lane's sum always starts with pairs.
              if (state > 1) CHECK(per_lane >= 2);
              CHECK((lanes & (lanes - 1)) == 0);
              CHECK(plan.cut.spans * plan.cut.span_channels == dim);
              CHECK(plan.cut.blocks_per_span * plan.block.y * (32 / lanes) >= plan.cut.span_channels);
              CHECK(plan.block.z == 1);
              CHECK(plan.cluster == 1);
              CHECK(plan.block.y * 32 <= static_cast<unsigned>(number_of(plan.spec, "MAX_THREADS")));
              CHECK(plan.shared_bytes <= static_cast<std::size_t>(properties.max_shared_per_block));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("whether a scan is sequential does not depend on the batch", "[cuda][scan]") {
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
TEST_CASE("a scan beyond 31 bits is sequential even where chunked is forced", "[cuda][scan]") {
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
  for (const cuda::ScanKernel* kernel : {&cuda::kGeneralScan, &cuda::kChunkedScan}) {
    const cuda::LaunchPlan plan = kernel->plan(p, device(132, 227), nullptr);
    CHECK(plan.cut.span_channels == 7);
    CHECK(plan.cut.spans == 6);
  }
}

TEST_CASE("the first kernel of the list that supports a scan runs it", "[cuda][scan]") {
  const auto hopper = device(132, 227, 9);
  const auto name = [&](const ScanShape& p, const cuda::ScanTuning* tuning = nullptr) {
    return cuda::plan_scan(p, hopper, tuning).spec.entry;
  };
  CHECK(name(kind(1, 1024, 256, 16)) == "selective_scan_short");
  CHECK(name(kind(1, 1024, 512, 16)) == "selective_scan_chunked");
  CHECK(name(kind(32, 60, 512, 16)) == "selective_scan_wide");
  CHECK(name(kind(32, 60, 511, 16)) == "selective_scan");
  ScanShape matrix = kind(2, 60, 8, 4);
  matrix.full_matrix = true, matrix.options.discretization = Discretization::bilinear;
  CHECK(name(matrix) == "selective_scan_matrix");
  // Tuning names its kernel, which must support the scan.
  const cuda::ChunkedTuning chunked;
  const cuda::GeneralTuning general;
  CHECK(name(kind(1, 1024, 256, 16), &chunked) == "selective_scan_chunked");
  CHECK(name(kind(32, 60, 512, 16), &general) == "selective_scan");
  const core::Error error = thrown_by([&] { name(kind(32, 60, 512, 16), &chunked); });
  CHECK(error.kind() == core::ErrorKind::unsupported);
  CHECK(contains(error.what(), "chunked"));
}

TEST_CASE("every diagonal scan has a kernel, and so has every full matrix", "[cuda][scan]") {
  std::set<std::string> used;
  for (const auto& properties : {device(132, 227, 9), device(40, 64, 7)}) {
    for (const std::int64_t seq : {0, 1, 60, 1000, 70001}) {
      for (const std::int64_t dim : {1, 2, 65, 512, 20000}) {
        for (const std::int64_t state : {1, 3, 4, 16, 32, 256}) {
          for (const bool full : {false, true}) {
            ScanShape p = kind(2, seq, dim, state);
            p.full_matrix = full && state <= 32;
            if (p.full_matrix) p.options.discretization = Discretization::bilinear;
            int taken = 0;
            for (const cuda::ScanKernel* kernel : cuda::kForward) taken += kernel->takes(p, properties);
            INFO("seq " << seq << " dim " << dim << " state " << state << " full " << full);
            CHECK(taken > 0);
            used.insert(cuda::plan_scan(p, properties).spec.file);
          }
        }
      }
    }
  }
  CHECK(used.size() == std::size(cuda::kForward));  // no kernel of the list is left out
}

TEST_CASE("a batch beyond one grid is cut into several launches", "[cuda][scan]") {
  const ScanShape p = kind((std::int64_t{1} << 31) + 5, 1, 8, 16);
  const cuda::LaunchPlan plan = cuda::plan_scan(p, device(132, 227));
  core::ScanOperands<CUdeviceptr> on_device;
  on_device[core::ScanOperand::x] = 4096, on_device[core::ScanOperand::a] = 512;
  const auto launches = cuda::scan_launches(plan, p, on_device);
  REQUIRE(launches.size() == 2);
  CHECK(std::int64_t{launches[0].grid.x} + launches[1].grid.x == p.batch);
  // The second launch begins with the first sequence after the first launch; shared tensors stay the same.
  const auto first = reinterpret_cast<std::uintptr_t>(launches[0].arguments.x);
  CHECK(first == 4096);
  CHECK(reinterpret_cast<std::uintptr_t>(launches[1].arguments.x) == 4096 + launches[0].grid.x * 8ull * 4);
  CHECK(reinterpret_cast<std::uintptr_t>(launches[1].arguments.a) == 512);
}

TEST_CASE("a slice of the batch reads its own sequences", "[cuda][scan]") {
  ScanSpec spec;
  spec.batch = 5;
  spec.z = spec.initial_state = true;
  spec.b_groups = 0;
  const ScanCase full(spec);
  const ScanExpected all = expect(full.call()), part = expect(slice_of(full.call(), 2, 3));
  const std::size_t row = static_cast<std::size_t>(spec.seq * spec.dim);
  CHECK(std::vector<double>(all.y.begin() + static_cast<std::ptrdiff_t>(2 * row), all.y.end()) == part.y);
}

}  // namespace
}  // namespace exphil::test
