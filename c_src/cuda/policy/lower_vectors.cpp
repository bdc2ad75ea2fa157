#include "cuda/policy/lower_vectors.hpp"

#include <algorithm>
#include <variant>

#include "core/error.hpp"

namespace exphil::cuda {

using core::Span;

// For larger sizes the 32-bit offsets within one layer's weights could overflow.
constexpr std::int64_t kMostValues = 1 << 14;

void require_at_most(std::int64_t value, std::int64_t limit, const std::string& what) {
  if (value > limit) {
    core::fail(core::ErrorKind::limit_exceeded, "", "the CUDA backend takes policies with ", what, " up to ",
               limit, ", this one has ", value);
  }
}

void cannot_lower(const std::string& why) {
  core::fail(core::ErrorKind::unsupported, "", "the GPU's kernels cannot compute this policy: ", why);
}

bool inside(const Span& part, const Span& whole) {
  return part.vector == whole.vector && part.first >= whole.first &&
         part.first + part.size <= whole.first + whole.size;
}

const core::Copy* copy_of(const core::Block& block, const core::GatedCell& cell, core::VectorId hidden) {
  const core::Copy* found = nullptr;
  for (const core::Phase& phase : block) {
    for (const Span& read : core::reads(phase)) {
      if (!inside(read, cell.out)) continue;
      const auto* const copy = std::get_if<core::Copy>(&phase);
      const bool all = copy != nullptr && copy->in == cell.out && copy->out.first == 0;
      if (!all || copy->out.vector != hidden || found != nullptr) return nullptr;
      found = copy;
    }
  }
  return found;
}

const core::Gate* gate_of(const core::Block& block, const Span& span) {
  return only_reader<core::Gate>(block, span);
}

const core::HeadRecurrence* heads_of(const core::Block& block, const core::Mean& mean) {
  const core::HeadRecurrence* found = nullptr;
  for (const core::Phase& phase : block) {
    for (const Span& read : core::reads(phase)) {
      if (!overlap(read, mean.out)) continue;
      const auto* const heads = std::get_if<core::HeadRecurrence>(&phase);
      const bool delta = heads != nullptr && heads->rule == formulas::HeadRule::delta;
      if (!delta || found != nullptr || !(heads->decay == mean.out)) return nullptr;
      found = heads;
    }
  }
  return found != nullptr && mean.in.size == found->key.size ? found : nullptr;
}

GateRanks ranks_of(const core::Block& block, const core::Gate& gate) {
  const auto* const gates = whole_writer_of<core::RankScale>(block, gate.gate);
  const auto* const sum = only_reader<core::RankScale>(block, gate.out);
  if (gates == nullptr || sum == nullptr || gates->back || !sum->back) return {};
  return {gates, sum};
}

const core::Gate* gate_of(const core::Network& network, const core::Block& block,
                          const core::HeadRecurrence& heads) {
  const core::Gate* const gate = gate_of(block, heads.out);
  return gate != nullptr && gate->out == network.all_of(gate->out.vector) ? gate : nullptr;
}

bool of_products(const core::Block& block, const core::Norm& norm) {
  if (norm.parts != 1) return false;
  for (const core::Phase& phase : block) {
    const std::vector<Span> reads = core::reads(phase);
    const auto reads_it = [&](const Span& read) { return overlap(read, norm.out); };
    const auto found = std::find_if(reads.begin(), reads.end(), reads_it);
    if (found == reads.end()) continue;
    const bool multiplies =
        std::holds_alternative<core::Product>(phase) || std::holds_alternative<core::Copy>(phase);
    if (!multiplies || !(*found == norm.out)) return false;
  }
  return true;
}

void LoweredVectors::add(const Span& span) {
  const auto whole = [&](const Span& known) { return inside(span, known); };
  if (std::any_of(spans_.begin(), spans_.end(), whole)) return;
  require_at_most(span.size, kMostValues, "vectors (" + name(span) + ")");
  if (spans_.size() == policy::kMostVectors) cannot_lower("it has too many vectors");
  policy::Vector& made = to_->vectors[spans_.size()];
  made.values = static_cast<int>(span.size);
  made.size = span.vector == from_.outs ? made.values : policy::round_up(made.values, policy::kSegment);
  spans_.push_back(span);
}

void LoweredVectors::add_all(const core::Block& block) {
  std::vector<Span> reads;
  for (const core::Phase& phase : block) {
    const std::vector<Span> all = reads_of(block, phase);
    reads.insert(reads.end(), all.begin(), all.end());
  }
  for (const core::Phase& phase : block) {
    if (const auto* const sigmoid = std::get_if<core::Sigmoid>(&phase)) {
      squashed_.emplace_back(sigmoid->out, sigmoid->in);
    }
    if (!writes_vector(block, phase)) continue;
    const Span out = core::writes(phase);
    std::vector<Span> parts;
    for (const Span& span : reads) {
      if (inside(span, out)) parts.push_back(span);
    }
    for (const Span& span : reads) {
      if (parts.empty() && inside(out, span)) parts.push_back(span);
    }
    if (parts.empty()) parts.push_back(out);
    std::sort(parts.begin(), parts.end(), [](const Span& p, const Span& q) { return p.first < q.first; });
    for (const Span& part : parts) add(part);
  }
}

bool LoweredVectors::writes_vector(const core::Block& block, const core::Phase& phase) const {
  if (const auto* const norm = std::get_if<core::Norm>(&phase)) {
    return !of_products(block, *norm) && gate_of(block, norm->out) == nullptr &&
           only_reader<core::Rotation>(block, norm->out) == nullptr;
  }
  if (std::holds_alternative<core::Trapezoid>(phase)) return false;
  if (std::holds_alternative<core::Sigmoid>(phase)) return false;
  if (const auto* const mean = std::get_if<core::Mean>(&phase)) return heads_of(block, *mean) == nullptr;
  if (const auto* const scale = std::get_if<core::RankScale>(&phase)) return scale->back;
  if (const auto* const gate = std::get_if<core::Gate>(&phase)) return !ranks_of(block, *gate);
  if (const auto* const cell = std::get_if<core::GatedCell>(&phase)) {
    return copy_of(block, *cell, from_.hidden) == nullptr;
  }
  const auto* const heads = std::get_if<core::HeadRecurrence>(&phase);
  return heads == nullptr || gate_of(from_, block, *heads) == nullptr;
}

// A convolution reads those parts of its input of which the output is read.
std::vector<Span> LoweredVectors::reads_of(const core::Block& block, const core::Phase& phase) {
  const auto* const convolution = std::get_if<core::Convolution>(&phase);
  if (convolution == nullptr) return core::reads(phase);
  std::vector<Span> parts;
  for (const core::Phase& reader : block) {
    for (const Span& read : core::reads(reader)) {
      if (!inside(read, convolution->out)) continue;
      parts.push_back(
          {convolution->in.vector, convolution->in.first + read.first - convolution->out.first, read.size});
    }
  }
  return parts.empty() ? core::reads(phase) : parts;
}

LoweredVectors::Place LoweredVectors::place_of(const Span& span) const {
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (inside(span, spans_[i])) return {static_cast<int>(i), span.first - spans_[i].first};
  }
  cannot_lower("it writes " + name(span) + " in other parts than it reads");
}

int LoweredVectors::of(const Span& span) const {
  if (begins_hidden(span) && span.size < from_.size_of(span.vector)) return of(from_.all_of(span.vector));
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (spans_[i] == span) return static_cast<int>(i);
  }
  for (const auto& [out, in] : squashed_) {
    if (out == span) return of(in);
  }
  cannot_lower("it reads parts of " + name(span) + " that overlap");
}

std::vector<int> LoweredVectors::parts_of(const Span& span) const {
  if (begins_hidden(span)) return {of(span)};
  std::vector<int> parts;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (inside(spans_[i], span)) parts.push_back(static_cast<int>(i));
  }
  std::sort(parts.begin(), parts.end(), [&](int p, int q) { return span_of(p).first < span_of(q).first; });
  std::int64_t next = span.first;
  for (const int part : parts) {
    if (span_of(part).first != next) cannot_lower("it reads " + name(span) + " only in part");
    next += span_of(part).size;
  }
  if (next != span.first + span.size) cannot_lower("it reads " + name(span) + " only in part");
  return parts;
}

}  // namespace exphil::cuda
