// The plans of scans that are parallel in time; needs no device.
#include "cuda/scan/chunked.hpp"

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
using formulas::Discretization;

ScanShape chunked(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state,
                  bool complex = false) {
  ScanShape p = kind(batch, seq, dim, state);
  p.complex = complex;
  p.options.algorithm = core::ScanAlgorithm::chunked;
  return p;
}

TEST_CASE("a chunked plan covers every state and channel and fits the device", "[cuda][scan]") {
  for (const auto& properties : {device(132, 227, 9), device(40, 64, 7), device(1, 48, 8)}) {
    for (const std::int64_t state : {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 128, 256}) {
      for (const std::int64_t dim : {1, 3, 31, 64, 65, 1031}) {
        for (const std::int64_t seq : {0, 1, 60, 1000, 70001}) {
          for (int rule = 0; rule < 6; ++rule) {
            ScanShape p = chunked(3, seq, dim, state, rule % 2 == 1);
            p.options.discretization = static_cast<Discretization>(rule);
            const cuda::LaunchPlan plan = cuda::kChunkedScan.plan(p, properties, nullptr);
            INFO("state " << state << " dim " << dim << " seq " << seq << " rule " << rule);
            const auto of = [&](const char* name) { return number_of(plan.spec, name); };
            const int channel_warps = of("CHANNEL_WARPS"), time_warps = of("TIME_WARPS");
            CHECK(plan.cut.spans * plan.cut.span_channels == dim);
            CHECK(plan.cut.blocks_per_span * channel_warps * (32 / of("CHUNKS")) >= plan.cut.span_channels);
            CHECK(channel_warps * time_warps * of("MIN_BLOCKS") <= 12);  // 168 registers a lane
            CHECK((channel_warps == 1 || time_warps <= 15));             // named barriers
            CHECK(plan.block.y == static_cast<unsigned>(channel_warps));
            CHECK(plan.block.z == static_cast<unsigned>(time_warps));
            CHECK(plan.cluster == of("CLUSTER_BLOCKS"));
            CHECK((properties.compute_major >= 9 || plan.cluster == 1));
            CHECK(of("STAGED_STATES") % of("STATES_PER_PASS") == 0);
            CHECK(plan.shared_bytes <= static_cast<std::size_t>(properties.max_shared_per_block));
            // One buffer only where no second copy follows.
            const std::int64_t room = std::int64_t{of("STEPS")} * of("CHUNKS") * time_warps * plan.cluster;
            CHECK((of("BUFFERS") == 2 || (seq <= room && of("STAGED_STATES") >= state)));
          }
        }
      }
    }
  }
}

TEST_CASE("a chunked scan's rounding does not depend on the batch", "[cuda][scan]") {
  const cuda::ChunkedTuning chunks;
  for (const std::int64_t seq : {65, 1000, 1024, 4097, 70000}) {
    for (const std::int64_t dim : {1, 64, 511, 512, 1536, 16000}) {
      std::set<std::pair<std::string, std::string>> cuts;
      for (const std::int64_t batch : {1, 2, 8, 64, 4096}) {
        const cuda::KernelSpec spec =
            cuda::plan_scan(chunked(batch, seq, dim, 16), device(132, 227, 9), &chunks).spec;
        REQUIRE(spec.file == "scan/chunked.cu");
        cuts.emplace(define_of(spec, "STEPS"), define_of(spec, "CHUNKS"));
      }
      INFO("seq " << seq << " dim " << dim);
      CHECK(cuts.size() == 1);
    }
  }
}

TEST_CASE("a chunked scan's grid has a cluster's blocks for every block of channels", "[cuda][scan]") {
  const ScanShape p = chunked(1, 65536, 1536, 16);
  const cuda::LaunchPlan plan = cuda::plan_scan(p, device(132, 227, 9));
  const auto launches = cuda::scan_launches(plan, p);
  REQUIRE(launches.size() == 1);
  const int blocks = number_of(plan.spec, "CLUSTER_BLOCKS");
  CHECK(blocks > 1);  // 1536 channels alone would not fill the device
  CHECK(launches[0].grid.x == static_cast<unsigned>(launches[0].arguments.blocks_per_batch * blocks));
  CHECK(launches[0].grid.x >= 100);
}

TEST_CASE("elements are copied as wide as address, channels and blocks allow", "[cuda][scan]") {
  const auto piece = [](std::int64_t dim, std::uintptr_t offset, core::Dtype dtype, int groups) {
    ScanShape p = chunked(2, 1000, dim, 16);
    p.dtype = dtype, p.b_layout.groups = groups;
    p.add(core::ScanOperand::x, core::alignment_of(4096 + offset));
    p.add(core::ScanOperand::dt, core::alignment_of(4096 + offset));
    return define_of(cuda::plan_scan(p, device(132, 227, 9)).spec, "PIECE");
  };
  CHECK(piece(512, 0, core::Dtype::f32, 1) == "4");
  CHECK(piece(512, 0, core::Dtype::bf16, 1) == "8");
  CHECK(piece(512, 8, core::Dtype::f32, 1) == "2");
  CHECK(piece(513, 0, core::Dtype::f32, 1) == "1");
  CHECK(piece(514, 0, core::Dtype::f16, 1) == "2");
  CHECK(piece(514, 2, core::Dtype::f16, 1) == "1");
  CHECK(piece(42, 0, core::Dtype::f32, 7) == "2");  // six channels to a group of b
}

TEST_CASE("forced cuts are used unchanged", "[cuda][scan]") {
  cuda::ChunkedTuning tuning;
  tuning.channel_warps = 2, tuning.time_warps = 3, tuning.cluster_blocks = 4;
  tuning.chunks = 8, tuning.steps = 8, tuning.states_per_pass = 1, tuning.min_blocks = 1;
  const cuda::LaunchPlan plan = cuda::plan_scan(chunked(1, 10000, 256, 16), device(132, 227, 9), &tuning);
  CHECK(number_of(plan.spec, "CHANNEL_WARPS") == 2);
  CHECK(number_of(plan.spec, "TIME_WARPS") == 3);
  CHECK(number_of(plan.spec, "CLUSTER_BLOCKS") == 4);
  CHECK(number_of(plan.spec, "CHUNKS") == 8);
  CHECK(number_of(plan.spec, "STEPS") == 8);
  CHECK(number_of(plan.spec, "STATES_PER_PASS") == 1);
  CHECK(number_of(plan.spec, "MIN_BLOCKS") == 1);
}

}  // namespace
}  // namespace exphil::test
