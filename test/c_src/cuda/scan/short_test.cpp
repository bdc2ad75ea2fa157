// Which scans the short kernel supports, and the width of its blocks; needs no device.
#include "cuda/scan/short.hpp"

#include <set>
#include <string>
#include <utility>

#include "cuda/scan/forward.hpp"
#include "cuda/scan/kinds.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::ScanShape;
using formulas::Discretization;

const cuda::DeviceProperties kHopper = device(132, 227, 9);

TEST_CASE("the short kernel supports short scans of few channels with states in eights", "[cuda][scan]") {
  CHECK(cuda::kShortScan.takes(kind(1, 1024, 256, 16), kHopper));
  CHECK(cuda::kShortScan.takes(kind(64, 65, 1, 8), kHopper));
  CHECK(cuda::kShortScan.takes(kind(1, 1024, 511, 64), kHopper));
  CHECK_FALSE(cuda::kShortScan.takes(kind(1, 1025, 256, 16), kHopper));
  CHECK_FALSE(cuda::kShortScan.takes(kind(1, 1024, 512, 16), kHopper));
  CHECK_FALSE(cuda::kShortScan.takes(kind(1, 60, 256, 16), kHopper));  // sequential
  CHECK_FALSE(cuda::kShortScan.takes(kind(1, 1024, 256, 12), kHopper));
  CHECK_FALSE(cuda::kShortScan.takes(kind(1, 1024, 256, 72), kHopper));
  ScanShape p = kind(1, 1024, 256, 16);
  p.add(core::ScanOperand::b, 4);
  CHECK_FALSE(cuda::kShortScan.takes(p, kHopper));
  p.add(core::ScanOperand::b);
  p.options.discretization = Discretization::bilinear;
  CHECK(cuda::kShortScan.takes(p, kHopper));
  p.options.discretization = Discretization::foh;  // its inputs are expensive, and computed twice here
  CHECK_FALSE(cuda::kShortScan.takes(p, kHopper));
  p.options.discretization = Discretization::zoh, p.complex = true;
  CHECK_FALSE(cuda::kShortScan.takes(p, kHopper));
  p.complex = false, p.c_layout.constant = true;
  CHECK_FALSE(cuda::kShortScan.takes(p, kHopper));
  p.c_layout.constant = false, p.options.algorithm = core::ScanAlgorithm::sequential;
  CHECK_FALSE(cuda::kShortScan.takes(p, kHopper));
  p.seq = 20, p.options.algorithm = core::ScanAlgorithm::chunked;
  CHECK(cuda::kShortScan.takes(p, kHopper));
  p.seq = 0;  // no block would pass the initial state on
  CHECK_FALSE(cuda::kShortScan.takes(p, kHopper));
}

TEST_CASE("only a device with clusters of eight runs the short kernel", "[cuda][scan]") {
  const ScanShape p = kind(1, 1024, 256, 16);
  CHECK_FALSE(cuda::kShortScan.takes(p, device(132, 163, 8)));
  CHECK_FALSE(cuda::kShortScan.takes(p, device(48, 227, 9)));
  CHECK(cuda::kShortScan.takes(p, device(170, 99, 12)));
  CHECK_FALSE(cuda::kShortScan.takes(kind(1, 1024, 256, 64), device(170, 99, 12)));  // 150 KB a block
}

TEST_CASE("a short scan's blocks cover every channel and fit the device", "[cuda][scan]") {
  int planned = 0;
  for (const auto& properties : {kHopper, device(170, 99, 12)}) {
    for (const std::int64_t state : {8, 16, 24, 32, 64}) {
      for (const std::int64_t dim : {1, 3, 31, 64, 65, 256, 510}) {
        for (const core::Dtype dtype : {core::Dtype::f32, core::Dtype::f16}) {
          for (const std::int64_t batch : {1, 3, 400}) {
            ScanShape p = kind(batch, 1000, dim, state);
            p.dtype = dtype;
            if (!cuda::kShortScan.takes(p, properties)) continue;  // 64 states need more shared memory
            ++planned;
            const cuda::LaunchPlan plan = cuda::kShortScan.plan(p, properties, nullptr);
            INFO("state " << state << " dim " << dim << " batch " << batch);
            const int channel_warps = number_of(plan.spec, "CHANNEL_WARPS");
            CHECK(plan.cut.spans * plan.cut.span_channels == dim);
            CHECK(plan.cut.blocks_per_span * channel_warps * 4 >= plan.cut.span_channels);
            CHECK(plan.block.y * 8 == static_cast<unsigned>(channel_warps * state));
            CHECK(plan.block.y * static_cast<unsigned>(number_of(plan.spec, "MIN_BLOCKS")) <=
                  12);  // 168 registers a lane
            CHECK(plan.shared_bytes <= static_cast<std::size_t>(properties.max_shared_per_block));
          }
        }
      }
    }
  }
  CHECK(planned >= 9 * 7 * 2 * 3);  // of ten devices and states
}

TEST_CASE("one sequence of 256 channels has its clusters side by side", "[cuda][scan]") {
  const cuda::LaunchPlan plan = cuda::plan_scan(kind(1, 1024, 256, 16), kHopper);
  CHECK(plan.blocks_per_sequence() <= 112);  // 14 of the 15 clusters that fit
  CHECK(number_of(plan.spec, "MIN_BLOCKS") == 1);
}

TEST_CASE("whether the short kernel runs a scan does not depend on the batch", "[cuda][scan]") {
  for (const std::int64_t seq : {65, 1000, 1024}) {
    for (const std::int64_t dim : {1, 64, 511}) {
      std::set<std::string> kernels;
      for (const std::int64_t batch : {1, 2, 8, 64, 4096}) {
        const cuda::LaunchPlan plan = cuda::plan_scan(kind(batch, seq, dim, 16), kHopper);
        kernels.insert(plan.spec.file);
        CHECK(plan.grid(batch).x % 8 == 0);
        CHECK(plan.block.y == static_cast<unsigned>(number_of(plan.spec, "CHANNEL_WARPS") * 2));
      }
      CHECK(kernels == std::set<std::string>{"scan/short.cu"});
    }
  }
}

}  // namespace
}  // namespace exphil::test
