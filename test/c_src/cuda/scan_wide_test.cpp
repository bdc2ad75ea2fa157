// Which scans the wide kernel takes and how they are cut: needs no device.
#include "cuda/scan_wide.hpp"

#include <set>
#include <tuple>

#include "cuda/scan_launcher.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::ScanOutputs;
using core::ScanProblem;

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

TEST_CASE("the wide kernel takes pairs of channels with states in fours", "[cuda][scan]") {
  const ScanOutputs out;
  CHECK(cuda::scans_wide(kind(8, 1024, 512, 16), out, true));
  CHECK(cuda::scans_wide(kind(8, 60, 2, 4), out, true));
  CHECK_FALSE(cuda::scans_wide(kind(8, 60, 2, 4), out, false));    // b and c are not aligned
  CHECK_FALSE(cuda::scans_wide(kind(8, 60, 513, 16), out, true));  // an odd channel would be left
  CHECK_FALSE(cuda::scans_wide(kind(8, 60, 512, 17), out, true));
  CHECK_FALSE(cuda::scans_wide(kind(8, 60, 512, 48), out, true));  // 12 lanes do not divide a warp
  CHECK_FALSE(cuda::scans_wide(kind(8, 1024, 256, 16), out, true));
  CHECK_FALSE(cuda::scans_wide(kind(1, 65536, 1536, 16), out, true));
  ScanProblem p = kind(8, 60, 512, 16);
  p.complex = true;
  CHECK_FALSE(cuda::scans_wide(p, out, true));
  p.complex = false, p.c_layout.constant = true;
  CHECK_FALSE(cuda::scans_wide(p, out, true));
  p.c_layout.constant = false, p.b_layout.groups = 512;  // one channel to a group
  CHECK_FALSE(cuda::scans_wide(p, out, true));
  p.b_layout.groups = 1;
  const float element = 0.0f;
  p.x = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(&element) / 8 * 8 + 4);
  CHECK_FALSE(cuda::scans_wide(p, out, true));  // x starts between two pairs
  // The same y, bit for bit, whether or not the states are asked for.
  float states = 0.0f;
  ScanOutputs with_states;
  with_states.states = &states;
  CHECK(cuda::scans_wide(kind(8, 60, 512, 16), with_states, true));
}

TEST_CASE("a wide plan covers every channel and fits the device", "[cuda][scan]") {
  for (const auto& properties : {device(132, 227), device(40, 64), device(1, 48)}) {
    for (const std::int64_t state : {4, 8, 16, 32, 64, 128}) {
      for (const std::int64_t dim : {2, 62, 512, 1030}) {
        for (const std::int64_t seq : {0, 1, 60, 1000}) {
          const ScanProblem p = kind(3, seq, dim, state);
          const cuda::ScanPlan plan = cuda::plan_wide(p, properties);
          INFO("state " << state << " dim " << dim << " seq " << seq);
          CHECK(plan.blocks_per_span * plan.groups * 2 * (128 / state) >= dim);
          CHECK(plan.groups * plan.times * plan.min_blocks * 32 <= 512);
          CHECK(plan.times <= 15);
          CHECK((plan.sequential ? plan.times == 1 : true));
          CHECK(cuda::wide_shared_bytes(p, plan) <=
                static_cast<std::size_t>(properties.max_shared_per_block));
        }
      }
    }
  }
}

TEST_CASE("what decides a wide scan's rounding does not depend on the batch", "[cuda][scan]") {
  for (const std::int64_t seq : {1, 60, 64, 65, 1024, 70000}) {
    for (const std::int64_t dim : {2, 64, 512, 1536, 20000}) {
      std::set<std::tuple<std::string, std::string, std::string>> kernels;
      for (const std::int64_t batch : {1, 2, 8, 64, 4096}) {
        const ScanProblem p = kind(batch, seq, dim, 16);
        const cuda::KernelSpec spec = cuda::scan_launches(device(132, 227), p, {}).front().spec;
        std::string steps, sequential;
        for (const std::string& define : spec.defines) {
          if (define.rfind("STEPS=", 0) == 0) steps = define;
          if (define.rfind("SEQUENTIAL=", 0) == 0) sequential = define;
        }
        kernels.emplace(spec.file, steps, sequential);
      }
      INFO("seq " << seq << " dim " << dim);
      CHECK(kernels.size() == 1);
    }
  }
}

}  // namespace
}  // namespace exphil::test
