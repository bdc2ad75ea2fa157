// The operator of Mamba-2 on a real device, and its kernels on the emulated grid.
#include "cuda/ssd/scan.hpp"

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "support/catch.hpp"
#include "support/ssd_case.hpp"

namespace exphil::test {
namespace {

using core::Dtype;
using Id = SsdId;

void run_on_device(const core::SsdCall& call) {
  cuda::run_on_host_tensors(*cuda::Context::open(0), call);
}

std::string mismatch(const SsdSpec& spec) {
  const std::string forward = ssd_mismatch({spec, false}, run_on_device);
  return forward.empty() ? ssd_mismatch({spec, true}, run_on_device) : forward;
}

// A step, a segment, a stretch, and one more or less.
void check_sizes(std::initializer_list<std::int64_t> steps) {
  SsdSpec spec;
  for (const std::int64_t seq : steps) {
    spec.seq = seq;
    CAPTURE(seq);
    CHECK(mismatch(spec) == "");
  }
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const int skips : {0, 1, 2}) {
      spec = {}, spec.seq = 20, spec.dtype = dtype, spec.skips = skips;
      spec.z = spec.states = skips != 0;
      spec.dt_bias = skips != 1;
      if (skips > 0) spec.options = bounded_softplus();
      CAPTURE(static_cast<int>(dtype), skips);
      CHECK(mismatch(spec) == "");
    }
  }
}

// Rows of one block and of several; states with and without loads of four.
void check_heads(std::initializer_list<std::pair<std::int64_t, std::int64_t>> heads) {
  for (const auto& [headdim, state] : heads) {
    SsdSpec spec;
    spec.headdim = headdim, spec.state = state;
    CAPTURE(headdim, state);
    CHECK(mismatch(spec) == "");
  }
  SsdSpec spec;
  spec.heads = 6, spec.groups = 1;
  CHECK(mismatch(spec) == "");
}

// The bits of a sequence depend on nothing beside it, and those of a result on no other result.
void check_bits() {
  SsdSpec spec;
  spec.batch = 3, spec.headdim = 70, spec.state = 20;
  for (const bool gradient : {false, true}) {
    const SsdResults all = run_ssd({spec, gradient}, run_on_device);
    SsdSpec one = spec;
    one.batch = 1;
    const SsdResults alone = run_ssd({one, gradient}, run_on_device);
    for (const Id id : {Id::y, Id::final_state, Id::grad_x, Id::grad_dt, Id::grad_b, Id::grad_c, Id::grad_z,
                        Id::grad_initial_state}) {
      CHECK((all[id].empty() || std::equal(alone[id].begin(), alone[id].end(), all[id].begin())));
      CHECK(all[id].empty() == alone[id].empty());
    }
    for (const Id id : {Id::y, Id::grad_x, Id::grad_d, Id::grad_dt_bias}) {
      if (!all[id].empty()) CHECK(run_ssd({spec, gradient}, run_on_device, {id})[id] == all[id]);
    }
  }
}

TEST_CASE("the operator of Mamba-2 on the device", "[gpu][ssd]") {
  if (!have_device()) return;
  check_sizes({0, 1, 15, 16, 17, 255, 256, 257, 2000});
  check_heads({{1, 1}, {33, 64}, {64, 128}, {130, 7}, {5, 256}, {200, 16}});
  check_bits();
}

// Several slices of the batch: each has 1 GB of scratch at most.
TEST_CASE("the operator of Mamba-2 on the device in slices of the batch", "[gpu][ssd]") {
  if (!have_device()) return;
  SsdSpec spec;
  spec.batch = 3, spec.seq = 4000, spec.heads = 16, spec.groups = 1, spec.headdim = 64, spec.state = 128;
  const SsdResults all = run_ssd({spec, true}, run_on_device);
  spec.batch = 1;
  const SsdResults alone = run_ssd({spec, true}, run_on_device);
  for (const Id id : {Id::grad_x, Id::grad_dt, Id::grad_b, Id::grad_c, Id::grad_z, Id::grad_initial_state}) {
    CHECK(std::equal(alone[id].begin(), alone[id].end(), all[id].begin()));
  }
}

// Few enough steps for compute-sanitizer's racecheck: .ci/sanitize_gpu.
TEST_CASE("the operator of Mamba-2 in few steps on the device", "[.racecheck][kernels]") {
  if (!have_device()) return;
  check_sizes({1, 33});
}

TEST_CASE("the operator of Mamba-2 with its kernels on the CPU", "[.emulated_ssd]") {
  emulate_launches();
  check_sizes({0, 1, 17, 257});
  check_heads({{33, 64}, {130, 7}});
  check_bits();
  for (const char* kernel :
       {"policy_gradient_heads", "policy_gradient_heads_back", "ssd_active_dt", "ssd_dt_back", "ssd_gate",
        "ssd_gate_back", "ssd_add_parts", "convert_widen", "convert_narrow"}) {
    CHECK(emulated_launches(kernel) > 0);
  }
}

TEST_CASE("the kernels of the operator of Mamba-2 run without a GPU", "[cuda][emulated][ssd]") {
  require_emulated("[.emulated_ssd]");
}

}  // namespace
}  // namespace exphil::test
