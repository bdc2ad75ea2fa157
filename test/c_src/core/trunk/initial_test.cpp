// Fresh weights: their names and shapes load, their values are what state-spaces' initialisation gives, and
// the bits are the same everywhere.
#include "core/trunk/initial.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/exact_math.hpp"
#include "core/hash.hpp"
#include "core/trunk/load.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/policy.hpp"

namespace exphil::core {

namespace {

const NamedSizes kSizes = {{"d_input", 5}, {"d_output", 14}, {"d_model", 48}, {"layers", 2}};

constexpr const char* kGated[] = {"gru", "lstm", "min_gru", "min_lstm"};
constexpr const char* kEdifices[] = {"gru", "lstm", "min_gru", "min_lstm", "gated_deltanet"};

NamedSizes with(NamedSizes sizes, const std::string& name, std::int64_t value) {
  sizes.emplace_back(name, value);
  return sizes;
}

NamedSizes without(const std::string& name) {
  NamedSizes sizes = kSizes;
  sizes.erase(
      std::find_if(sizes.begin(), sizes.end(), [&name](const auto& size) { return size.first == name; }));
  return sizes;
}

TensorMap views(const std::vector<InitialTensor>& tensors) {
  TensorMap map;
  for (const InitialTensor& t : tensors) map[t.name] = t.view();
  return map;
}

const std::vector<float>& values(const std::vector<InitialTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&name](const auto& tensor) { return tensor.name == name; });
  REQUIRE(found != tensors.end());
  return found->values;
}

