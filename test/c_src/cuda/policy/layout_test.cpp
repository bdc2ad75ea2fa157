// Sizes of a policy on the GPU: kernels/policy/layout.cuh for a config, and the packing of weights by it.
#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/policy/rounding.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/pack.hpp"
#include "support/catch.hpp"
#include "support/mamba.hpp"

namespace exphil::cuda {
namespace {

core::mamba1::Config config() {
  core::mamba1::Config config;
  config.d_model = 67, config.d_inner = 131, config.d_state = 17, config.d_conv = 3;
  config.dt_rank = 5, config.d_input = 31, config.d_output = 9, config.n_layer = 3;
  return config;
}

// Numbers every weight, from 1.
std::vector<float> numbered(std::int64_t count, float* next) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = (*next)++;
  return values;
}

test::MambaWeights named_weights() {
  float next = 1;
  test::MambaWeights w;
  const core::mamba1::Config& c = w.config = config();
  const auto ones = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count), 1); };
  w.input_proj = numbered(c.d_model * c.d_input, &next), w.input_proj_bias = numbered(c.d_model, &next);
  w.norm_f = ones(c.d_model);
  w.head = numbered(c.d_output * c.d_model, &next), w.head_bias = numbered(c.d_output, &next);
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    test::MambaLayer l;
    l.norm = ones(c.d_model);
    l.in_proj = numbered(2 * c.d_inner * c.d_model, &next);
    l.in_proj_bias = numbered(2 * c.d_inner, &next);
    l.conv = numbered(c.d_inner * c.d_conv, &next), l.conv_bias = numbered(c.d_inner, &next);
    l.x_proj = numbered((c.dt_rank + 2 * c.d_state) * c.d_inner, &next);
    l.dt_proj = numbered(c.d_inner * c.dt_rank, &next), l.dt_proj_bias = numbered(c.d_inner, &next);
    l.d = numbered(c.d_inner, &next);
    l.out_proj = numbered(c.d_model * c.d_inner, &next), l.out_proj_bias = numbered(c.d_model, &next);
    w.layers.push_back(l);
  }
  return w;
}

// A is numbered too: nothing here asks that it is negative.
core::PolicyWeights weights() {
  const test::MambaWeights named = named_weights();
  core::PolicyWeights w = test::described(named);
  float next = 1;
  for (const core::PolicyValues<float>::value_type& values : w.values) {
    for (const float value : values) next = std::max(next, value + 1);
  }
  for (const test::LayerIds& ids : test::form_of(w.config).ids.layers) {
    std::vector<float>& a = w.values[static_cast<std::size_t>(ids.a)];
    a = numbered(static_cast<std::int64_t>(a.size()), &next);
  }
  return w;
}

// In memory that was used before.
std::vector<std::byte> packed_team(const core::PolicyWeights& w, const PolicyDims& dims, int team) {
  std::vector<std::byte> packed(team_bytes(dims, team), std::byte{0xa5});
  pack_team(w, dims, team, packed.data());
  return packed;
}
std::vector<std::byte> packed_rows(const core::PolicyWeights& w, const PolicyDims& dims) {
  const RowLayout layout = row_layout(dims);
  std::vector<std::byte> packed(layout.bytes, std::byte{0xa5});
  pack_rows(w, dims, layout, packed.data());
  return packed;
}

// How many of the numbers 1 .. most are in `packed`, each at most once; anything else is padding, which is
// zero.
std::int64_t count_once(const std::vector<std::byte>& packed) {
  std::vector<float> values(packed.size() / sizeof(float));
  std::memcpy(values.data(), packed.data(), packed.size());
  std::vector<bool> seen;
  std::int64_t count = 0;
  for (const float value : values) {
    if (value == 0) continue;
    const auto number = static_cast<std::size_t>(value);
    REQUIRE(static_cast<float>(number) == value);
    if (seen.size() <= number) seen.resize(number + 1);
    REQUIRE_FALSE(seen[number]);
    seen[number] = true;
    ++count;
  }
  CHECK(static_cast<std::int64_t>(seen.size()) == count + 1);
  return count;
}

// All but the norms, which are folded into the matrices.
std::int64_t count_weights(const core::PolicyWeights& w) {
  std::size_t count = 0;
  for (std::size_t id = 0; id < w.values.size(); ++id) {
    if (w.network().weights[id].name.find("norm") == std::string::npos) count += w.values[id].size();
  }
  return static_cast<std::int64_t>(count);
}

}  // namespace

