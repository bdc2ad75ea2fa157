// Policies of gated cells (GRU, LSTM, minGRU, minLSTM) on a GPU: how they are lowered, and every call by the
// kernels over many rows, against the reference and bit by bit.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/policy/rounding.hpp"
#include "core/trunk/load.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/window.hpp"
#include "kernels/policy/row_layout.cuh"
#include "support/catch.hpp"
#include "support/gated_network.hpp"
#include "support/policy_forms.hpp"
#include "support/shared_data.hpp"

namespace exphil::test {
namespace {

using formulas::Cell;
using policy::Kind;
using Weights = std::shared_ptr<const core::PolicyWeights>;

std::vector<Kind> kinds(const policy::Block& block) {
  std::vector<Kind> kinds;
  for (int i = 0; i < block.count; ++i) kinds.push_back(block.phases[i].kind);
  return kinds;
}

cuda::PolicyDims dims_of(const GatedSpec& spec) {
  return cuda::PolicyDims(gated_weights(spec)->config);
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
  const cuda::PolicyDims dims = dims_of({Cell::gru, 70, 34, 7, 2, true});
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
  GatedNetwork made({Cell::gru, 41, 34, 7, 2, true});
  NetworkBuilder& b = made.builder();
  for (core::Block& layer : b.n.layers) {
    layer.back() = b.product(core::writes(layer[layer.size() - 2]), {b.n.hidden, 0, 34}, true);
  }
  return made.weights();
}

TEST_CASE("a cell that is added to hidden, and one whose output a product reads",
          "[cuda][policy][lower][gated]") {
  const policy::Network added = dims_of({Cell::min_gru, 9, 34, 7, 2, false}).network();
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
  const std::string gru = cuda::text_of(dims_of({Cell::gru, 70, 34, 7, 2, true}).network());
  CHECK(gru.find("Kind::cell") != std::string::npos);
  CHECK(gru.find("{formulas::Cell::gru,{") != std::string::npos);
  CHECK(gru.find(",34,70}") != std::string::npos);
  CHECK(gru.find(' ') == std::string::npos);
  std::set<std::string> texts;
  for (const GatedSpec& spec : gated_specs()) texts.insert(cuda::text_of(dims_of(spec).network()));
  CHECK(texts.size() == gated_specs().size());
}

TEST_CASE("a cell's state is packed unit by unit, and a new agent's state is the network's",
          "[cuda][policy][gated]") {
  for (const GatedSpec& spec : gated_specs()) {
    INFO(static_cast<int>(spec.cell) << " " << spec.d_input);
    const cuda::PolicyDims dims = dims_of(spec);
    const core::Network& n = dims.config.network;
    std::vector<float> values, found(static_cast<std::size_t>(n.state_floats()));
    for (const core::StatePart& part : n.states) {
      values.insert(values.end(), part.initial.begin(), part.initial.end());
    }
    const std::vector<float> packed = cuda::initial_state(dims);
    CHECK(packed.empty() != spec.initial);
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
  const cuda::PolicyDims dims = dims_of({Cell::lstm, 41, 34, 7, 2, true});
  const policy::Network& n = dims.network();
  // Both states are carried in the array from which the product reads the first.
  const policy::RowPlace before = policy::row_place(n, n.cells[0].before);
  CHECK(before.owner == n.cells[0].before);
  CHECK(before.at == 0);
  CHECK(before.stride == 2 * 64);
  CHECK(entries_of_cells(dims) == std::vector<std::string>{"policy_cell_recall", "policy_cell_frame"});
  CHECK(entries_of_cells(dims_of({Cell::min_gru, 9, 34, 7, 2, false})) ==
        std::vector<std::string>{"policy_cell_time"});
}

TEST_CASE("a team divides a cell unit by unit, and the kernels for windows do not take it",
          "[cuda][policy][lower][gated]") {
  cuda::DeviceProperties device;
  device.compute_major = 8, device.multiprocessors = 132, device.max_shared_per_block = 227 << 10;
  for (const GatedSpec& spec : gated_specs()) {
    const cuda::PolicyDims dims = dims_of(spec);
    CHECK_FALSE(policy::WindowPlan(dims.network()).fits);
    CHECK(cuda::window_candidates(device, dims, {}).empty());
    CHECK(cuda::team_candidates(device, dims, {}, 1).size() > 0);
  }
  const policy::Network n = dims_of({Cell::gru, 287, 256, 81, 2, true}).network();
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
  policy::Network n = dims_of({Cell::gru, 34, 34, 7, 2, true}).network();
  REQUIRE(policy::TeamPlan(n).fits);
  n.products[n.layer.phases[0].index].in = n.cells[0].before;  // before anything recalls it
  CHECK_FALSE(policy::TeamPlan(n).fits);
  policy::Network read = dims_of({Cell::min_gru, 34, 34, 7, 2, true}).network();
  read.products[read.output.phases[0].index].in = read.cells[0].x[0];
  CHECK_FALSE(policy::TeamPlan(read).fits);
}

TEST_CASE("a recall that the GPU's kernels cannot have is refused", "[cuda][policy][lower][gated]") {
  core::PolicyConfig both = gated_weights({Cell::lstm, 34, 34, 7, 2, false})->config;
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
  core::PolicyConfig other = gated_weights({})->config;
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
  for (const GatedSpec& spec : gated_specs()) {
    INFO(static_cast<int>(spec.cell) << " " << spec.d_input);
    check_gated(gated_weights(spec), 9, {2, 5});
  }
  check_gated(with_product(), 9, {2});
  CHECK(emulated_launches("policy_cell_frame") > 0);
  CHECK(emulated_launches("policy_cell_time") > 0);
  CHECK(emulated_launches("policy_step") > 0);
}

TEST_CASE("precisions of gated policies on an emulated GPU", "[.emulated_gated_precision]") {
  emulate_launches();
  for (const auto& [spec, precision] :
       {std::pair(GatedSpec{Cell::gru, 70, 34, 7, 2, true}, core::Precision::int8),
        std::pair(GatedSpec{Cell::lstm, 9, 34, 7, 2, true}, core::Precision::bf16),
        std::pair(GatedSpec{Cell::min_gru, 9, 34, 7, 1}, core::Precision::f16)}) {
    INFO(core::precision_name(precision));
    check_gated(std::make_shared<core::PolicyWeights>(core::rounded_weights(*gated_weights(spec), precision)),
                9, {3});
  }
}

// Recorded policies, as ExPhil's agents play them.
struct Recorded {
  std::string folder;
  std::int64_t seq;
};
const std::vector<Recorded>& small_recorded() {
  static const std::vector<Recorded> all = {{"gru_e32_h32_w20", 20},     {"gru_fused_e32_h32_w20", 20},
                                            {"lstm_e32_h32_w20", 20},    {"lstm_fused_e32_h32_w20", 20},
                                            {"min_gru_e32_h32_w20", 20}, {"min_lstm_e32_h32_w20", 20}};
  return all;
}
std::string path_of(const Recorded& set, const char* file) {
  return shared_path("exphil/trunks/" + set.folder + "/" + file);
}

void check_recorded(const Recorded& set, std::int64_t windows) {
  INFO(set.folder);
  const Weights weights = core::load_weights(core::Checkpoint::open(path_of(set, "policy.bin")), {});
  const auto policy = load_on_device(weights, 16);
  const std::vector<float> frames = read_f32(path_of(set, "io.safetensors"), "windows"),
                           expected = read_f32(path_of(set, "io.safetensors"), "logits_batch1");
  const auto outputs = static_cast<std::size_t>(windows * weights->config.d_output);
  std::vector<float> found(outputs);
  policy->window(frames.data(), windows, set.seq, found.data());
  CHECK(relative_error(found.data(), expected.data(), outputs) < 1e-5);
}

TEST_CASE("recorded gated policies on an emulated GPU", "[.emulated_gated_recorded]") {
  emulate_launches();
  for (const Recorded& set : small_recorded()) check_recorded(set, 2);
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
  if (!have_shared("exphil/trunks/README.md")) return;
  require_passed(
      run_over_emulated("[.emulated_gated_recorded]", {{"EXPHIL_NATIVE_POLICY", kEmulatedPolicy}}));
}

TEST_CASE("gated policies on the GPU", "[cuda][gpu][policy][gated]") {
  if (!have_device()) return;
  for (GatedSpec spec : gated_specs()) {
    INFO(static_cast<int>(spec.cell) << " " << spec.d_input);
    check_gated(gated_weights(spec), 40, {2, 9, 300});
  }
  check_gated(with_product(), 40, {2, 9});
}

TEST_CASE("gated policies in every precision on the GPU", "[cuda][gpu][policy][gated][precision]") {
  if (!have_device()) return;
  for (const auto precision : {core::Precision::bf16, core::Precision::f16, core::Precision::int8}) {
    for (const GatedSpec& spec : gated_specs()) {
      INFO(static_cast<int>(spec.cell) << " " << core::precision_name(precision));
      check_gated(
          std::make_shared<core::PolicyWeights>(core::rounded_weights(*gated_weights(spec), precision)), 12,
          {5});
    }
  }
}

TEST_CASE("recorded gated policies on the GPU", "[cuda][gpu][policy][gated][exphil]") {
  if (!have_device() || !have_shared("exphil/trunks/README.md")) return;
  for (const Recorded& set : small_recorded()) check_recorded(set, 8);
  check_recorded({"gru_e287_h256_w60", 60}, 8);
}

// Bits of a batch and of a sequence, at the size that is played.
TEST_CASE("a gated policy of the size that is played, on the GPU", "[cuda][gpu][policy][gated][exphil]") {
  if (!have_device() || !have_shared("exphil/trunks/README.md")) return;
  for (const char* folder : {"gru_e287_h256_w60", "lstm_e32_h32_w20", "min_lstm_e32_h32_w20"}) {
    INFO(folder);
    const Weights weights =
        core::load_weights(core::Checkpoint::open(path_of({folder, 0}, "policy.bin")), {});
    check_policy_form(*load_on_device(weights, 1200), *weights, 70, {2, 33, 1030});
  }
}

}  // namespace
}  // namespace exphil::test
