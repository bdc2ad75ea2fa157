#include "cuda/policy/gradient_memory.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "cuda/device/places.hpp"
#include "cuda/policy/gradient_order.hpp"
#include "cuda/scan/backward.hpp"

namespace exphil::cuda {

using core::Block;
using core::Network;
using core::Span;

namespace {

using Pieces = std::vector<std::vector<Span>>;
// An aligned copy takes some 3 us; with so many rows and outputs of products that read them it saves more.
constexpr std::int64_t kAlignedRows = 512, kAlignedOutputs = 512;

// Of all products that read the span.
std::int64_t outputs_of(const Block& block, const Span& span) {
  std::int64_t outputs = 0;
  for (const core::Phase& phase : block) {
    const auto* const p = std::get_if<core::Product>(&phase);
    if (p != nullptr && p->in == span) outputs += p->out.size;
  }
  return outputs;
}

// What the parts of a block's sums take: into() rounds each up. A new kind of phase whose gradient is summed
// in parts needs a function here.
class PartFloats {
 public:
  PartFloats(const GradientShape& shape, const Pieces& pieces) : p_(shape), pieces_(pieces) {}
  std::int64_t of(const Block& block) {
    floats_ = 0;
    for (const core::Phase& phase : block) {
      std::visit([this](const auto& p) { add_phase(p); }, phase);
    }
    return floats_;
  }

 private:
  template <class Other>
  void add_phase(const Other&) {}
  void add_phase(const core::Norm& p) {
    for (int i = 0; i < 2; ++i) add(norm_blocks(p_.rows()) * p.in.size);
  }
  void add_phase(const core::Product& p) {
    for (const Span& piece : pieces_[static_cast<std::size_t>(p.out.vector)]) {
      const std::int64_t outs = parts_of_rows(p_.rows()) * std::min(p.out.size, piece.size);
      add(outs * p.in.size), add(outs);
    }
  }
  void add_phase(const core::Convolution& p) {
    const std::int64_t parts = p_.sequences * convolve_segments(p_.seq);
    add(parts * p.in.size * p.taps), add(parts * p.in.size);
  }
  void add_phase(const core::HeadRecurrence& p) {
    const std::int64_t tiles = head_tiles(p), of_group = tiles * p.heads() / p.groups;
    add(p_.sequences * tiles * p.heads()), add(p_.sequences * std::max(tiles * p.heads(), p.skips));
    add(tiles * p_.rows() * p.heads());
    for (int i = 0; i < 2; ++i) add(of_group * p_.rows() * p.key.size);
    if (p.rule != formulas::HeadRule::trapezoid) return;
    for (int i = 0; i < 2; ++i) add(tiles * p_.rows() * p.heads());
    add(of_group * p_.rows() * p.key.size), add(p_.sequences * p.ranks * p.value.size);
  }
  void add_phase(const core::Angle& p) {
    for (int i = 0; i < 2; ++i) add(p_.rows() * p.heads() * p.angles());
  }
  void add_phase(const core::Rotation& p) { add(p_.rows() * p.out.size); }
  void add_phase(const core::RankScale& p) { add(norm_blocks(p_.rows()) * p.ranks * p.heads * p.channels()); }
  void add_phase(const core::SelectiveScan& p) {
    add(p_.sequences * p.x.size * p.b.size), add(p_.sequences * p.x.size);
    if (is_selective_scan(p, p_)) return;
    for (int i = 0; i < 2; ++i) add(scan_tiles(p.x.size, p.b.size) * p_.rows() * p.b.size);
  }

