// How policies of gated cells (GRU, LSTM, minGRU, minLSTM) are lowered for a GPU, divided and packed.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cuda/policy/gated_specs.hpp"
#include "cuda/policy/lower.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/window.hpp"
#include "kernels/policy/row_layout.cuh"

namespace exphil::test {
namespace {

using policy::Kind;

std::vector<Kind> kinds(const policy::Block& block) {
  std::vector<Kind> kinds;
  for (int i = 0; i < block.count; ++i) kinds.push_back(block.phases[i].kind);
  return kinds;
}

cuda::PolicyDims dims_of(const GatedSpec& spec) {
  return cuda::PolicyDims(make_gated(spec)->config);
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

TEST_CASE("a cell that is added to hidden, and one whose output a product reads",
          "[cuda][policy][lower][gated]") {
  const policy::Network added = dims_of(spec_of("min_gru", 9, 34)).network();
  CHECK(kinds(added.layer) == std::vector<Kind>{Kind::product, Kind::cell});
  CHECK(added.cells[0].out == added.hidden);
  CHECK(added.cells[0].adds);
  CHECK(added.cells[0].before == policy::kNoVector);
  const policy::Network n = cuda::PolicyDims(gated_with_product()->config).network();
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
  for (const GatedSpec& spec : gated_specs()) texts.insert(cuda::text_of(dims_of(spec).network()));
  CHECK(texts.size() == gated_specs().size());
}

TEST_CASE("a cell's state is packed unit by unit, and a new agent's state is the network's",
          "[cuda][policy][gated]") {
  for (const GatedSpec& spec : gated_specs()) {
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
  for (const GatedSpec& spec : gated_specs()) {
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

}  // namespace
}  // namespace exphil::test
