// The operator of Mamba-2 on the CPU against the scalar reference, on every SIMD target that this machine
// has, and its bits.
#include "host/ssd/scan.hpp"

#include "core/work/parallel.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/ssd_case.hpp"

namespace exphil::test {
namespace {

using core::Dtype;
using Id = SsdId;

const RunSsd kForward = host::ssd_scan, kGradient = host::ssd_scan_grad;

std::string mismatch(const SsdSpec& spec) {
  const std::string forward = ssd_mismatch({spec, false}, kForward);
  return forward.empty() ? ssd_mismatch({spec, true}, kGradient) : forward;
}

TEST_CASE("the operator of Mamba-2 on the host: types, options and sizes", "[ssd]") {
  for_each_target([] {
    SsdSpec spec;
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      for (const int skips : {0, 1, 2}) {
        for (const bool more : {false, true}) {
          spec = {}, spec.dtype = dtype, spec.skips = skips;
          spec.z = spec.states = more;
          spec.dt_bias = skips != 1;
          if (skips > 0) spec.options = bounded_softplus();
          CAPTURE(static_cast<int>(dtype), skips, more);
          CHECK(mismatch(spec) == "");
        }
      }
    }
    spec = {};
    for (const std::int64_t headdim : {1, 16, 63, 64, 65, 130}) {
      spec.headdim = headdim;
      CHECK(mismatch(spec) == "");
    }
    spec = {};
    for (const std::int64_t state : {1, 15, 16, 17, 128, 256}) {
      spec.state = state;
      CHECK(mismatch(spec) == "");
    }
    spec = {};
    for (const std::int64_t seq : {0, 1, 15, 16, 17, 32, 33, 97}) {
      spec.seq = seq;
      CHECK(mismatch(spec) == "");
    }
    for (const std::int64_t groups : {1, 2, 6}) {
      spec = {}, spec.heads = 6, spec.groups = groups, spec.headdim = 70;
      CHECK(mismatch(spec) == "");
    }
  });
}

// More sequences than one slice of what the gradient adds up later, and scratch beyond what a thread keeps.
TEST_CASE("the operator of Mamba-2 on the host: long and large", "[ssd]") {
  SsdSpec spec;
  spec.batch = 1, spec.seq = 20001, spec.heads = 1, spec.groups = 1, spec.headdim = 8, spec.state = 8;
  CHECK(mismatch(spec) == "");
  spec.batch = 2, spec.seq = 12000, spec.heads = 32, spec.headdim = 1, spec.state = 2;
  spec.z = spec.states = false;
  CHECK(mismatch(spec) == "");
}

TEST_CASE("the operator of Mamba-2 on the host has the same bits with any threads and in any batch",
          "[ssd]") {
  SsdSpec spec;
  spec.batch = 5, spec.seq = 40, spec.heads = 6, spec.headdim = 70, spec.state = 20;
  const SsdCase forward(spec, false), gradient(spec, true);
  core::set_threads(1);
  const SsdResults one = run_ssd(forward, kForward), one_back = run_ssd(gradient, kGradient);
  core::set_threads(0);
  const SsdResults all = run_ssd(forward, kForward), all_back = run_ssd(gradient, kGradient);
  CHECK(one == all);
  CHECK(one_back == all_back);
  // The first sequence alone: the tensors of a smaller batch begin with the same numbers.
  spec.batch = 1;
  const SsdResults alone = run_ssd({spec, false}, kForward), alone_back = run_ssd({spec, true}, kGradient);
  const auto begins = [](const std::vector<float>& whole, const std::vector<float>& first) {
    return !first.empty() && std::equal(first.begin(), first.end(), whole.begin());
  };
  for (const Id id : {Id::y, Id::final_state}) CHECK(begins(all[id], alone[id]));
  for (const Id id : {Id::grad_x, Id::grad_dt, Id::grad_b, Id::grad_c, Id::grad_z, Id::grad_initial_state}) {
    CHECK(begins(all_back[id], alone_back[id]));
  }
}

TEST_CASE("each result of the operator of Mamba-2 on the host alone has the bits that it has with others",
          "[ssd]") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16}) {
    SsdSpec spec;
    spec.dtype = dtype;
    for (const bool gradient : {false, true}) {
      const RunSsd& run = gradient ? kGradient : kForward;
      const SsdCase test(spec, gradient);
      const SsdResults all = run_ssd(test, run);
      for (const Id id : core::all_operands<Id>()) {
        if (all[id].empty()) continue;
        CHECK(run_ssd(test, run, {id})[id] == all[id]);
      }
    }
  }
}

}  // namespace
}  // namespace exphil::test