  void add(std::int64_t floats) { floats_ += PartialSums::padded(floats); }
  const GradientShape& p_;
  const Pieces& pieces_;
  std::int64_t floats_ = 0;
};

// Bytes of the scans' own memory.
std::size_t scan_bytes(const Context& context, const core::SelectiveScan& scan, const GradientShape& p) {
  if (is_selective_scan(scan, p)) {
    return scan_gradient_scratch(scan_shape(scan, p, true), context.properties());
  }
  const std::int64_t tiles = scan_tiles(scan.x.size, scan.b.size);
  const std::int64_t segments = (p.seq + policy::kScanSegment - 1) / policy::kScanSegment;
  return static_cast<std::size_t>(p.sequences * tiles * (segments + policy::kScanSegment) *
                                  policy::kScanThreads) *
         sizeof(float);
}

std::size_t scan_bytes(const Context& context, const Block& block, const GradientShape& shape) {
  std::size_t most = 0;
  for (const core::Phase& phase : block) {
    const auto* const scan = std::get_if<core::SelectiveScan>(&phase);
    if (scan != nullptr) most = std::max(most, scan_bytes(context, *scan, shape));
    const auto* const heads = std::get_if<core::HeadRecurrence>(&phase);
    if (heads == nullptr) continue;
    const std::int64_t floats = head_state_floats(*heads, shape.sequences, shape.seq);
    most = std::max(most, static_cast<std::size_t>(floats) * sizeof(float));
  }
  return most;
}

// Gives matrices their places, and their addresses once there is memory.
class Plan {
 public:
  void take(Matrix& matrix, std::int64_t rows, std::int64_t columns) {
    matrix = Matrix(nullptr, rows, columns);
    take(matrix.data, core::checked_multiply(rows, columns, "frames"));
  }
  void take(float*& pointer, std::int64_t floats) {
    const std::int64_t bytes = core::checked_multiply(floats, sizeof(float), "frames");
    taken_.emplace_back(&pointer, places_.take(static_cast<std::size_t>(bytes)));
  }
  std::size_t take_bytes(std::size_t count) { return places_.take(count); }
  // What is taken next begins at the same place as what was taken since `start`, which is not in use then.
  Places places() const { return places_; }
  void go_to(const Places& start) { places_ = start; }
  void set(CUdeviceptr base) {
    for (const auto& [pointer, place] : taken_) *pointer = as_pointer<float>(base + place);
  }

 private:
  Places places_;
  std::vector<std::pair<float**, std::size_t>> taken_;
};

// Takes the memory of one GradientMemory.
class Layout {
 public:
  Layout(const Network& network, const std::vector<Pieces>& pieces, GradientMemory& memory)
      : n_(network), m_(memory), rows_(memory.shape.rows()), pieces_(pieces), blocks_(blocks_of(network)) {}

  // What a call uploads, in this order.
  void take_inputs() {
    take(0, m_.blocks.front().vectors, n_.frame);
    if (m_.shape.gradient) take(0, m_.gradients, n_.outs);
    if (m_.shape.with_state) take_states(m_.states);
    if (m_.shape.target_columns > 0) plan.take(m_.targets, rows_ * m_.shape.target_columns);
    if (m_.shape.with_mask) plan.take(m_.mask, rows_);
  }

  void take_results() {
    if (m_.shape.keeps_state) take_states(m_.final_states);
    for (std::size_t i = 0; i < blocks_.size(); ++i) take_block(i);
  }

  // Every second block has the same memory.
  void take_gradients() {
    if (m_.shape.by_state) take_states(m_.d_states);
    take(0, m_.gradients, n_.frame), take(0, m_.gradients, n_.hidden);
    for (std::size_t first = 0; first < m_.sums.size(); ++first) {
      const Places start = plan.places();
      Places end = start;
      for (std::size_t i = first; i < blocks_.size(); i += m_.sums.size()) {
        plan.go_to(start);
        for (const core::Phase& phase : *blocks_[i]) take_gradient(i, core::writes(phase).vector);
        if (plan.places().bytes() > end.bytes()) end = plan.places();
      }
      plan.go_to(end);
    }
  }

  // Where products are large enough for that to be worth two copies.
  void take_aligned() {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      std::vector<Matrix>& aligned = m_.blocks[i].aligned;
      aligned.resize(n_.vectors.size());
      for (const core::Phase& phase : *blocks_[i]) {
        const auto* const p = std::get_if<core::Product>(&phase);
        if (p == nullptr || rows_ < kAlignedRows || p->in.size % 4 == 0 || is_walked(*blocks_[i], *p))
          continue;
        const auto id = static_cast<std::size_t>(p->in.vector);
        const std::vector<Span>& pieces = pieces_[i][id];
        if (pieces.size() != 1 || !(pieces[0] == p->in)) continue;
        if (outputs_of(*blocks_[i], p->in) < kAlignedOutputs) continue;
        take(&aligned[id], rows_, p->in.size);
        take(&m_.weights[static_cast<std::size_t>(p->weight)], n_.weight(p->weight).rows, p->in.size);
      }
    }
  }

  Plan plan;

 private:
  void take(Matrix* aligned, std::int64_t rows, std::int64_t columns) {
    if (aligned->rows > 0) return;
    *aligned = Matrix::aligned(nullptr, rows, columns);
    plan.take(aligned->data, rows * aligned->stride);
  }

  void take(std::size_t block, std::vector<VectorRows>& vectors, core::VectorId id) {
    VectorRows& vector = vectors[static_cast<std::size_t>(id)];
    if (!vector.empty()) return;
    for (const Span& piece : pieces_[block][static_cast<std::size_t>(id)])
      vector.emplace_back(nullptr, 0, piece.size);
    for (Matrix& piece : vector) plan.take(piece, rows_, piece.columns);
  }

