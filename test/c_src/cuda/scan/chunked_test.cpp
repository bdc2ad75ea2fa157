// How a scan that is parallel in time is cut: needs no device.
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
            const cuda::ScanPlan plan = cuda::plan_chunked(p, properties);
            INFO("state " << state << " dim " << dim << " seq " << seq << " rule " << rule);
            CHECK(plan.spans * plan.span_channels == dim);
            CHECK(plan.blocks_per_span * plan.groups * (32 / plan.chunks) >= plan.span_channels);
            CHECK(plan.groups * plan.times * plan.min_blocks <= 12);  // 168 registers a lane
            CHECK((plan.groups == 1 || plan.times <= 15));            // named barriers
            CHECK((properties.compute_major >= 9 || plan.split == 1));
            CHECK(plan.slice % plan.together == 0);
            CHECK(cuda::chunked_shared_bytes(p, plan) <=
                  static_cast<std::size_t>(properties.max_shared_per_block));
            // One buffer only where no copy follows another.
            const std::int64_t room = std::int64_t{plan.steps} * plan.chunks * plan.times * plan.split;
            CHECK((plan.buffers == 2 || (seq <= room && plan.slice >= state)));
          }
        }
      }
    }
  }
}

TEST_CASE("what decides a chunked scan's rounding does not depend on the batch", "[cuda][scan]") {
  cuda::ScanTuning tiles;
  tiles.whole = 0;
  for (const std::int64_t seq : {65, 1000, 1024, 4097, 70000}) {
    for (const std::int64_t dim : {1, 64, 511, 512, 1536, 16000}) {
      std::set<std::pair<std::string, std::string>> cuts;
      for (const std::int64_t batch : {1, 2, 8, 64, 4096}) {
        const cuda::KernelSpec spec =
            cuda::scan_launches(device(132, 227, 9), chunked(batch, seq, dim, 16), {}, tiles).front().spec;
        REQUIRE(spec.file == "scan/chunked.cu");
        cuts.emplace(define_of(spec, "STEPS"), define_of(spec, "CHUNKS"));
      }
      INFO("seq " << seq << " dim " << dim);
      CHECK(cuts.size() == 1);
    }
  }
}

TEST_CASE("a chunked scan's grid has a cluster's blocks for every block of channels", "[cuda][scan]") {
  const auto launches = cuda::scan_launches(device(132, 227, 9), chunked(1, 65536, 1536, 16), {});
  REQUIRE(launches.size() == 1);
  const int split = std::stoi(define_of(launches[0].spec, "CLUSTER_BLOCKS"));
  CHECK(split > 1);  // 1536 channels alone would not fill the device
  CHECK(launches[0].grid_x == static_cast<unsigned>(launches[0].arguments.blocks_per_batch * split));
  CHECK(launches[0].grid_x >= 100);
}

TEST_CASE("elements are copied as wide as address, channels and blocks allow", "[cuda][scan]") {
  const auto piece = [](std::int64_t dim, std::uintptr_t offset, core::Dtype dtype, int groups) {
    ScanShape p = chunked(2, 1000, dim, 16);
    p.dtype = dtype, p.b_layout.groups = groups;
    p.add(core::ScanOperand::x, core::alignment_of(4096 + offset));
    p.add(core::ScanOperand::dt, core::alignment_of(4096 + offset));
    return define_of(cuda::scan_launches(device(132, 227, 9), p, {}).front().spec, "PIECE");
  };
  CHECK(piece(512, 0, core::Dtype::f32, 1) == "4");
  CHECK(piece(512, 0, core::Dtype::bf16, 1) == "8");
  CHECK(piece(512, 8, core::Dtype::f32, 1) == "2");
  CHECK(piece(513, 0, core::Dtype::f32, 1) == "1");
  CHECK(piece(514, 0, core::Dtype::f16, 1) == "2");
  CHECK(piece(514, 2, core::Dtype::f16, 1) == "1");
  CHECK(piece(42, 0, core::Dtype::f32, 7) == "2");  // six channels to a group of b
}

TEST_CASE("forced cuts are taken as they are", "[cuda][scan]") {
  cuda::ScanTuning tuning;
  tuning.groups = 2, tuning.times = 3, tuning.split = 4, tuning.chunks = 8, tuning.steps = 8;
  const cuda::ScanPlan plan = cuda::plan_chunked(chunked(1, 10000, 256, 16), device(132, 227, 9), tuning);
  CHECK(plan.groups == 2);
  CHECK(plan.times == 3);
  CHECK(plan.split == 4);
  CHECK(plan.chunks == 8);
  CHECK(plan.steps == 8);
}

}  // namespace
}  // namespace exphil::test
