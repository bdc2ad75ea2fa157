// A policy's network as the GPU's kernels run it, and how a team of blocks divides it.
#include <string>
#include <vector>

#include "core/error.hpp"
#include "cuda/policy/lower.hpp"
#include "kernels/policy/team_plan.cuh"
#include "support/catch.hpp"
#include "support/mamba.hpp"

namespace exphil::cuda {
namespace {

using policy::Activation;
using policy::Kind;
using policy::Place;
using policy::Split;

core::mamba1::Config small_config() {
  core::mamba1::Config config;
  config.d_model = 67, config.d_inner = 131, config.d_state = 17, config.d_conv = 3;
  config.dt_rank = 5, config.d_input = 31, config.d_output = 9, config.n_layer = 3;
  return config;
}

std::vector<Kind> kinds(const policy::Block& block) {
  std::vector<Kind> kinds;
  for (int i = 0; i < block.count; ++i) kinds.push_back(block.phases[i].kind);
  return kinds;
}

// The product that is phase `at` of a layer.
const policy::Product& product(const policy::Network& n, int at) {
  REQUIRE(n.layer.phases[at].kind == Kind::product);
  return n.products[n.layer.phases[at].index];
}

std::string why_not(const core::PolicyConfig& config) {
  try {
    lower(config);
  } catch (const core::Error& error) {
    CHECK(error.kind() == core::ErrorKind::unsupported);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("norms, gates and the activation of dt are lowered into products", "[cuda][policy][lower]") {
  const policy::Network n = lower(test::config_of(small_config())).network;
  CHECK(kinds(n.input) == std::vector<Kind>{Kind::product});
  CHECK(kinds(n.layer) == std::vector<Kind>{Kind::product, Kind::convolution, Kind::product, Kind::product,
                                            Kind::scan, Kind::product});
  CHECK(kinds(n.output) == std::vector<Kind>{Kind::product});
  const policy::Scan& scan = n.scans[0];
  const policy::Product &xz = product(n, 0), &projection = product(n, 2), &dt = product(n, 3),
                        &out = product(n, 5);
  CHECK(xz.in == n.hidden);
  CHECK(xz.norm == policy::Norm::rms);
  REQUIRE(xz.outputs == 2);
  CHECK(xz.out[0].vector == n.convolutions[0].in);
  CHECK(xz.out[1].vector == scan.z);
  CHECK(xz.out[1].activation == Activation::silu);
  CHECK(projection.in == scan.x);
  REQUIRE(projection.outputs == 3);
  CHECK(projection.out[1].vector == scan.b);
  CHECK(projection.out[2].vector == scan.c);
  CHECK(dt.in == projection.out[0].vector);
  CHECK(dt.is_short);
  CHECK(dt.out[0].vector == scan.dt);
  CHECK(dt.out[0].activation == Activation::softplus);
  CHECK_FALSE(dt.out[0].clips);
  CHECK(out.in == scan.out);
  CHECK(out.adds);
  CHECK(out.out[0].vector == n.hidden);
  CHECK(n.products[n.output.phases[0].index].norm == policy::Norm::rms);
}

TEST_CASE("lowered vectors are padded as their readers need it", "[cuda][policy][lower]") {
  const policy::Network n = lower(test::config_of(small_config())).network;
  const policy::Scan& scan = n.scans[0];
  CHECK(n.size(n.frame) == 32);
  CHECK(n.size(n.hidden) == 96);
  CHECK(n.size(n.outs) == 9);
  CHECK(n.size(scan.x) == 160);
  CHECK(n.size(scan.b) == 32);
  CHECK(n.values(scan.b) == 17);
  CHECK(n.size(product(n, 3).in) == 8);
  CHECK(n.rows(product(n, 2)) == 8 + 2 * 32);
  CHECK(n.layer_floats == 160 * 32 + 2 * 160);
  CHECK(scan.state_at == 0);
  CHECK(n.convolutions[0].state_at == 160 * 32);
}

TEST_CASE("a mean of dt is lowered to a phase of its own", "[cuda][policy][lower]") {
  core::mamba1::Config of = small_config();
  of.spec.input_dt = core::mamba1::InputDt::mean, of.spec.dt_min = 0.001f, of.spec.dt_max = 0.1f;
  const policy::Network n = lower(test::config_of(of)).network;
  const policy::Scan& scan = n.scans[0];
  REQUIRE(n.layer.phases[4].kind == Kind::mean);
  CHECK(n.means[0].in == scan.dt);
  CHECK(n.means[0].out == scan.input_dt);
  CHECK(n.size(scan.input_dt) == 1);
  CHECK(product(n, 3).out[0].vector == scan.dt);
  CHECK(product(n, 3).out[0].clips);
  CHECK(policy::TeamPlan(n).mean_of[scan.input_dt] == scan.dt);
}

TEST_CASE("a team divides vectors by their readers", "[cuda][policy][lower]") {
  const policy::Network n = lower(test::config_of(small_config())).network;
  const policy::TeamPlan plan(n);
  const policy::Scan& scan = n.scans[0];
  for (const int vector : {n.frame, n.hidden, scan.out}) CHECK(plan.places[vector] == Place::board);
  for (const int vector : {scan.x, scan.dt, scan.z}) CHECK(plan.places[vector] == Place::own);
  for (const int vector : {scan.b, scan.c}) CHECK(plan.places[vector] == Place::common);
  CHECK(plan.convolution_of[n.convolutions[0].in] == 0);
  const auto split = [&](int at) { return plan.splits[n.layer.phases[at].index]; };
  CHECK(split(0) == Split::rows);
  CHECK(split(2) == Split::depth);
  CHECK(split(3) == Split::own);
  CHECK(split(5) == Split::rows);
  CHECK(policy::useful_team(n, plan) == 8);  // 160 channels are 5 segments
}

TEST_CASE("the text of a lowered network has all of it and no blanks", "[cuda][policy][lower]") {
  const policy::Network n = lower(test::config_of(small_config())).network;
  const std::string text = text_of(n);
  CHECK(text.find(' ') == std::string::npos);
  CHECK(text.rfind("{Stored::f32,States::f32,3," + std::to_string(n.layer_floats) + ",0,1,", 0) == 0);
  core::mamba1::Config wider = small_config();
  for (std::int64_t* size : {&wider.d_model, &wider.d_inner, &wider.d_state, &wider.d_conv, &wider.dt_rank,
                             &wider.d_input, &wider.d_output, &wider.n_layer}) {
    ++*size;
    CHECK(text_of(lower(test::config_of(wider)).network) != text);
    --*size;
  }
}

TEST_CASE("a network that the kernels cannot compute is refused", "[cuda][policy][lower]") {
  core::PolicyConfig gated = test::config_of(small_config());
  for (core::Block& layer : gated.network.layers) {
    for (core::Phase& phase : layer) {  // z is what the convolution writes
      if (auto* const scan = std::get_if<core::SelectiveScan>(&phase)) scan->z = scan->x;
    }
  }
  CHECK(why_not(gated).find("a gate that no product computes") != std::string::npos);
  core::PolicyConfig empty = test::config_of(small_config());
  empty.network.layers.clear();
  CHECK(why_not(empty).find("no layer") != std::string::npos);
}

}  // namespace exphil::cuda
