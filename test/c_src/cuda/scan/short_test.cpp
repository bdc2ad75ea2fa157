// Which scans a cluster takes whole, and how wide its blocks are: needs no device.
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

TEST_CASE("a cluster takes short scans of few channels with states in eights", "[cuda][scan]") {
  CHECK(cuda::scans_short(kind(1, 1024, 256, 16), kHopper));
  CHECK(cuda::scans_short(kind(64, 65, 1, 8), kHopper));
  CHECK(cuda::scans_short(kind(1, 1024, 511, 64), kHopper));
  CHECK_FALSE(cuda::scans_short(kind(1, 1025, 256, 16), kHopper));
  CHECK_FALSE(cuda::scans_short(kind(1, 1024, 512, 16), kHopper));
  CHECK_FALSE(cuda::scans_short(kind(1, 60, 256, 16), kHopper));  // walks
  CHECK_FALSE(cuda::scans_short(kind(1, 1024, 256, 12), kHopper));
  CHECK_FALSE(cuda::scans_short(kind(1, 1024, 256, 72), kHopper));
  ScanShape p = kind(1, 1024, 256, 16);
  p.add(core::ScanOperand::b, 4);
  CHECK_FALSE(cuda::scans_short(p, kHopper));
  p.add(core::ScanOperand::b);
  p.options.discretization = Discretization::bilinear;
  CHECK(cuda::scans_short(p, kHopper));
  p.options.discretization = Discretization::foh;  // its inputs are dear, and computed twice here
  CHECK_FALSE(cuda::scans_short(p, kHopper));
  p.options.discretization = Discretization::zoh, p.complex = true;
  CHECK_FALSE(cuda::scans_short(p, kHopper));
  p.complex = false, p.c_layout.constant = true;
  CHECK_FALSE(cuda::scans_short(p, kHopper));
  p.c_layout.constant = false, p.options.algorithm = core::ScanAlgorithm::sequential;
  CHECK_FALSE(cuda::scans_short(p, kHopper));
  p.seq = 20, p.options.algorithm = core::ScanAlgorithm::chunked;
  CHECK(cuda::scans_short(p, kHopper));
  p.seq = 0;  // nobody would hand the initial state on
  CHECK_FALSE(cuda::scans_short(p, kHopper));
}

TEST_CASE("only a device with room for clusters of eight takes scans whole", "[cuda][scan]") {
  const ScanShape p = kind(1, 1024, 256, 16);
  CHECK_FALSE(cuda::scans_short(p, device(132, 163, 8)));
  CHECK_FALSE(cuda::scans_short(p, device(48, 227, 9)));
  CHECK(cuda::scans_short(p, device(170, 99, 12)));
  CHECK_FALSE(cuda::scans_short(kind(1, 1024, 256, 64), device(170, 99, 12)));  // 150 KB a block
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
            if (!cuda::scans_short(p, properties)) continue;  // 64 states need more shared memory
            ++planned;
            const cuda::ScanPlan plan = cuda::plan_short(p, properties);
            INFO("state " << state << " dim " << dim << " batch " << batch);
            CHECK(plan.spans * plan.span_channels == dim);
            CHECK(plan.blocks_per_span * plan.groups * 4 >= plan.span_channels);
            CHECK(plan.parts * 8 == state);
            CHECK(plan.groups * plan.parts * plan.min_blocks <= 12);  // 168 registers a lane
            CHECK(cuda::short_shared_bytes(p, plan) <=
                  static_cast<std::size_t>(properties.max_shared_per_block));
          }
        }
      }
    }
  }
  CHECK(planned >= 9 * 7 * 2 * 3);  // of ten devices and states
}

TEST_CASE("one sequence of 256 channels has its clusters side by side", "[cuda][scan]") {
  const cuda::ScanPlan plan = cuda::plan_short(kind(1, 1024, 256, 16), kHopper);
  CHECK(plan.blocks_per_batch() * plan.split <= 112);  // 14 of the 15 clusters that fit
  CHECK(plan.min_blocks == 1);
}

TEST_CASE("whether a scan is taken whole does not depend on the batch", "[cuda][scan]") {
  for (const std::int64_t seq : {65, 1000, 1024}) {
    for (const std::int64_t dim : {1, 64, 511}) {
      std::set<std::string> kernels;
      for (const std::int64_t batch : {1, 2, 8, 64, 4096}) {
        const cuda::ScanLaunch launch = cuda::scan_launches(kHopper, kind(batch, seq, dim, 16), {}).front();
        kernels.insert(launch.spec.file);
        CHECK(launch.grid_x % 8 == 0);
        CHECK(launch.block_y ==
              static_cast<unsigned>(std::stoi(define_of(launch.spec, "CHANNEL_WARPS")) * 2));
      }
      CHECK(kernels == std::set<std::string>{"scan/short.cu"});
    }
  }
}

}  // namespace
}  // namespace exphil::test
