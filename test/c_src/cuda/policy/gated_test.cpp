// Policies of gated cells (GRU, LSTM, minGRU, minLSTM) on a GPU: how they are lowered, and every call by the
// kernels over many rows, against the reference and bit by bit.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/policy/rounding.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/window.hpp"
#include "kernels/policy/row_layout.cuh"
#include "support/catch.hpp"
#include "support/gated_policy.hpp"
#include "support/numbers.hpp"
#include "support/policy_forms.hpp"

namespace exphil::test {
namespace {

using policy::Kind;
using Weights = std::shared_ptr<const core::PolicyWeights>;

std::vector<Kind> kinds(const policy::Block& block) {
  std::vector<Kind> kinds;
  for (int i = 0; i < block.count; ++i) kinds.push_back(block.phases[i].kind);
  return kinds;
}

GatedSpec spec_of(const char* architecture, std::int64_t d_input, std::int64_t units, bool fused = false) {
  GatedSpec spec;
  spec.architecture = architecture, spec.d_input = d_input, spec.units = units, spec.fused = fused;
  spec.projects = spec.architecture[0] == 'm' && d_input != units;
  spec.heads = d_input < units;
  return spec;
}

// Each cell, with what differs in the first layer: fewer values than units, more, and other padding.
std::vector<GatedSpec> specs() {
  std::vector<GatedSpec> all = {spec_of("gru", 9, 34), spec_of("gru", 70, 34, true), spec_of("lstm", 41, 34),
                                spec_of("min_gru", 9, 34), spec_of("min_lstm", 65, 65)};
  all.front().n_layer = 3;
  return all;
}

cuda::PolicyDims dims_of(const GatedSpec& spec) {
  return cuda::PolicyDims(make_gated(spec)->config);
}

// Why the GPU does not take a network; empty: it does.
template <class Call>
std::string why_not(Call call) {
  try {
    call();
  } catch (const core::Error& error) {
    CHECK(error.kind() == core::ErrorKind::unsupported);
    return error.what();
  }
  return "";
}

TEST_CASE("a gated layer is lowered to its products and a cell that writes hidden",
          "[cuda][policy][lower][gated]") {
  const cuda::PolicyDims dims = dims_of(spec_of("gru", 70, 34));
  const policy::Network& n = dims.network();
  // The frame is the first hidden.
  CHECK(n.input.count == 0);
  CHECK(n.frame == n.hidden);
  CHECK(kinds(n.layer) == std::vector<Kind>{Kind::product, Kind::product, Kind::cell});
  CHECK(kinds(n.output) == std::vector<Kind>{Kind::product});
  const policy::GatedCell& cell = n.cells[0];
  const policy::Product &x = n.products[n.layer.phases[0].index], &h = n.products[n.layer.phases[1].index],
                        &head = n.products[n.output.phases[0].index];
  CHECK(cell.out == n.hidden);
  CHECK_FALSE(cell.adds);
  CHECK(x.in == n.hidden);
  CHECK(x.norm == policy::Norm::layer);
  CHECK(h.in == cell.before);
  CHECK(n.recalled(h.in));
  REQUIRE((x.outputs == 3 && h.outputs == 3));
  for (int gate = 0; gate < 3; ++gate) {
    CHECK(cell.x[gate] == x.out[gate].vector);
    CHECK(cell.h[gate] == h.out[gate].vector);
  }
  // The first layer's norm counts the frame, the others' the units.
  CHECK(n.counted_first(x) == 70);
  CHECK(n.counted(x) == 34);
  CHECK(n.counted(head) == 34);
  CHECK(n.size(n.hidden) == 96);
  CHECK(n.layer_floats == 64);
  CHECK(dims.lowered.layers[0][0].columns == 70);
  CHECK(dims.lowered.layers[1][0].columns == 34);
}

// A product of what the cell writes replaces hidden.
Weights with_product() {
  auto made = std::make_shared<core::PolicyWeights>(*make_gated(spec_of("gru", 41, 34)));
  core::Network& n = made->config.network;
  Random random(5);
  for (core::Block& layer : n.layers) {
    core::Product product{core::writes(layer[layer.size() - 2]), core::writes(layer.back())};
    product.weight = static_cast<core::WeightId>(n.weights.size());
    n.weights.push_back({"closing product", 34, 34});
    made->values.push_back(random.vector(34 * 34, -0.5f, 0.5f));
    layer.back() = product;
  }
  core::check(n);
  return made;
}

TEST_CASE("a cell that is added to hidden, and one whose output a product reads",
          "[cuda][policy][lower][gated]") {
  const policy::Network added = dims_of(spec_of("min_gru", 9, 34)).network();
  CHECK(kinds(added.layer) == std::vector<Kind>{Kind::product, Kind::cell});
  CHECK(added.cells[0].out == added.hidden);
  CHECK(added.cells[0].adds);
  CHECK(added.cells[0].before == policy::kNoVector);
  const policy::Network n = cuda::PolicyDims(with_product()->config).network();
  CHECK(kinds(n.layer) == std::vector<Kind>{Kind::product, Kind::product, Kind::cell, Kind::product});
  CHECK(n.cells[0].out != n.hidden);
  CHECK_FALSE(n.products[n.layer.phases[3].index].adds);
}

TEST_CASE("the text of a network has its cells and the values that norms count",
          "[cuda][policy][lower][gated]") {
  const std::string gru = cuda::text_of(dims_of(spec_of("gru", 70, 34)).network());
  CHECK(gru.find("Kind::cell") != std::string::npos);
  CHECK(gru.find("{formulas::Cell::gru,{") != std::string::npos);
  CHECK(gru.find(",34,70}") != std::string::npos);
  CHECK(gru.find(' ') == std::string::npos);
  std::set<std::string> texts;
  for (const GatedSpec& spec : specs()) texts.insert(cuda::text_of(dims_of(spec).network()));
  CHECK(texts.size() == specs().size());
}

TEST_CASE("a cell's state is packed unit by unit, and a new agent's state is the network's",
          "[cuda][policy][gated]") {
  for (const GatedSpec& spec : specs()) {
    INFO(spec.architecture << " " << spec.d_input);
    const cuda::PolicyDims dims = dims_of(spec);
    const core::Network& n = dims.config.network;
    std::vector<float> values, found(static_cast<std::size_t>(n.state_floats()));
    for (const core::StatePart& part : n.states) {
      values.insert(values.end(), part.initial.begin(), part.initial.end());
    }
    const std::vector<float> packed = cuda::initial_state(dims);
    CHECK(packed.empty() == (spec.fused || spec.architecture[0] == 'm'));
    if (packed.empty()) continue;
    CHECK(packed[1] == values[1]);
    const std::size_t second = static_cast<std::size_t>(dims.network().layer_floats);
    CHECK(packed[second] == n.states[1].initial[0]);
    CHECK(packed[static_cast<std::size_t>(spec.units)] == 0.0f);  // padding
    cuda::unpack_state(dims, packed.data(), found.data());
    CHECK(found == values);
  }
}

std::vector<std::string> entries_of_cells(const cuda::PolicyDims& dims) {
  std::vector<std::string> entries;
  for (const cuda::KernelSpec& spec : cuda::row_kernels(dims)) {
    if (spec.file == "policy/cell.cu") entries.push_back(spec.entry);
  }
  return entries;
}

TEST_CASE("arrays and kernels of a cell over many rows", "[cuda][policy][gated]") {
  const cuda::PolicyDims dims = dims_of(spec_of("lstm", 41, 34));
  const policy::Network& n = dims.network();
  // Both states are carried in the array from which the product reads the first.
  const policy::RowPlace before = policy::row_place(n, n.cells[0].before);
  CHECK(before.owner == n.cells[0].before);
  CHECK(before.at == 0);
  CHECK(before.stride == 2 * 64);
  CHECK(entries_of_cells(dims) == std::vector<std::string>{"policy_cell_recall", "policy_cell_frame"});
  CHECK(entries_of_cells(dims_of(spec_of("min_gru", 9, 34))) == std::vector<std::string>{"policy_cell_time"});
}

TEST_CASE("a team divides a cell unit by unit, and the kernels for windows do not take it",
          "[cuda][policy][lower][gated]") {
  cuda::DeviceProperties device;
  device.compute_major = 8, device.multiprocessors = 132, device.max_shared_per_block = 227 << 10;
  for (const GatedSpec& spec : specs()) {
    const cuda::PolicyDims dims = dims_of(spec);
    CHECK_FALSE(policy::WindowPlan(dims.network()).fits);
    CHECK(cuda::window_candidates(device, dims, {}).empty());
    CHECK(cuda::team_candidates(device, dims, {}, 1).size() > 0);
  }
  const policy::Network n = dims_of(spec_of("gru", 287, 256)).network();
  const policy::GatedCell& cell = n.cells[0];
  const policy::TeamPlan plan(n);
  REQUIRE(plan.fits);
  for (const int vector : {n.hidden, cell.before}) CHECK(plan.places[vector] == policy::Place::board);
  for (int gate = 0; gate < 3; ++gate) {
    for (const int vector : {cell.x[gate], cell.h[gate]}) {
      CHECK(plan.places[vector] == policy::Place::own);
      CHECK(policy::block_rows(n, plan, 16, vector) == 16);
    }
  }
  CHECK(policy::useful_team(n, plan) == 32);
}

TEST_CASE("a team does not take a cell that another phase has to follow at once",
          "[cuda][policy][lower][gated]") {
  policy::Network n = dims_of(spec_of("gru", 34, 34)).network();
  REQUIRE(policy::TeamPlan(n).fits);
  n.products[n.layer.phases[0].index].in = n.cells[0].before;  // before anything recalls it
  CHECK_FALSE(policy::TeamPlan(n).fits);
  policy::Network read = dims_of(spec_of("min_gru", 34, 34)).network();
  read.products[read.output.phases[0].index].in = read.cells[0].x[0];
  CHECK_FALSE(policy::TeamPlan(read).fits);
}

TEST_CASE("a recall that the GPU's kernels cannot have is refused", "[cuda][policy][lower][gated]") {
  core::PolicyConfig both = make_gated(spec_of("lstm", 34, 34))->config;
  for (core::Block& layer : both.network.layers) {
    const auto of_state = [](const core::Phase& phase) { return core::recalled_by(phase) != core::kNone; };
    const core::VectorId before = core::writes(*std::find_if(layer.begin(), layer.end(), of_state)).vector;
    both.network.vectors[static_cast<std::size_t>(before)].size = 2 * 34;
    for (core::Phase& phase : layer) {
      if (auto* const recall = std::get_if<core::Recall>(&phase)) recall->out.size = 2 * 34;
      auto* const product = std::get_if<core::Product>(&phase);
      if (product != nullptr && product->in.vector == before) product->in.size = 2 * 34;
    }
  }
  CHECK(why_not([&] { cuda::lower(both); }).find("other values of a cell's state") != std::string::npos);
  core::PolicyConfig other = make_gated(spec_of("gru", 34, 34))->config;
  for (core::Block& layer : other.network.layers) {
    for (core::Phase& phase : layer) {
      if (auto* const recall = std::get_if<core::Recall>(&phase)) recall->state ^= 1;
    }
  }
  CHECK(why_not([&] { cuda::lower(other); }).find("a state of no cell") != std::string::npos);
}

// What a policy refuses, with a sentence for its user.
void check_refusals(core::Policy& policy, const Weights& weights) {
  const std::vector<float> frames(static_cast<std::size_t>(policy.config().d_input));
  core::PolicySequences sequences;
  sequences.batch = sequences.seq = 1, sequences.frames = frames.data();
  CHECK(why_not([&] { policy.grad(weights, sequences, nullptr, {}); }).find("backend: :host") !=
        std::string::npos);
}

void check_gated(const Weights& weights, std::int64_t frames, const std::vector<std::int64_t>& batches) {
  const auto policy = load_on_device(weights, 400);
  check_policy_form(*policy, *weights, frames, batches);
  check_refusals(*policy, weights);
}

TEST_CASE("gated policies on an emulated GPU", "[.emulated_gated]") {
  emulate_launches();
  for (const GatedSpec& spec : specs()) {
    INFO(spec.architecture << " " << spec.d_input);
    check_gated(make_gated(spec), 9, {2, 5});
  }
  check_gated(with_product(), 9, {2});
  CHECK(emulated_launches("policy_cell_frame") > 0);
  CHECK(emulated_launches("policy_cell_time") > 0);
  CHECK(emulated_launches("policy_step") > 0);
}

TEST_CASE("precisions of gated policies on an emulated GPU", "[.emulated_gated_precision]") {
  emulate_launches();
  for (const auto& [spec, precision] : {std::pair(spec_of("gru", 70, 34), core::Precision::int8),
                                        std::pair(spec_of("lstm", 9, 34), core::Precision::bf16),
                                        std::pair(spec_of("min_gru", 9, 34), core::Precision::f16)}) {
    INFO(core::precision_name(precision));
    check_gated(std::make_shared<core::PolicyWeights>(core::rounded_weights(*make_gated(spec), precision)), 9,
                {3});
  }
}

// The windows that Axon answered.
void check_recorded(const RecordedTrunk& set, std::int64_t windows) {
  INFO(set.name);
  const Weights weights = set.load();
  const auto policy = load_on_device(weights, 16);
  const std::vector<float> frames = set.io("windows"), expected = set.io("logits_batch1");
  const auto outputs = static_cast<std::size_t>(windows * weights->config.d_output);
  std::vector<float> found(outputs);
  policy->window(frames.data(), windows, set.seq, found.data());
  CHECK(relative_error(found.data(), expected.data(), outputs) < 1e-5);
}

TEST_CASE("recorded gated policies on an emulated GPU", "[.emulated_gated_recorded]") {
  emulate_launches();
  for (const RecordedTrunk& set : recorded_trunks()) {
    if (set.seq == 20) check_recorded(set, 2);
  }
}

TEST_CASE("gated policies run without a GPU", "[cuda][policy][emulated][gated]") {
  require_passed(run_over_emulated("[.emulated_gated]", {{"EXPHIL_NATIVE_POLICY", kEmulatedPolicy}}));
}

// More blocks than some of the cells have units for.
TEST_CASE("steps of gated policies by teams of blocks run without a GPU",
          "[cuda][policy][emulated][step_teams][gated]") {
  for (const char* team : {"team=4,", "team=16,"}) {
    const std::string tuning = std::string(team) + "cluster=1,staged=0,inline_obs=0,batch_agents=2";
    for (const char* tag : {"[.emulated_gated]", "[.emulated_gated_precision]"}) {
      CAPTURE(tag, team);
      require_passed(
          run_over_emulated(tag, {{"FAKE_CUDA_CAPABILITY", "90"}, {"EXPHIL_NATIVE_POLICY", tuning}}));
    }
  }
}

TEST_CASE("gated policies in several precisions run without a GPU", "[cuda][policy][emulated][gated]") {
  require_passed(
      run_over_emulated("[.emulated_gated_precision]", {{"EXPHIL_NATIVE_POLICY", kEmulatedPolicy}}));
}

TEST_CASE("recorded gated policies run without a GPU", "[cuda][policy][emulated][gated][exphil]") {
  if (!have_trunks()) return;
  require_passed(
      run_over_emulated("[.emulated_gated_recorded]", {{"EXPHIL_NATIVE_POLICY", kEmulatedPolicy}}));
}

TEST_CASE("gated policies on the GPU", "[cuda][gpu][policy][gated]") {
  if (!have_device()) return;
  for (GatedSpec spec : specs()) {
    INFO(spec.architecture << " " << spec.d_input);
    check_gated(make_gated(spec), 40, {2, 9, 300});
  }
  check_gated(with_product(), 40, {2, 9});
}

TEST_CASE("gated policies in every precision on the GPU", "[cuda][gpu][policy][gated][precision]") {
  if (!have_device()) return;
  for (const auto precision : {core::Precision::bf16, core::Precision::f16, core::Precision::int8}) {
    for (const GatedSpec& spec : specs()) {
      INFO(spec.architecture << " " << core::precision_name(precision));
      check_gated(std::make_shared<core::PolicyWeights>(core::rounded_weights(*make_gated(spec), precision)),
                  12, {5});
    }
  }
}

TEST_CASE("recorded gated policies on the GPU", "[cuda][gpu][policy][gated][exphil]") {
  if (!have_device() || !have_trunks()) return;
  for (const RecordedTrunk& set : recorded_trunks()) check_recorded(set, 8);
}

// One of them is of the size that is played.
TEST_CASE("recorded gated policies in every call on the GPU", "[cuda][gpu][policy][gated][exphil]") {
  if (!have_device() || !have_trunks()) return;
  for (const RecordedTrunk& set : recorded_trunks()) {
    INFO(set.name);
    const Weights weights = set.load();
    check_policy_form(*load_on_device(weights, 1200), *weights, 70, {2, 33, 1030});
  }
}

}  // namespace
}  // namespace exphil::test