float largest(const std::vector<float>& values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace

TEST_CASE("fresh weights load with the sizes that were asked for", "[initial]") {
  const auto defaults = load_weights(views(initial_weights("mamba1", kSizes, 1)), {}, {});
  CHECK(defaults->config.d_input == 5);
  CHECK(defaults->config.d_output == 14);
  CHECK(defaults->config.state_signature == std::array<std::int64_t, 4>{2, 96, 16, 4});
  NamedSizes sizes = with(with(kSizes, "d_state", 3), "d_conv", 1);
  sizes = with(with(sizes, "expand", 1), "dt_rank", 7);
  const auto own = load_weights(views(initial_weights("mamba1", sizes, 1)), {}, {});
  CHECK(own->config.state_signature == std::array<std::int64_t, 4>{2, 48, 3, 1});
}

TEST_CASE("fresh weights begin as state-spaces' do", "[initial]") {
  const auto tensors = initial_weights("mamba1", kSizes, 1);
  const std::string mixer = "backbone.layers.1.mixer.";
  for (std::size_t i = 0; i < 96 * 16; ++i) {
    const double expected = std::log(static_cast<double>(i % 16 + 1));
    CHECK(std::abs(values(tensors, mixer + "A_log")[i] - expected) <= 1e-7 * expected);
  }
  std::vector<double> steps;
  const std::vector<float> biases = values(tensors, mixer + "dt_proj.bias");
  for (const float bias : biases) steps.push_back(std::log1p(std::exp(bias)));
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
  CHECK(*least >= 0.001 * (1 - 1e-5));
  CHECK(*most <= 0.1 * (1 + 1e-5));
  // Log-uniform: about half of them are below the geometric mean.
  CHECK(std::abs(std::count_if(steps.begin(), steps.end(), [](double dt) { return dt < 0.01; }) - 48) < 20);
  CHECK(values(tensors, mixer + "D") == std::vector<float>(96, 1));
  CHECK(values(tensors, "backbone.norm_f.weight") == std::vector<float>(48, 1));
  CHECK(values(tensors, "head.bias") == std::vector<float>(14, 0));
  // Uniform up to the bound: so many numbers come close to it.
  const auto bounded = [&](const std::string& name, double bound) {
    CAPTURE(name);
    CHECK(largest(values(tensors, name)) <= bound);
    CHECK(largest(values(tensors, name)) > 0.95 * bound);
  };
  bounded("input_proj.weight", 1 / std::sqrt(5.0));
  bounded("head.weight", 1 / std::sqrt(48.0));
  bounded(mixer + "in_proj.weight", 1 / std::sqrt(48.0));
  bounded(mixer + "conv1d.weight", 1 / std::sqrt(4.0));
  bounded(mixer + "conv1d.bias", 1 / std::sqrt(4.0));
  bounded(mixer + "dt_proj.weight", 1 / std::sqrt(3.0));
  bounded(mixer + "out_proj.weight", 1 / std::sqrt(96.0) / std::sqrt(2.0));
}

TEST_CASE("fresh weights have the same bits everywhere, and others for another seed", "[initial]") {
  const auto hash = [](std::uint64_t seed) {
    HashedParts parts;
    for (const InitialTensor& t : initial_weights("mamba1", kSizes, seed)) {
      parts.add(t.name);
      parts.add(hex(hash64(t.values.data(), t.values.size() * sizeof(float))));
    }
    return hex(parts.hash64());
  };
  CHECK(hash(1) == "b125d9767eeace90");
  CHECK(hash(std::uint64_t{1} << 32 | 1) == "1d750ae071b766cc");
  // A layer keeps its numbers whatever else there is.
  const auto two = initial_weights("mamba1", kSizes, 1);
  NamedSizes sizes = without("layers");
  const auto three = initial_weights("mamba1", with(sizes, "layers", 3), 1);
  const std::string name = "backbone.layers.1.mixer.in_proj.weight";
  CHECK(values(two, name) == values(three, name));
  CHECK(values(two, name) != values(two, "backbone.layers.0.mixer.in_proj.weight"));
}

TEST_CASE("fresh Mamba-2 and Mamba-3 policies load with the sizes that were asked for", "[initial]") {
  const NamedSizes small = with(with(kSizes, "headdim", 12), "d_state", 8);
  const auto second = load_weights(views(initial_weights("mamba2", with(small, "d_conv", 3), 1)), {}, {});
  CHECK(second->config.trunk == "mamba2");
  CHECK(second->config.state_signature == std::array<std::int64_t, 4>{2, 96, 8, 3});
  PolicyLoadOptions groups;
  groups.trunk = {{"ngroups", std::int64_t{4}}};
  const auto grouped =
      load_weights(views(initial_weights("mamba2", with(small, "ngroups", 4), 1)), {}, groups);
  CHECK(grouped->config.state_signature == std::array<std::int64_t, 4>{2, 96, 8, 4});
  // Of 8 heads: one rank or three, and two angles each.
  const auto third = load_weights(views(initial_weights("mamba3", small, 1)), {}, {});
  CHECK(third->config.trunk == "mamba3");
  CHECK(third->config.state_signature == std::array<std::int64_t, 4>{2, 96, 8, 10});
  const auto ranks = load_weights(
      views(initial_weights("mamba3", with(with(small, "mimo_rank", 3), "ngroups", 2), 1)), {}, {});
  CHECK(ranks->config.state_signature == std::array<std::int64_t, 4>{2, 96, 8, 26});
  const auto bad = [&](const char* trunk, const char* size, std::int64_t value) {
    return test::error_of([&] { initial_weights(trunk, with(small, size, value), 1); });
  };
  for (const char* trunk : {"mamba2", "mamba3"}) {
    CHECK(bad(trunk, "ngroups", 3).says(":ngroups is 3, which does not divide the 8 heads"));
    CHECK(bad(trunk, "dt_rank", 3).says(":dt_rank is not a size of the trunk"));
    const test::CaughtError heads =
        test::error_of([&] { initial_weights(trunk, with(kSizes, "headdim", 7), 1); });
    CHECK(heads.says(":headdim is 7, which does not divide the 96 channels"));
  }
  CHECK(test::error_of([&] {
          initial_weights("mamba3", with(with(kSizes, "headdim", 12), "d_state", 3), 1);
        }).says("of which no pair is rotated"));
}

TEST_CASE("fresh Mamba-2 and Mamba-3 policies begin as state-spaces' do", "[initial]") {
  const NamedSizes small = with(with(with(kSizes, "headdim", 2), "d_state", 8), "mimo_rank", 4);
  const auto third = initial_weights("mamba3", small, 1);
  const std::string mixer = "backbone.layers.1.mixer.";
  CHECK(values(third, mixer + "B_bias") == std::vector<float>(48 * 4 * 8, 1));
  CHECK(values(third, mixer + "mimo_z") == std::vector<float>(48 * 4 * 2, 1));
  CHECK(values(third, mixer + "mimo_x") == std::vector<float>(48 * 4 * 2, 0.25f));
  CHECK(values(third, mixer + "C_norm.weight") == std::vector<float>(8, 1));
  const auto second = initial_weights("mamba2", with(with(kSizes, "headdim", 2), "d_state", 8), 1);
  const auto logs = values(second, mixer + "A_log");
  for (const float log : logs) {
    CHECK(log >= 0);
    CHECK(log <= std::log(16.0f) * 1.000001f);
  }
  for (const auto& tensors : {second, third}) {
    CHECK(values(tensors, mixer + "D") == std::vector<float>(48, 1));
    CHECK(values(tensors, "head.bias") == std::vector<float>(14, 0));
    CHECK(largest(values(tensors, mixer + "out_proj.weight")) <= 1 / std::sqrt(96.0 * 2));
    CHECK(largest(values(tensors, mixer + "out_proj.weight")) > 0.95 / std::sqrt(96.0 * 2));
    const auto biases = values(tensors, mixer + "dt_bias");
    for (const float bias : biases) {
      const double dt = std::log1p(std::exp(double{bias}));
      CHECK(dt >= 0.001 * (1 - 1e-5));
      CHECK(dt <= 0.1 * (1 + 1e-5));
    }
  }
}

TEST_CASE("fresh gated policies load with the sizes that were asked for", "[initial]") {
  for (const char* trunk : kGated) {
    CAPTURE(trunk);
    const auto policy = load_weights(views(initial_weights(trunk, kSizes, 1)), {}, {});
    CHECK(policy->config.trunk == trunk);
    CHECK(policy->config.d_input == 5);
    CHECK(policy->config.d_output == 14);
    CHECK(policy->config.n_layer() == 2);
    const std::int64_t states = std::string(trunk) == "lstm" ? 2 : 1;
    CHECK(policy->config.state_floats() == 2 * 48 * states);
    // Without an input projection where it is not needed.
    const NamedSizes square = with(without("d_input"), "d_input", 48);
    CHECK(load_weights(views(initial_weights(trunk, square, 1)), {}, {})->config.d_input == 48);
  }
}

TEST_CASE("a fresh gated DeltaNet loads with the sizes that were asked for", "[initial]") {
  const std::string trunk = "gated_deltanet";
  const auto policy = load_weights(views(initial_weights(trunk, kSizes, 1)), {}, {});
  CHECK(policy->config.trunk == trunk);
  CHECK(policy->config.d_input == 5);
  CHECK(policy->config.d_output == 14);
  CHECK(policy->config.n_layer() == 2);
  CHECK(policy->config.state_floats() == 2 * 48 * (48 / 4 + 3));
  const NamedSizes square = with(with(with(without("d_input"), "d_input", 48), "num_heads", 8), "d_conv", 3);
  PolicyLoadOptions options;
  options.trunk = {{"num_heads", std::int64_t{8}}};
  const auto own = load_weights(views(initial_weights(trunk, square, 1)), {}, options);
  CHECK(own->config.d_input == 48);
  CHECK(own->config.state_floats() == 2 * 48 * (48 / 8 + 2));
  const auto error = test::error_of([&] { initial_weights(trunk, with(kSizes, "num_heads", 5), 1); });
  CHECK(error.argument == ":num_heads");
}

TEST_CASE("fresh policies of Edifice's trunks begin as Axon's and Edifice's do", "[initial]") {
  const auto is = [](const std::string& name, const std::string& end) {
    return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  for (const char* trunk : kEdifices) {
    for (const InitialTensor& t : initial_weights(trunk, kSizes, 1)) {
      CAPTURE(trunk, t.name);
      if (is(t.name, ".key")) {
        CHECK(t.words.size() == 2);
      } else if (t.shape.rank() == 1) {
        CHECK(t.values == std::vector<float>(t.values.size(), is(t.name, ".gamma") ? 1.0f : 0.0f));
      } else {
        // Uniform up to the bound: so many numbers come close to it, on both sides.
        const double fans = static_cast<double>(t.shape[0] + t.shape[1]);
        const double bound = std::sqrt(6.0 / (t.shape.rank() == 3 ? fans * double(t.shape[2]) : fans));
        const auto [least, most] = std::minmax_element(t.values.begin(), t.values.end());
        CHECK(*most <= bound);
        CHECK(*most > 0.95 * bound);
        CHECK(*least >= -bound);
        CHECK(*least < -0.95 * bound);
      }
    }
  }
}

TEST_CASE("the states of a fresh GRU and LSTM begin with what their key draws", "[initial]") {
  for (const char* trunk : {"gru", "lstm"}) {
    CAPTURE(trunk);
    const auto policy = load_weights(views(initial_weights(trunk, kSizes, 1)), {}, {});
    const std::vector<StatePart>& states = policy->network().states;
    const float limit = std::sqrt(6.0f / 49);
    for (const StatePart& state : states) {
      CHECK(largest(state.initial) <= limit);
      CHECK(largest(state.initial) > 0.8f * limit);
    }
    CHECK(states[0].initial != states[1].initial);
    // The key of h is that of c, as in Axon.
    const std::vector<float>& first = states[0].initial;
    if (states[0].rows == 2) CHECK(std::equal(first.begin(), first.begin() + 48, first.begin() + 48));
    const auto other = load_weights(views(initial_weights(trunk, kSizes, 2)), {}, {});
    CHECK(other->network().states[0].initial != first);
  }
  for (const char* trunk : {"min_gru", "min_lstm"}) {
    const auto policy = load_weights(views(initial_weights(trunk, kSizes, 1)), {}, {});
    CHECK(policy->network().states[0].initial.empty());
  }
}

TEST_CASE("fresh gated weights have the same bits everywhere", "[initial]") {
  const auto hash = [](const char* trunk) {
    HashedParts parts;
    for (const InitialTensor& t : initial_weights(trunk, kSizes, 1)) {
      parts.add(t.name);
      parts.add(hex(hash64(t.view().data, t.view().bytes)));
    }
    return hex(parts.hash64());
  };
  CHECK(hash("gru") == "e791c9080f5508bc");
  CHECK(hash("lstm") == "b07480d674fb6b53");
  CHECK(hash("min_gru") == "df9bf002b320b464");
  CHECK(hash("min_lstm") == "f14b19e0ac38fa87");
  CHECK(hash("gated_deltanet") == "a6d9c3fe5242e85f");
}

TEST_CASE("a policy of Edifice's trunks with a linear head and without one: its errors name the tensor",
          "[initial][gated]") {
  for (const char* trunk : kEdifices) {
    CAPTURE(trunk);
    const auto tensors = initial_weights(trunk, kSizes, 1);
    TensorMap map = views(tensors);
    map.erase("head.bias");
    CHECK(test::error_of([&] { load_weights(map, {}, {}); }).message ==
          "tensor \"head.bias\" is missing from the weights");
    map.erase("head.kernel");
    CHECK(load_weights(map, {}, {})->config.d_output == 48);
    map["head.bias"] = views(tensors)["head.bias"];
    CHECK(test::error_of([&] { load_weights(map, {}, {}); }).message ==
          "tensor \"head.kernel\" is missing from the weights");
  }
}

TEST_CASE("bad sizes of a fresh policy are errors that name them", "[initial]") {
  const auto error = [](const std::string& trunk, const NamedSizes& sizes) {
    return test::error_of([&] { initial_weights(trunk, sizes, 0); });
  };
  for (const char* trunk : {"mamba1", "gru", "lstm", "min_gru", "min_lstm", "gated_deltanet"}) {
    for (const auto& [name, size] : kSizes) {
      CHECK(error(trunk, without(name)).argument == ":" + name);
      CHECK(error(trunk, with(without(name), name, 0)).argument == ":" + name);
      const auto large = error(trunk, with(without(name), name, std::int64_t{1} << 62));
      CHECK(large.argument == ":" + name);
      CHECK(large.kind == ErrorKind::limit_exceeded);
    }
    CHECK(error(trunk, with(without("d_model"), "d_model", 1 << 20)).argument == ":d_model");
  }
  CHECK(error("gru", with(kSizes, "d_state", 16)).message == ":d_state is not a size of the trunk :gru");
  CHECK(error("mamba1", with(kSizes, "heads_per_group", 2)).argument == ":heads_per_group");
  CHECK(error("mamba1", with(kSizes, "d_conv", 17)).kind == ErrorKind::limit_exceeded);
  CHECK(error("gru9", kSizes).argument == "trunk");
}

TEST_CASE("exact_log and exact_exp are those of the C library but for rounding", "[initial]") {
  for (double x = 1e-6; x < 1e6; x *= 1.37) {
    CHECK(std::abs(exact_log(x) - std::log(x)) <= 4e-16 * std::max(1.0, std::abs(std::log(x))));
  }
  for (double x = -50; x < 50; x += 0.37) {
    CHECK(std::abs(exact_exp(x) / std::exp(x) - 1) < 1e-14);
  }
  CHECK(exact_log(1) == 0);
  CHECK(exact_exp(0) == 1);
}

TEST_CASE("metadata name the outputs of a head", "[initial]") {
  const auto tensors = initial_weights("mamba1", kSizes, 1);
  const auto load = [&](const std::string& heads) {
    return load_weights(views(tensors), {{"exphil_native.heads", heads}}, {});
  };
  const auto groups = load("x:7,y:3,jump:4:binary")->config.groups;
  REQUIRE(groups.size() == 3);
  CHECK(groups[1].name == "y");
  CHECK(groups[1].first == 7);
  CHECK(groups[1].count == 3);
  CHECK(groups[2].first == 10);
  CHECK((groups[2].binary && !groups[1].binary));
  CHECK(load("x:14")->fingerprint == load("y:14")->fingerprint);
  for (const char* bad :
       {"", "x", "x:13", "x:15", "x:0,y:14", "x:14,", "x:-1,y:15", "x:14:other", ":14", "x y:14",
        "x:99999999999999999999", "x:9223372036854775807,y:9223372036854775807", "x:14:binary:"}) {
    CAPTURE(bad);
    // A caller's, and a file's.
    const auto error = test::error_of([&] { load(bad); });
    CHECK(error.kind == ErrorKind::invalid_argument);
    CHECK(error.argument == ":heads");
    const Checkpoint file = Checkpoint::of(views(tensors), {{"exphil_native.heads", bad}});
    CHECK(test::error_of([&] { load_weights(file, {}); }).kind == ErrorKind::invalid_checkpoint);
  }
}

TEST_CASE("errors of weights that a caller gives name them", "[initial]") {
  const auto tensors = initial_weights("mamba1", kSizes, 1);
  TensorMap map = views(tensors);
  map.erase("head.bias");
  const auto error = test::error_of([&] { load_weights(map, {}, {}); });
  CHECK(error.argument == "weights");
  CHECK(error.message == "tensor \"head.bias\" is missing from the weights");
  // The window of a file that this library saved.
  CHECK(load_weights(views(tensors), {{"exphil_native.window_size", "60"}}, {})->config.window == 60);
}

}  // namespace exphil::core
