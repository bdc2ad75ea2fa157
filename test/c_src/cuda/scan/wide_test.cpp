// Which scans the wide kernel supports, and its plans; needs no device.
#include "cuda/scan/wide.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "cuda/scan/forward.hpp"
#include "cuda/scan/kinds.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::ScanShape;

bool takes(const ScanShape& p) {
  return cuda::kWideScan.takes(p, device(132, 227));
}

cuda::LaunchPlan plan_wide(const ScanShape& p, const cuda::DeviceProperties& properties,
                           const cuda::WideTuning& tuning = {}) {
  return cuda::kWideScan.plan(p, properties, &tuning);
}

int warps_of(const cuda::LaunchPlan& plan) {
  return number_of(plan.spec, "CHANNEL_WARPS");
}

TEST_CASE("the wide kernel supports pairs of channels with states in fours", "[cuda][scan]") {
  CHECK(takes(kind(8, 60, 512, 16)));
  CHECK(takes(kind(8, 60, 2, 4)));
  ScanShape unaligned = kind(8, 60, 2, 4);
  unaligned.add(core::ScanOperand::c, 8);  // less than four floats
  CHECK_FALSE(takes(unaligned));
  CHECK_FALSE(takes(kind(8, 60, 513, 16)));  // an odd channel would be left
  CHECK_FALSE(takes(kind(8, 60, 512, 17)));
  CHECK_FALSE(takes(kind(8, 60, 512, 48)));  // 12 lanes do not divide a warp
  CHECK_FALSE(takes(kind(8, 60, 512, 256)));
  ScanShape p = kind(8, 60, 512, 16);
  p.complex = true;
  CHECK_FALSE(takes(p));
  p.complex = false, p.c_layout.constant = true;
  CHECK_FALSE(takes(p));
  p.c_layout.constant = false, p.b_layout.groups = 512;  // one channel per group
  CHECK_FALSE(takes(p));
  p.b_layout.groups = 1;
  p.add(core::ScanOperand::x, 4);
  CHECK_FALSE(takes(p));  // x starts between two pairs
  ScanShape halves = kind(8, 60, 512, 16);
  halves.dtype = core::Dtype::f16;
  CHECK(takes(halves));
  halves.seq = 1024, halves.options.algorithm = core::ScanAlgorithm::sequential;
  CHECK(takes(halves));
  // The same y, bit for bit, with and without the states.
  ScanShape with_states = kind(8, 60, 512, 16);
  with_states.add(core::ScanOperand::states);
  CHECK(takes(with_states));
}

TEST_CASE("the wide kernel supports sequential scans only", "[cuda][scan]") {
  CHECK_FALSE(takes(kind(8, 1024, 512, 16)));
  CHECK_FALSE(takes(kind(1, 65536, 1536, 16)));
  CHECK(takes(kind(1, 1024, 20000, 16)));  // channels enough to fill a device
  ScanShape p = kind(8, 1024, 512, 16);
  p.options.algorithm = core::ScanAlgorithm::sequential;
  CHECK(takes(p));
  p.seq = 60, p.options.algorithm = core::ScanAlgorithm::chunked;
  CHECK_FALSE(takes(p));
}

TEST_CASE("a wide plan covers every channel and fits the device", "[cuda][scan]") {
  for (const auto& properties : {device(132, 227), device(40, 64), device(1, 48)}) {
    for (const std::int64_t state : {4, 8, 16, 32, 64, 128}) {
      for (const std::int64_t dim : {2, 62, 512, 1030}) {
        for (const std::int64_t seq : {0, 1, 60, 1000}) {
          const ScanShape p = kind(3, seq, dim, state);
          const cuda::LaunchPlan plan = plan_wide(p, properties);
          const int steps = number_of(plan.spec, "STEPS");
          INFO("state " << state << " dim " << dim << " seq " << seq);
          CHECK(plan.cut.blocks_per_span * warps_of(plan) * 2 * (128 / state) >= dim);
          CHECK(warps_of(plan) * number_of(plan.spec, "MIN_BLOCKS") * 32 <= 384);  // 168 registers a lane
          CHECK(plan.block.y == static_cast<unsigned>(warps_of(plan)));
          CHECK(plan.block.z == 1);
          // Three blocks fit, and steps divide evenly over lanes.
          CHECK(plan.shared_bytes <= static_cast<std::size_t>(properties.max_shared_per_block) / 3);
          CHECK(steps % std::min<std::int64_t>(state / 4, steps) == 0);
        }
      }
    }
  }
}

