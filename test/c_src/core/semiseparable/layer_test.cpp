// The AR-SSM layer's weights, input checks, diagnostics and oracle.
#include "core/semiseparable/layer.hpp"

#include <limits>

#include "core/checkpoint/safetensors.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/semiseparable_case.hpp"

namespace exphil::test {
namespace {

using core::ErrorKind;

TEST_CASE("every dimension of an AR-SSM layer comes from its tensors") {
  const SemiseparableTensors tensors(24, 5, 9);
  const auto weights = core::load_semiseparable(tensors.views(), true);
  CHECK(weights->config.hidden == 24);
  CHECK(weights->config.rank == 5);
  CHECK(weights->config.gate_hidden == 9);
  CHECK(weights->conv.size() == 72);
}

TEST_CASE("a missing, unexpected, misshapen or non-finite tensor of an AR-SSM layer is named") {
  const SemiseparableTensors good(24, 5, 9);
  for (const auto& item : good.views()) {
    SemiseparableTensors tensors = SemiseparableTensors(24, 5, 9);
    tensors.remove(item.first);
    const CaughtError missing = error_of([&] { core::load_semiseparable(tensors.views(), true); });
    CHECK(missing.kind == ErrorKind::invalid_checkpoint);
    CHECK(missing.argument == "tensors");
    CHECK(missing.says(item.first));

    tensors.add(item.first, core::Shape{7, 11}, 1);
    const CaughtError misshapen = error_of([&] { core::load_semiseparable(tensors.views(), true); });
    CHECK(misshapen.kind == ErrorKind::invalid_checkpoint);

    SemiseparableTensors infinite(24, 5, 9);
    infinite.values(item.first)[3] = std::numeric_limits<float>::infinity();
    CHECK(error_of([&] { core::load_semiseparable(infinite.views(), true); }).says(item.first));
    CHECK_FALSE(error_of([&] { core::load_semiseparable(infinite.views(), false); }).thrown);
  }
  SemiseparableTensors spare(24, 5, 9);
  spare.add("V_proj.bias", core::Shape{5}, 1);
  CHECK(error_of([&] { core::load_semiseparable(spare.views(), true); }).says("V_proj.bias"));
}

TEST_CASE("the input of an AR-SSM layer is checked") {
  const core::SemiseparableConfig config{4, 2, 3};
  const std::vector<float> x(24);
  const auto view = [&](const core::Shape& shape, core::Dtype dtype, std::size_t bytes) {
    return core::TensorView{dtype, shape, x.data(), bytes};
  };
  const auto check = [&](const core::TensorView& tensor) {
    return error_of([&] { core::validate_semiseparable(config, tensor, false); });
  };
  CHECK_FALSE(check(view({2, 3, 4}, core::Dtype::f32, 96)).thrown);
  CHECK_FALSE(check(view({2, 0, 4}, core::Dtype::f32, 0)).thrown);
  CHECK(check(view({6, 4}, core::Dtype::f32, 96)).says("{6, 4}"));
  CHECK(check(view({2, 4, 3}, core::Dtype::f32, 96)).argument == "x");
  CHECK(check(view({2, 3, 4}, core::Dtype::f16, 48)).says("f16"));
  CHECK(check(view({2, 3, 4}, core::Dtype::f32, 92)).thrown);
}

TEST_CASE("diagnostics of gates") {
  const std::vector<float> gates = {0.5f, 1.0f, 0.25f, 0.0f, 1.0f, 0.25f};
  float ranks[2];
  core::effective_rank(gates.data(), 2, 3, ranks);
  CHECK(ranks[0] == 1.75f);
  CHECK(ranks[1] == 1.25f);
  CHECK(core::gate_penalty(gates.data(), 6) == 0.5);
  CHECK(core::gate_penalty(nullptr, 0) == 0.0);
}

// A layer small enough to compute by hand: hidden 1, rank 1, gates of 1/2.
TEST_CASE("the oracle of the AR-SSM layer, by hand") {
  core::SemiseparableWeights w;
  w.config = {1, 1, 1};
  w.gate_in = {1.0f}, w.gate_in_bias = {-100.0f};  // relu gives 0
  w.gate_out = {3.0f}, w.gate_out_bias = {0.0f};   // sigmoid(0) = 1/2
  w.u = {2.0f}, w.v = {4.0f};
  w.conv = {10.0f, 100.0f, 1000.0f};
  w.output = {1.0f}, w.output_bias = {0.5f};
  const float x[] = {1.0f, 2.0f, 3.0f};
  // u = x, v = 2 x; k = 1, 3, 6; k v = 2, 12, 36.
  const auto causal = core::semiseparable_reference(w, {x, 1, 3, false});
  CHECK(causal.y == std::vector<double>{2100 + 2.5, 10 + 200 + 3000 + 12.5, 20 + 300 + 36.5});
  CHECK(causal.gates == std::vector<double>{0.5, 0.5, 0.5});
  // k + anti-causal k = 1 + 6, 3 + 5, 6 + 3.
  const auto both = core::semiseparable_reference(w, {x, 1, 3, true});
  CHECK(both.y == std::vector<double>{2100 + 14.5, 3210 + 32.5, 320 + 54.5});
}

}  // namespace
}  // namespace exphil::test
