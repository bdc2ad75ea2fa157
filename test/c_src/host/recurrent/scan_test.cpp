// The fused recurrent operators on the CPU against the scalar reference, on every SIMD target that this
// machine has, and their bits.
#include "host/recurrent/scan.hpp"

#include "core/work/parallel.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/recurrent_case.hpp"

namespace exphil::test {
namespace {

using core::Dtype;
using Id = RecurrentId;

const RunRecurrent kForward = host::recurrent_scan, kGradient = host::recurrent_scan_grad;

std::string mismatch(const RecurrentKind& kind, const RecurrentSizes& sizes) {
  const std::string forward = recurrent_mismatch({kind, sizes, false}, kForward);
  return forward.empty() ? recurrent_mismatch({kind, sizes, true}, kGradient) : forward;
}

TEST_CASE("fused operators on the host: every operator, type and width", "[recurrent]") {
  for_each_target([] {
    for (const RecurrentKind& kind : recurrent_kinds()) {
      CAPTURE(name_of(kind));
      for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        for (const std::int64_t hidden : {1, 3, 16, 17, 129}) {
          for (const bool states : {false, true}) {
            CHECK(mismatch(kind, {3, 9, hidden, dtype, states}) == "");
          }
        }
      }
      for (const std::int64_t seq : {0, 1, 2, 61}) CHECK(mismatch(kind, {2, seq, 8}) == "");
      CHECK(mismatch(kind, {53, 3, 20}) == "");
    }
  });
}

// Beyond the floats that a thread keeps for the states of a sweep.
TEST_CASE("fused operators on the host: a long sequence", "[recurrent]") {
  for (const RecurrentKind& kind : recurrent_kinds()) {
    if (core::recurrent_row(kind.op).dense()) continue;
    CAPTURE(name_of(kind));
    CHECK(mismatch(kind, {1, 70001, 17}) == "");
  }
}

TEST_CASE("fused operators on the host have the same bits with any threads and in any batch", "[recurrent]") {
  for (const RecurrentKind& kind : recurrent_kinds()) {
    CAPTURE(name_of(kind));
    const RecurrentCase forward(kind, {37, 40, 150}, false), gradient(kind, {37, 40, 150}, true);
    core::set_threads(1);
    const RecurrentResults one = run_recurrent(forward, kForward),
                           one_back = run_recurrent(gradient, kGradient);
    core::set_threads(0);
    const RecurrentResults all = run_recurrent(forward, kForward),
                           all_back = run_recurrent(gradient, kGradient);
    CHECK(one == all);
    CHECK(one_back == all_back);
    // The first sequence alone: the tensors of a smaller batch begin with the same numbers.
    const RecurrentResults alone = run_recurrent(RecurrentCase(kind, {1, 40, 150}, true), kGradient);
    for (const Id id : {Id::grad_x0, Id::grad_h0}) {
      const std::vector<float> first(all_back[id].begin(),
                                     all_back[id].begin() + static_cast<std::ptrdiff_t>(alone[id].size()));
      CHECK(first == alone[id]);
    }
  }
}

TEST_CASE("the gradient on the host from the operator's own results has the same bits", "[recurrent]") {
  for (const RecurrentKind& kind : recurrent_kinds()) {
    CAPTURE(name_of(kind));
    const RecurrentCase forward(kind, {2, 9, 33}, false);
    RecurrentCase gradient(kind, {2, 9, 33}, true);
    const RecurrentResults again = run_recurrent(gradient, kGradient);
    gradient.give_h(run_recurrent(forward, kForward)[Id::h]);
    CHECK(run_recurrent(gradient, kGradient) == again);
  }
}

TEST_CASE("each gradient on the host alone has the bits that it has with the others", "[recurrent]") {
  for (const RecurrentKind& kind : recurrent_kinds()) {
    CAPTURE(name_of(kind));
    const RecurrentCase test(kind, {2, 5, 19}, true);
    const RecurrentResults all = run_recurrent(test, kGradient);
    for (const Id id : core::all_operands<Id>()) {
      if (all[id].empty()) continue;
      CHECK(run_recurrent(test, kGradient, {id})[id] == all[id]);
    }
  }
}

}  // namespace
}  // namespace exphil::test
