// The fused recurrent operators on a real device, and their kernels on the emulated grid.
#include "cuda/recurrent/scan.hpp"

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "support/catch.hpp"
#include "support/recurrent_case.hpp"

namespace exphil::test {
namespace {

using core::Dtype;
using Id = RecurrentId;

void run_on_device(const core::RecurrentCall& call) {
  cuda::run_on_host_tensors(*cuda::Context::open(0), call);
}

std::string mismatch(const RecurrentKind& kind, const RecurrentSizes& sizes) {
  const std::string forward = recurrent_mismatch({kind, sizes, false}, run_on_device);
  return forward.empty() ? recurrent_mismatch({kind, sizes, true}, run_on_device) : forward;
}

// A step, a segment, a tile, and one more or less; groups of channels likewise. walks: gru_scan and lstm_scan
// too.
void check_sizes(std::initializer_list<std::int64_t> steps, bool walks = true) {
  for (const RecurrentKind& kind : recurrent_kinds()) {
    if (!walks && core::recurrent_row(kind.op).dense()) continue;
    CAPTURE(name_of(kind));
    for (const std::int64_t seq : steps) {
      CHECK(mismatch(kind, {2, seq, 33}) == "");
      CHECK(mismatch(kind, {1, seq, 5, Dtype::f32, false}) == "");
    }
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) CHECK(mismatch(kind, {2, 20, 32, dtype}) == "");
  }
}

// The bits of a sequence depend on nothing beside it; its own results save a gradient computing them again.
void check_bits() {
  for (const RecurrentKind& kind : recurrent_kinds()) {
    CAPTURE(name_of(kind));
    const RecurrentResults all = run_recurrent({kind, {3, 70, 33}, true}, run_on_device);
    const RecurrentResults alone = run_recurrent({kind, {1, 70, 33}, true}, run_on_device);
    for (const Id id : {Id::grad_x0, Id::grad_h0}) {
      const std::vector<float> first(all[id].begin(),
                                     all[id].begin() + static_cast<std::ptrdiff_t>(alone[id].size()));
      CHECK(first == alone[id]);
    }
    RecurrentCase gradient(kind, {3, 70, 33}, true);
    gradient.give_h(run_recurrent({kind, {3, 70, 33}, false}, run_on_device)[Id::h]);
    CHECK(run_recurrent(gradient, run_on_device) == all);
    for (const Id id : {Id::grad_x0, Id::grad_x1}) {
      CHECK(run_recurrent(gradient, run_on_device, {id})[id] == all[id]);
    }
  }
}

TEST_CASE("fused operators on the device", "[gpu][recurrent]") {
  if (!have_device()) return;
  check_sizes({0, 1, 7, 8, 9, 63, 64, 65, 1000, 20001});
  check_bits();
}

// Few enough steps for compute-sanitizer's racecheck: .ci/sanitize_gpu. Walks: "walks whose threads meet".
TEST_CASE("fused operators of few steps on the device", "[.racecheck][kernels]") {
  if (!have_device()) return;
  check_sizes({1, 65, 130}, false);
}

TEST_CASE("fused operators with their kernels on the CPU", "[.emulated_recurrent]") {
  emulate_launches();
  check_sizes({0, 1, 9, 65});
  check_bits();
  for (const char* kernel : {"linear", "linear_back", "walk", "walk_back", "weights"}) {
    CHECK(emulated_launches(std::string("recurrent_") + kernel) > 0);
  }
  for (const char* kernel : {"convert_widen", "convert_narrow"}) CHECK(emulated_launches(kernel) > 0);
}

TEST_CASE("the kernels of fused operators run without a GPU", "[cuda][emulated][recurrent]") {
  require_emulated("[.emulated_recurrent]");
}

}  // namespace
}  // namespace exphil::test