  void take_states(std::vector<float*>& states) {
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (n_.states[i].size() > 0) plan.take(states[i], m_.shape.sequences * n_.states[i].size());
    }
  }

  void take_block(std::size_t index) {
    const Block& phases = *blocks_[index];
    GradientBlock& block = m_.blocks[index];
    block.active_dt.resize(phases.size()), block.cell_states.resize(phases.size());
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const Span out = core::writes(phases[i]);
      if (out.vector != n_.hidden) take(index, block.vectors, out.vector);
      const auto* const scan = std::get_if<core::SelectiveScan>(&phases[i]);
      if (scan != nullptr && scan->activates && !is_selective_scan(*scan, m_.shape)) {
        plan.take(block.active_dt[i], rows_, scan->x.size);
      }
      // What a recall gives of a cell is its first state.
      const auto* const cell = std::get_if<core::GatedCell>(&phases[i]);
      if (cell == nullptr || !m_.shape.gradient) continue;
      const bool recalls = formulas::recurrent(cell->cell);
      if (formulas::states_of(cell->cell) > (recalls ? 1 : 0)) {
        plan.take(block.cell_states[i], rows_, cell->out.size);
      }
    }
    if (&block == &m_.blocks.back()) return;
    hidden_ = hidden_after(n_, phases, hidden_);
    block.hidden.resize(1);
    plan.take(block.hidden[0], rows_, hidden_);
  }

  void take_gradient(std::size_t block, core::VectorId id) {
    if (id == n_.hidden || id == n_.outs) return;
    std::vector<VectorRows>& gradients = m_.blocks[block].gradients;
    for (const core::Phase& phase : *blocks_[block]) {
      const auto* const scan = std::get_if<core::SelectiveScan>(&phase);
      if (scan == nullptr || scan->input_dt.vector != id) continue;
      gradients[static_cast<std::size_t>(id)].resize(1);
      return plan.take(gradients[static_cast<std::size_t>(id)][0], rows_, scan->x.size);
    }
    take(block, gradients, id);
  }

  const Network& n_;
  GradientMemory& m_;
  const std::int64_t rows_;
  const std::vector<Pieces>& pieces_;  // of each block
  const std::vector<const Block*> blocks_;
  std::int64_t hidden_ = 0;  // values of it that the blocks so far leave
};

}  // namespace

bool is_selective_scan(const core::SelectiveScan& scan, const GradientShape& shape) {
  return !scan.input_dt && !core::decays_input(scan, shape.length);
}

GradientMemory::GradientMemory(Context& context, const Network& network, const GradientShape& given)
    : shape(given),
      blocks(network.layers.size() + 2),
      gradients(network.vectors.size()),
      states(network.states.size()),
      final_states(network.states.size()),
      d_states(network.states.size()),
      weights(network.weights.size()),
      frame_(network.frame),
      outs_(network.outs) {
  for (GradientBlock& block : blocks) {
    block.vectors.resize(network.vectors.size()), block.gradients.resize(network.vectors.size());
  }
  const std::vector<const Block*> all = blocks_of(network);
  std::vector<Pieces> pieces;
  for (const Block* block : all) pieces.push_back(pieces_of(network, *block));
  Layout layout(network, pieces, *this);
  layout.take_inputs();
  layout.take_results();
  layout.take_aligned();
  std::array<float*, 2> parts{};
  std::size_t scratch = 0;
  std::int64_t part_floats = 0;
  if (shape.gradient) {
    layout.take_gradients();
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      part_floats = std::max(part_floats, PartFloats(shape, pieces[i]).of(*all[i]));
      bytes = std::max(bytes, scan_bytes(context, *all[i], shape));
    }
    for (float*& part : parts) layout.plan.take(part, part_floats);
    scratch = layout.plan.take_bytes(bytes);
  }
  memory_ = context.device_pool().allocate(layout.plan.places().bytes());
  layout.plan.set(address());
  const auto hidden = static_cast<std::size_t>(network.hidden);
  blocks.front().vectors[hidden] = blocks.front().hidden;
  for (std::size_t i = 1; i < blocks.size(); ++i) blocks[i].vectors[hidden] = blocks[i - 1].hidden;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = PartialSums(parts[i], part_floats);
  scan_scratch = address() + scratch;
}

float* GradientMemory::spare(Context& context, std::int64_t floats) {
  spares_.push_back(context.device_pool().allocate(static_cast<std::size_t>(floats) * sizeof(float)));
  return as_pointer<float>(spares_.back().address());
}

}  // namespace exphil::cuda
