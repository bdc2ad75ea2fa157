// How policies with a matrix state are lowered for a GPU: Mamba-2's gates and norms, its convolution in
// parts, Mamba-3's rotations, delays and ranks, gated DeltaNet's norms, rates and decays.
#include "cuda/policy/dims.hpp"
#include "cuda/policy/lower.hpp"
#include "cuda/policy/pack.hpp"
#include "kernels/policy/row_layout.cuh"
#include "kernels/policy/team_plan.cuh"
#include "kernels/policy/window_plan.cuh"
#include "support/catch.hpp"
#include "support/mamba3_policy.hpp"

namespace exphil::cuda {

namespace {

using policy::Kind;

std::vector<Kind> kinds(const policy::Network& n) {
  std::vector<Kind> all;
  for (int i = 0; i < n.layer.count; ++i) all.push_back(n.layer.phases[i].kind);
  return all;
}

policy::Network lowered(const test::Mamba2Spec& spec) {
  return lower(test::load_policy(test::mamba2_file(spec))->config).network;
}
policy::Network lowered(const test::Mamba3Spec& spec) {
  return lower(test::load_policy(test::mamba3_file(spec))->config).network;
}

}  // namespace

TEST_CASE("gated DeltaNet's norm is a diagonal, its sigmoids activations, its decays those of the heads",
          "[cuda][policy][lower][heads][deltanet]") {
  test::DeltanetSpec spec;
  spec.heads = 2, spec.units = 72;
  const policy::Network n = lower(test::load_policy(test::deltanet_file(spec))->config).network;
  CHECK(kinds(n) == std::vector<Kind>{Kind::product, Kind::convolution, Kind::product, Kind::gate,
                                      Kind::heads, Kind::product});
  const policy::Product &norm = n.products[n.layer.phases[0].index],
                        &all = n.products[n.layer.phases[2].index];
  CHECK(norm.diagonal);
  CHECK(norm.norm == policy::Norm::layer);
  CHECK(norm.out[0].vector == n.convolutions[0].in);
  CHECK(policy::first_product(n) == 2);
  CHECK(all.in == n.convolutions[0].out);
  CHECK(all.outputs == 6);
  const policy::Heads& heads = n.heads[0];
  CHECK(heads.delta());
  CHECK(policy::keys_of(n, heads) == 36);
  CHECK(n.gates[0].out == heads.key);
  CHECK(n.gates[0].parts == 2);
  for (int output = 0; output < all.outputs; ++output) {
    const int vector = all.out[output].vector;
    const bool squashed = vector == heads.rate || vector == heads.decays;
    CHECK((all.out[output].activation == policy::Activation::sigmoid) == squashed);
    CHECK((all.out[output].activation == policy::Activation::silu) == (vector == heads.z));
  }
  CHECK(n.products[n.layer.phases[5].index].in == heads.out);
  // States: {96, 64} of the heads, three inputs of the convolution.
  CHECK(n.layer_floats == 96 * 64 + 3 * 96);
  CHECK(policy::TeamPlan(n).fits);
  // Of the size that is played, each block of 16 has 16 channels.
  spec.units = 256, spec.heads = 4;
  const policy::Network played = lower(test::load_policy(test::deltanet_file(spec))->config).network;
  CHECK(policy::useful_team(played, policy::TeamPlan(played)) == 16);
  CHECK(policy::own_channels(played, 16, played.heads[0].value) == 16);
  CHECK(!policy::WindowPlan(n).fits);
}

TEST_CASE(
    "Mamba-2's convolution is lowered in the parts that the heads read, its gate and norm into its "
    "neighbours",
    "[cuda][policy][lower][heads]") {
  test::Mamba2Spec spec;
  spec.heads = 3, spec.headdim = 24, spec.d_state = 64;
  const policy::Network n = lowered(spec);
  CHECK(kinds(n) == std::vector<Kind>{Kind::product, Kind::convolution, Kind::convolution, Kind::convolution,
                                      Kind::heads, Kind::product});
  const policy::Heads& heads = n.heads[0];
  CHECK(n.values(heads.value) == 72);
  CHECK(n.values(heads.key) == 64);
  CHECK(n.values(heads.query) == 64);
  CHECK(n.values(heads.rate) == 3);
  CHECK(heads.z != policy::kNoVector);
  CHECK(n.convolutions[0].out == heads.value);
  CHECK(n.convolutions[1].out == heads.key);
  CHECK(n.convolutions[2].out == heads.query);
  for (const int convolution : {0, 1, 2}) {
    const policy::Joined joined = policy::joined_convolutions(n, convolution);
    CHECK(joined.first == 0);
    CHECK(joined.count == 3);
  }
  CHECK(policy::joined_convolutions(n, 3).first == policy::kNoPhase);
  const policy::Product& out = n.products[n.layer.phases[5].index];
  CHECK(out.in == heads.out);
  CHECK(out.norm == policy::Norm::rms);
  CHECK(out.adds);
  // States: {96, 64} of the heads, {3, channels} of each convolution.
  CHECK(n.layer_floats == 96 * 64 + 3 * (96 + 64 + 64));
  CHECK(policy::TeamPlan(n).fits);
  CHECK(!policy::WindowPlan(n).fits);
}

TEST_CASE("Mamba-2's norms of groups, norms before the gate and channels that are gated alone are phases",
          "[cuda][policy][lower][heads]") {
  test::Mamba2Spec grouped, before, mlp, bare;
  grouped.groups = 2, before.norm_before_gate = true, mlp.mlp = 7, bare.norm = false, bare.mlp = 7;
  for (const auto* spec : {&grouped, &before, &mlp, &bare}) {
    const policy::Network n = lowered(*spec);
    CAPTURE(spec->groups, spec->norm_before_gate, spec->mlp);
    CHECK(n.has(Kind::gate));
    CHECK(policy::TeamPlan(n).fits);
  }
  const policy::Network of_groups = lowered(grouped), of_mlp = lowered(mlp);
  CHECK(of_groups.gates[0].parts == 2);
  CHECK(of_groups.gates[0].gate == policy::kNoVector);
  CHECK(of_groups.heads[0].z != policy::kNoVector);
  CHECK(lowered(before).heads[0].z == policy::kNoVector);
  CHECK(lowered(before).gates[0].gate != policy::kNoVector);
  CHECK(of_mlp.gates[0].at == 0);
  CHECK(of_mlp.gates[1].at == 7);
  CHECK(of_mlp.gates[0].out == of_mlp.gates[1].out);
  CHECK(of_mlp.values(of_mlp.gates[0].out) == 17);
}

TEST_CASE("states of heads are packed and unpacked", "[cuda][policy][lower][heads]") {
  for (const test::PolicyForm& form : test::matrix_forms(9, 5)) {
    INFO(form.name);
    const PolicyDims dims(form.weights->config);
    std::vector<float> values(static_cast<std::size_t>(dims.config.state_floats()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    std::vector<float> packed(static_cast<std::size_t>(dims.network().state_floats())), back(values.size());
    pack_state(dims, values.data(), packed.data());
    unpack_state(dims, packed.data(), back.data());
    CHECK(back == values);
  }
}

TEST_CASE("Mamba-3's keys are rotated, and what was there before is kept, beside the heads",
          "[cuda][policy][lower][heads][mamba3]") {
  test::Mamba3Spec spec;
  spec.heads = 3, spec.headdim = 24, spec.d_state = 64, spec.angles = 16;
  const policy::Network n = lowered(spec);
  const std::vector<Kind> siso = {Kind::product, Kind::angle, Kind::rotation, Kind::rotation,
                                  Kind::delay,   Kind::delay, Kind::heads,    Kind::product};
  CHECK(kinds(n) == siso);
  const policy::Heads& heads = n.heads[0];
  CHECK(heads.trapezoid());
  CHECK(!heads.ranked);
  CHECK(policy::keys_of(n, heads) == 64);
  CHECK(n.rotations[0].out == heads.key);
  CHECK(n.rotations[1].out == heads.query);
  CHECK(n.delays[0].out == heads.key_before);
  CHECK(n.delays[1].out == heads.value_before);
  CHECK(n.products[n.layer.phases[7].index].in == heads.out);
  CHECK(n.layer_floats == 3 * 16 + 96 * 64 + 3 * 64 + 96);
  CHECK(policy::TeamPlan(n).fits);
  CHECK(!policy::WindowPlan(n).fits);
  // With a norm, the gate is a phase of its own; so it is of ranks.
  spec.norm = true;
  CHECK(lowered(spec).gates[0].parts == 3);
  CHECK(lowered(spec).gates[0].ranks == 0);
  spec.mimo = true, spec.ranks = 4;
  const policy::Network normed = lowered(spec);
  CHECK(normed.gates[0].parts == 12);
  CHECK(normed.gates[0].ranks == 4);
  CHECK(normed.heads[0].spreads());
  spec.norm = false;
  const policy::Network ranked = lowered(spec);
  CHECK(kinds(ranked) == siso);
  CHECK(ranked.heads[0].ranked);
  CHECK(!ranked.heads[0].spreads());
  for (const policy::Network* of_ranks : {&normed, &ranked}) CHECK(policy::TeamPlan(*of_ranks).fits);
}

}  // namespace exphil::cuda
