#include "cuda/policy/lower_block.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <variant>

namespace exphil::cuda {
namespace {

using core::kNone;
using core::Span;
using policy::Activation;
using policy::kNoVector;

constexpr std::int64_t kMostStates = 1024, kMostTaps = 16, kMostShort = 1024;

unsigned bits_of(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Lowers the phases of one block. The phases of the second and later layers are those of the first one, and
// only their weights and states are new.
class BlockLowering {
 public:
  BlockLowering(const core::PolicyConfig& config, LoweredVectors& vectors, policy::Network* to, int* counts)
      : config_(config), vectors_(vectors), to_(to), counts_(counts) {}

  LoweredBlock run(const core::Block& block) {
    block_ = &block;
    for (const core::Phase& phase : block) {
      std::visit([this](const auto& p) { add(p); }, phase);
    }
    for (const core::Recall* const recall : recalls_) {
      if (recall != nullptr) cannot_lower("it recalls a state of no cell");
    }
    for (LoweredPhase& phase : made_) pass_bias(&phase);
    for (const LoweredPhase& phase : made_) find_bias(phase);
    return std::move(made_);
  }

 private:
  // ---- one function for each kind of core phase ----

  void add(const core::Norm& norm) {
    if (norm.parts != 1) cannot_lower("it has a norm of parts of a vector");
    norms_.push_back(&norm);
  }

  void add(const core::Copy& copy) {
    if (std::find(taken_.begin(), taken_.end(), &copy) != taken_.end()) return;
    LoweredPhase& phase = product_of(copy.in, copy.adds);
    product(phase).adds = copy.adds;
    append(&phase, copy.out, kNone, kNone, 0, Activation::none);
    phase.columns = copy.in.size;
  }

  void add(const core::Product& p) {
    LoweredPhase& phase = product_of(p.in, p.adds);
    if (!product(phase).is_short && vectors_.is_part(p.in) && norm_to(p.in) == nullptr) {
      require_at_most(p.in.size, kMostShort, "values of a part of a vector (" + vectors_.name(p.in) + ")");
      product(phase).is_short = true;
      vectors_.set_size(product(phase).in, policy::round_up(static_cast<int>(p.in.size), 4));
    }
    product(phase).adds = p.adds;
    append(&phase, p.out, p.weight, p.bias, p.first_row, p.relu ? Activation::relu : Activation::none);
  }

  void add(const core::Convolution& p) {
    require_at_most(p.taps, kMostTaps, "taps of a convolution");
    output_of(p.in, "a convolution of what");
    LoweredPhase& phase = push(policy::Kind::convolution);
    phase.matrix = p.weight, phase.vector = p.bias, phase.state = p.state;
    require_zeros(p.state);
    policy::Convolution& made = to_->convolutions[phase.phase.index];
    made.in = vectors_.of(p.in), made.out = vectors_.of(p.out), made.taps = static_cast<int>(p.taps);
  }

  // The product that writes its input writes its output instead.
  void add(const core::Softplus& p) { activate(p.in, p.out, p.bias, p.lowest, p.highest); }

  void add(const core::Mean& p) {
    if (p.out.size != 1) cannot_lower("it has means of parts of a vector");
    policy::Mean& made = to_->means[push(policy::Kind::mean).phase.index];
    made.in = vectors_.of(p.in), made.out = vectors_.of(p.out);
    vectors_.set_size(made.out, 1);
  }

  void add(const core::SelectiveScan& p) {
    require_at_most(p.b.size, kMostStates, "states of a channel (d_state)");
    if (p.activates) activate(p.dt, p.dt, p.dt_bias, p.lowest, p.highest);
    output_of(p.z, "a gate").activation = Activation::silu;
    LoweredPhase& phase = push(policy::Kind::scan);
    phase.matrix = p.a, phase.vector = p.d, phase.state = p.state;
    require_zeros(p.state);
    policy::Scan& made = to_->scans[phase.phase.index];
    made.x = vectors_.of(p.x), made.dt = vectors_.of(p.dt), made.z = vectors_.of(p.z);
    made.b = vectors_.of(p.b), made.c = vectors_.of(p.c), made.out = vectors_.of(p.out);
    made.input_dt = p.input_dt ? vectors_.of(p.input_dt) : kNoVector;
    for (const int vector : {made.b, made.c}) {
      vectors_.set_size(vector, policy::Lanes(static_cast<int>(p.b.size)).size());
    }
    made.decays_input = p.chunk_size > 1;
    made.carried_decays_input = core::decays_input(p, config_.window);
  }

  // No kernel has these yet; lower() has refused the recurrences.
  void add(const core::HeadRecurrence&) { cannot_lower("it has a recurrence over heads"); }
  template <class Other>
  void add(const Other&) {
    cannot_lower("it has a phase that no kernel runs");
  }
  void add(const core::Sigmoid&) { cannot_lower("it has a sigmoid"); }
  void add(const core::Gate&) { cannot_lower("it has a gate that no scan has"); }

  // Its vector is the cell's.
  void add(const core::Recall& p) { recalls_.push_back(&p); }

  void add(const core::GatedCell& p) {
    LoweredPhase& phase = push(policy::Kind::cell);
    phase.state = p.state;
    policy::GatedCell& made = to_->cells[phase.phase.index];
    made = policy::GatedCell();
    made.cell = p.cell;
    for (int gate = 0; gate < formulas::gates_of(p.cell); ++gate) {
      made.x[gate] = vectors_.of(p.x[gate]);
      if (formulas::recurrent(p.cell)) made.h[gate] = vectors_.of(p.h[gate]);
    }
    made.before = recalled(p);
    const core::Copy* const copy = copy_of(*block_, p, config_.network.hidden);
    made.out = vectors_.of(copy != nullptr ? copy->out : p.out);
    if (copy == nullptr) return;
    made.adds = copy->adds;
    taken_.push_back(copy);
  }

  // The vector of a cell's state before the frame; kNoVector where nothing recalls it.
  int recalled(const core::GatedCell& cell) {
    int found = kNoVector;
    for (const core::Recall*& recall : recalls_) {
      if (recall == nullptr || recall->state != cell.state) continue;
      const bool first = recall->out.size == cell.out.size && !vectors_.is_part(recall->out);
      if (!first || found != kNoVector)
        cannot_lower("it recalls other values of a cell's state than its first");
      found = vectors_.of(recall->out);
      recall = nullptr;
    }
    return found;
  }

  // The kernels begin a window with zeros in all states but those of cells.
  void require_zeros(core::StateId state) const {
    if (config_.network.state(state).initial.empty()) return;
    cannot_lower("a new agent's state is not zeros where no cell has it");
  }

  // ---- products ----

  policy::Product& product(const LoweredPhase& phase) { return to_->products[phase.phase.index]; }

  LoweredPhase& push(policy::Kind kind) {
    if (made_.size() == policy::kMostPhases) cannot_lower("a block has too many phases");
    made_.emplace_back();
    made_.back().phase = {kind, counts_[static_cast<int>(kind)]++};
    if (made_.back().phase.index == policy::kMostPhases) cannot_lower("it has too many phases");
    return made_.back();
  }

  const core::Norm* norm_to(const Span& span) const {
    for (const core::Norm* norm : norms_) {
      if (norm->out == span) return norm;
    }
    return nullptr;
  }

  // The product of a vector: a new one, or one that reads the same already.
  LoweredPhase& product_of(const Span& span, bool adds) {
    const core::Norm* const norm = norm_to(span);
    const int in = vectors_.of(norm != nullptr ? norm->in : span);
    for (LoweredPhase& phase : made_) {
      if (phase.phase.kind != policy::Kind::product || adds) continue;
      const bool same_norm = phase.norm == (norm != nullptr ? norm->weight : kNone);
      if (product(phase).in == in && same_norm && !product(phase).adds) return phase;
    }
    LoweredPhase& phase = push(policy::Kind::product);
    phase.columns = span.size;
    policy::Product& made = product(phase);
    made.in = in;
    if (norm == nullptr) return phase;
    phase.norm = norm->weight, phase.norm_bias = norm->bias;
    made.norm = norm->kind == core::NormKind::layer ? policy::Norm::layer : policy::Norm::rms;
    made.epsilon = bits_of(norm->epsilon);
    if (span.size != to_->values(in)) made.counted = static_cast<int>(span.size);
    return phase;
  }

  void append(LoweredPhase* phase, const Span& out, core::WeightId weight, core::WeightId bias,
              std::int64_t first_row, Activation activation) {
    policy::Product& made = product(*phase);
    for (const int part : vectors_.parts_of(out)) {
      const Span& span = vectors_.span_of(part);
      if (made.outputs == policy::kMostOutputs) cannot_lower("a product has too many outputs");
      made.out[made.outputs].vector = part;
      made.out[made.outputs++].activation = activation;
      // Rows of the first values of hidden; the product gives zeros for the others.
      const std::int64_t rows = std::min(span.size, out.size);
      phase->outputs.push_back({weight, bias, first_row + span.first - out.first, rows, kNone});
    }
  }

  // The output of a product that writes a vector, which has no activation yet and one reader.
  policy::Output& output_of(const Span& span, const char* what) {
    const int vector = vectors_.of(span);
    for (LoweredPhase& phase : made_) {
      if (phase.phase.kind != policy::Kind::product) continue;
      for (int i = 0; i < product(phase).outputs; ++i) {
        policy::Output& out = product(phase).out[i];
        const bool plain = out.activation == Activation::none && !product(phase).adds;
        if (out.vector != vector || !plain || readers(span) != 1) continue;
        found_ = &phase.outputs[static_cast<std::size_t>(i)];
        return out;
      }
    }
    cannot_lower("it has " + std::string(what) + " that no product computes for it alone");
  }

  void activate(const Span& in, const Span& out, core::WeightId bias, float lowest, float highest) {
    policy::Output& made = output_of(in, "a softplus");
    made.vector = vectors_.of(out), made.activation = Activation::softplus;
    made.clips = std::isfinite(lowest) || std::isfinite(highest);
    if (made.clips) made.lowest = bits_of(lowest), made.highest = bits_of(highest);
    found_->activation_bias = bias;
  }

  std::int64_t readers(const Span& span) const {
    std::int64_t count = 0;
    for (const core::Phase& phase : *block_) {
      for (const Span& read : core::reads(phase)) count += inside(span, read) ? 1 : 0;
    }
    return count;
  }

  // ---- biases ----

  // The bias of what one product writes and only another one reads goes through that one.
  void pass_bias(LoweredPhase* reader) {
    if (reader->phase.kind != policy::Kind::product) return;
    const policy::Product& reading = product(*reader);
    if (reading.norm != policy::Norm::none || readers(vectors_.span_of(reading.in)) != 1) return;
    for (LoweredPhase& writer : made_) {
      if (writer.phase.kind != policy::Kind::product) continue;
      const policy::Product& writing = product(writer);
      for (int i = 0; i < writing.outputs; ++i) {
        LoweredRows& rows = writer.outputs[static_cast<std::size_t>(i)];
        const bool plain = writing.out[i].activation == Activation::none && !writing.adds;
        if (writing.out[i].vector != reading.in || !plain) continue;
        reader->input_bias = rows;
        rows.bias = kNone;
      }
    }
  }

  void find_bias(const LoweredPhase& phase) {
    if (phase.phase.kind != policy::Kind::product) return;
    bool biased = phase.input_bias.bias != kNone || phase.norm_bias != kNone;
    for (const LoweredRows& rows : phase.outputs) {
      biased = biased || rows.bias != kNone || rows.activation_bias != kNone;
    }
    if (biased) product(phase).biased = true;
  }

  const core::PolicyConfig& config_;
  LoweredVectors& vectors_;
  policy::Network* to_;
  int* const counts_;  // of each kind of phase in the network
  const core::Block* block_ = nullptr;
  std::vector<const core::Norm*> norms_;
  std::vector<const core::Recall*> recalls_;  // null: a cell has it
  std::vector<const core::Copy*> taken_;      // by cells, which write their outputs
  LoweredBlock made_;
  LoweredRows* found_ = nullptr;  // of the output that output_of() has returned
};

}  // namespace

LoweredBlock lower_block(const core::PolicyConfig& config, const core::Block& block, LoweredVectors& vectors,
                         policy::Network* to, PhaseCounts& counts) {
  return BlockLowering(config, vectors, to, counts.data()).run(block);
}

}  // namespace exphil::cuda
