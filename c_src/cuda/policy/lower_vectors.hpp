// The vectors of a lowered network: each is a part of a core vector that some phase reads, or a whole one.
// Used by cuda/policy/lower.cpp while it lowers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/policy/match.hpp"
#include "core/policy/network.hpp"
#include "kernels/policy/network.cuh"

namespace exphil::cuda {

// Throws limit_exceeded.
void require_at_most(std::int64_t value, std::int64_t limit, const std::string& what);
// Throws unsupported.
[[noreturn]] void cannot_lower(const std::string& why);

class LoweredVectors {
 public:
  LoweredVectors(const core::Network& from, policy::Network* to) : from_(from), to_(to) {}

  // A vector, or the part of one, where it is not there yet: padded to whole segments, but for the answer.
  void add(const core::Span& span);
  // What the phases of a block write, in their order, in the parts that they read. What a norm writes that a
  // product, a gate or a rotation applies is no vector, nor what a cell writes that is copied to hidden
  // alone, nor what a recurrence over heads writes that is only gated, nor its coefficients or the means
  // which are its decays, nor what a gate has of ranks. What a sigmoid writes is the vector that it reads.
  void add_all(const core::Block& block);

  // The vector of a span that is one as a whole. Of the first values of hidden it is hidden.
  int of(const core::Span& span) const;
  // Those that a span consists of, in order.
  std::vector<int> parts_of(const core::Span& span) const;
  // The vector that has all of a span, and where in it the span begins.
  struct Place {
    int vector;
    std::int64_t at;
  };
  Place place_of(const core::Span& span) const;
  const core::Span& span_of(int vector) const { return spans_[static_cast<std::size_t>(vector)]; }
  bool is_part(const core::Span& span) const {
    return span.size != from_.size_of(span.vector) && !begins_hidden(span);
  }
  void set_size(int vector, int size) { to_->vectors[vector].size = size; }  // with padding
  std::string name(const core::Span& span) const {
    return from_.vectors[static_cast<std::size_t>(span.vector)].name;
  }

 private:
  bool writes_vector(const core::Block& block, const core::Phase& phase) const;
  static std::vector<core::Span> reads_of(const core::Block& block, const core::Phase& phase);
  bool begins_hidden(const core::Span& span) const { return span.vector == from_.hidden && span.first == 0; }

  const core::Network& from_;
  policy::Network* to_;
  std::vector<core::Span> spans_;
  std::vector<std::pair<core::Span, core::Span>> squashed_;  // what a sigmoid writes and what it reads
};

bool inside(const core::Span& part, const core::Span& whole);
// The copy to hidden which alone reads what a cell of the block writes; null where there is none.
const core::Copy* copy_of(const core::Block& block, const core::GatedCell& cell, core::VectorId hidden);
// The gate which alone reads a span, as its input; null where there is none.
const core::Gate* gate_of(const core::Block& block, const core::Span& span);
// The same of what a recurrence over heads writes, where the recurrence can write the gate's output.
const core::Gate* gate_of(const core::Network& network, const core::Block& block,
                          const core::HeadRecurrence& heads);
// The phase, or one of those, that writes a span as a whole; null where there is none.
template <class P>
const P* whole_writer_of(const core::Block& block, const core::Span& span) {
  for (const core::Phase& phase : block) {
    if (const auto* const found = std::get_if<P>(&phase); found != nullptr && found->out == span)
      return found;
  }
  return nullptr;
}
// The one phase that reads any of a span, where it is such a one and reads it as its input; else null.
template <class P>
const P* only_reader(const core::Block& block, const core::Span& span) {
  const P* found = nullptr;
  for (const core::Phase& phase : block) {
    for (const core::Span& read : core::reads(phase)) {
      if (!core::overlap(read, span)) continue;
      const auto* const reader = std::get_if<P>(&phase);
      if (reader == nullptr || found != nullptr || !(reader->in == span) || !(read == span)) return nullptr;
      found = reader;
    }
  }
  return found;
}
// The heads with the delta rule which alone read means, as their decays; null where there are none.
const core::HeadRecurrence* heads_of(const core::Block& block, const core::Mean& mean);
// Where a gate is of ranks: what makes them of the one vector that gates, and what sums them up.
struct GateRanks {
  const core::RankScale *gates = nullptr, *sum = nullptr;
  explicit operator bool() const { return gates != nullptr && sum != nullptr; }
};
GateRanks ranks_of(const core::Block& block, const core::Gate& gate);
// Whether only products of all that a norm writes read it: they apply it.
bool of_products(const core::Block& block, const core::Norm& norm);

}  // namespace exphil::cuda
