#include "cuda/policy/lower_products.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <variant>

namespace exphil::cuda {

using core::kNone;
using core::Span;
using policy::Activation;

unsigned bits_of(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

policy::Product& ProductLowering::product(const LoweredPhase& phase) {
  return to_->products[phase.phase.index];
}

LoweredPhase& ProductLowering::push(policy::Kind kind) {
  if (made_.size() == policy::kMostPhases) cannot_lower("a block has too many phases");
  made_.emplace_back();
  made_.back().phase = {kind, counts_[static_cast<int>(kind)]++};
  if (made_.back().phase.index == policy::kMostPhases) cannot_lower("it has too many phases");
  return made_.back();
}

const core::Norm* ProductLowering::norm_to(const Span& span) const {
  for (const core::Norm* norm : norms_) {
    if (norm->out == span) return norm;
  }
  return nullptr;
}

// The product of a vector: a new one, or one that reads the same already.
LoweredPhase& ProductLowering::product_of(const Span& span, bool adds) {
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
  if (norm != nullptr) set_norm(&phase, *norm);
  return phase;
}

void ProductLowering::set_norm(LoweredPhase* phase, const core::Norm& norm) {
  policy::Product& made = product(*phase);
  phase->norm = norm.weight, phase->norm_bias = norm.bias;
  made.norm = norm.kind == core::NormKind::layer ? policy::Norm::layer : policy::Norm::rms;
  made.epsilon = bits_of(norm.epsilon);
  if (norm.in.size != to_->values(made.in)) made.counted = static_cast<int>(norm.in.size);
}

void ProductLowering::diagonal(const core::Norm& norm) {
  LoweredPhase& phase = push(policy::Kind::product);
  phase.columns = norm.in.size;
  product(phase).in = vectors_.of(norm.in), product(phase).diagonal = true;
  set_norm(&phase, norm);
  append(&phase, norm.out, kNone, kNone, 0, Activation::none);
}

void ProductLowering::append(LoweredPhase* phase, const Span& out, core::WeightId weight, core::WeightId bias,
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
policy::Output& ProductLowering::output_of(const Span& span, const char* what) {
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

void ProductLowering::activate(const Span& in, const Span& out, core::WeightId bias, float lowest,
                               float highest) {
  policy::Output& made = output_of(in, "a softplus");
  made.vector = vectors_.of(out), made.activation = Activation::softplus;
  made.clips = std::isfinite(lowest) || std::isfinite(highest);
  if (made.clips) made.lowest = bits_of(lowest), made.highest = bits_of(highest);
  found_->activation_bias = bias;
}

std::int64_t ProductLowering::readers(const Span& span) const {
  std::int64_t count = 0;
  for (const core::Phase& phase : *block_) {
    for (const Span& read : core::reads(phase)) count += inside(span, read) ? 1 : 0;
  }
  return count;
}

// The bias of what one product writes and only another one reads goes through that one.
void ProductLowering::pass_bias(LoweredPhase* reader) {
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

void ProductLowering::find_bias(const LoweredPhase& phase) {
  if (phase.phase.kind != policy::Kind::product) return;
  bool biased = phase.input_bias.bias != kNone || phase.norm_bias != kNone;
  for (const LoweredRows& rows : phase.outputs) {
    biased = biased || rows.bias != kNone || rows.activation_bias != kNone;
  }
  if (biased) product(phase).biased = true;
}

}  // namespace exphil::cuda
