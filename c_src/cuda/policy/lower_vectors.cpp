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
    for (const Span& span : core::reads(phase)) reads.push_back(span);
  }
  for (const core::Phase& phase : block) {
    if (std::holds_alternative<core::Norm>(phase)) continue;
    const auto* const cell = std::get_if<core::GatedCell>(&phase);
    if (cell != nullptr && copy_of(block, *cell, from_.hidden) != nullptr) continue;
    const Span out = core::writes(phase);
    std::vector<Span> parts;
    for (const Span& span : reads) {
      if (inside(span, out)) parts.push_back(span);
    }
    if (parts.empty()) parts.push_back(out);
    std::sort(parts.begin(), parts.end(), [](const Span& p, const Span& q) { return p.first < q.first; });
    for (const Span& part : parts) add(part);
  }
}

int LoweredVectors::of(const Span& span) const {
  if (begins_hidden(span) && span.size < from_.size_of(span.vector)) return of(from_.all_of(span.vector));
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (spans_[i] == span) return static_cast<int>(i);
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