TEST_CASE("padded sizes hold the config's and are multiples of a segment", "[cuda][policy]") {
  const PolicyDims dims(weights().config);
  const policy::Network& n = dims.network();
  const policy::Scan& scan = n.scans[0];
  CHECK(n.size(n.hidden) == 96);
  CHECK(n.size(scan.x) == 160);
  CHECK(dims.frame_size() == 32);
  CHECK(dims.outputs() == 9);
  CHECK(n.size(n.outs) == 9);
  CHECK(policy::Lanes(n.values(scan.b)).lanes == 8);
  CHECK(policy::Lanes(n.values(scan.b)).each == 4);
  CHECK(n.size(scan.b) == 32);
  const policy::Product& projection = n.products[n.layer.phases[2].index];
  CHECK(n.size(projection.out[0].vector) == 8);  // what dt is made of
  CHECK(n.rows(projection) == 72);
  CHECK(n.state_floats() == 3 * (160 * 32 + 2 * 160));
}

TEST_CASE("packing keeps every weight once and pads with zeros", "[cuda][policy]") {
  const core::PolicyWeights w = weights();
  const PolicyDims dims(w.config);
  for (const int team : {1, 2, 3, 4, 8}) {
    INFO("team of " << team);
    const std::vector<std::byte> packed = packed_team(w, dims, team);
    CHECK(static_cast<long long>(packed.size()) == team * TeamShape{team}.weights(dims).bytes);
    CHECK(count_once(packed) == count_weights(w));
  }
  CHECK(count_once(packed_rows(w, dims)) == count_weights(w));
}

TEST_CASE("packed weights take the memory of their precision", "[cuda][policy][precision]") {
  const auto sizes = [](core::Precision precision) {
    core::PolicyWeights exact = weights();
    for (std::vector<float>& values : exact.values) {
      for (float& value : values) value *= 0.1f;  // within f16
    }
    const core::PolicyWeights w = core::rounded_weights(exact, precision);
    const PolicyDims dims(w.config);
    return std::make_pair(team_bytes(dims, 2), row_layout(dims).bytes);
  };
  const auto f32 = sizes(core::Precision::f32), bf16 = sizes(core::Precision::bf16);
  const auto f16 = sizes(core::Precision::f16), int8 = sizes(core::Precision::int8);
  CHECK(f16 == bf16);
  const PolicyDims dims(weights().config);
  const policy::Network& n = dims.network();
  const policy::Product& in_proj = n.products[n.layer.phases[0].index];
  const auto most = static_cast<std::size_t>(n.layers * n.rows(in_proj) * n.size(in_proj.in));
  CHECK(f32.first - bf16.first > 2 * most);
  CHECK(f32.second - bf16.second > 2 * most);
  CHECK(bf16.first - int8.first > most / 2);
  CHECK(bf16.second - int8.second > most / 2);
}

// Slots q and q + 4 of the first 8 k are k = 4 q and 4 q + 1, of the second ones 4 q + 2 and 4 q + 3; a
// lane's group has columns l / 4 and l / 4 + 8 of the first slot, then of the second one (common/tensor.cuh).
TEST_CASE("weights for tensor cores are in the order in which lanes take them", "[cuda][policy][precision]") {
  constexpr int kColumns = 128;
  std::vector<int> times(16 * kColumns);
  for (int k = 0; k < 16; ++k) {
    for (int column = 0; column < kColumns; ++column) {
      ++times[static_cast<std::size_t>(policy::tensor_weight(k, column, kColumns))];
    }
  }
  CHECK(times == std::vector<int>(times.size(), 1));
  for (int tile = 0; tile < 2; ++tile) {
    for (int half = 0; half < 2; ++half) {
      for (int lane = 0; lane < 32; ++lane) {
        const int k = lane % 4 * 4 + 2 * tile, column = 96 + 16 * half + lane / 4;
        const int group = (2 * tile + half) * kColumns + 96 + lane;
        INFO("tile " << tile << ", half " << half << ", lane " << lane);
        CHECK(policy::tensor_weight(k, column, kColumns) == 4 * group);
        CHECK(policy::tensor_weight(k, column + 8, kColumns) == 4 * group + 1);
        CHECK(policy::tensor_weight(k + 1, column, kColumns) == 4 * group + 2);
        CHECK(policy::tensor_weight(k + 1, column + 8, kColumns) == 4 * group + 3);
      }
    }
  }
}

TEST_CASE("parts of different element sizes are aligned and do not overlap", "[cuda][policy]") {
  const policy::Part<float> floats(0, 5);
  const policy::Part<char> bytes(floats.end(), 3);
  const policy::Part<double> doubles(bytes.end(), 2, 8);
  CHECK(floats.end() == 20);
  CHECK(bytes.at == 32);
  CHECK(doubles.at == 40);
  CHECK(doubles.end() == 56);
}

TEST_CASE("a policy beyond the kernels' sizes is refused by name", "[cuda][policy]") {
  core::mamba1::Config large = config();
  large.d_state = 5000;
  try {
    PolicyDims dims(test::config_of(large));
    FAIL("accepted");
  } catch (const core::Error& error) {
    CHECK(error.kind() == core::ErrorKind::limit_exceeded);
    CHECK(std::string(error.what()).find("d_state") != std::string::npos);
  }
}

}  // namespace exphil::cuda