TEST_CASE("a wide block has no more warps than its channels need", "[cuda][scan]") {
  CHECK(warps_of(plan_wide(kind(8, 60, 512, 16), device(132, 227))) == 4);
  CHECK(warps_of(plan_wide(kind(8, 60, 34, 16), device(132, 227))) == 4);
  CHECK(warps_of(plan_wide(kind(8, 60, 32, 16), device(132, 227))) == 2);
  CHECK(warps_of(plan_wide(kind(8, 60, 6, 128), device(132, 227))) == 4);
  CHECK(warps_of(plan_wide(kind(8, 60, 2, 128), device(132, 227))) == 1);
}

TEST_CASE("the wide kernel copies no less than pairs of elements", "[cuda][scan]") {
  const auto piece = [](std::int64_t dim, std::uintptr_t offset, core::Dtype dtype, std::int64_t state) {
    ScanShape p = kind(2, 60, dim, state);
    p.dtype = dtype;
    p.add(core::ScanOperand::x, core::alignment_of(4096 + offset));
    p.add(core::ScanOperand::dt, core::alignment_of(4096 + offset));
    const cuda::KernelSpec spec = cuda::plan_scan(p, device(132, 227)).spec;
    REQUIRE(spec.file == "scan/wide.cu");
    return define_of(spec, "PIECE");
  };
  CHECK(piece(512, 0, core::Dtype::f32, 16) == "4");
  CHECK(piece(512, 0, core::Dtype::f16, 16) == "8");
  CHECK(piece(512, 8, core::Dtype::f32, 16) == "2");
  CHECK(piece(514, 0, core::Dtype::bf16, 16) == "2");
  CHECK(piece(516, 4, core::Dtype::bf16, 16) == "2");
  CHECK(piece(2, 0, core::Dtype::bf16, 128) == "2");
  CHECK(piece(4, 0, core::Dtype::bf16, 128) == "4");
}

TEST_CASE("a wide plan uses forced values as far as they fit", "[cuda][scan]") {
  cuda::WideTuning tuning;
  tuning.warps = 4, tuning.steps = 32, tuning.min_blocks = 3;
  const cuda::LaunchPlan plan = plan_wide(kind(8, 60, 512, 16), device(132, 227), tuning);
  CHECK(warps_of(plan) == 4);
  CHECK(number_of(plan.spec, "STEPS") == 32);
  CHECK(number_of(plan.spec, "MIN_BLOCKS") == 3);
  CHECK(number_of(plan_wide(kind(8, 60, 512, 128), device(1, 48), tuning).spec, "STEPS") == 8);
}

TEST_CASE("a wide scan's rounding does not depend on the batch", "[cuda][scan]") {
  for (const std::int64_t seq : {1, 60, 64, 65, 1024, 70000}) {
    for (const std::int64_t dim : {2, 64, 512, 1536, 20000}) {
      std::set<std::pair<std::string, std::string>> kernels;
      for (const std::int64_t batch : {1, 2, 8, 64, 4096}) {
        const ScanShape p = kind(batch, seq, dim, 16);
        const cuda::KernelSpec spec = cuda::plan_scan(p, device(132, 227)).spec;
        kernels.emplace(spec.file, define_of(spec, "STEPS"));
        const bool walk = seq <= 64 || dim >= 16384;
        CHECK((spec.file == "scan/wide.cu") == walk);
      }
      INFO("seq " << seq << " dim " << dim);
      CHECK(kernels.size() == 1);
    }
  }
}

}  // namespace
}  // namespace exphil::test
