// The gradients of a block's vectors while its phases pass them back: what several phases read gets the sum.
// Used by host/policy/gradient.cpp; one call at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"
#include "host/policy/gradient_gaps.hpp"
#include "host/policy/phase_access.hpp"
#include "host/policy/phases.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/kept_buffer.hpp"

namespace exphil::host {

// The rows from one on.
inline MatrixRows from(const MatrixRows& rows, std::int64_t row) {
  return {rows.data + row * rows.step, rows.step};
}

class VectorGradients {
 public:
  // Room for this many rows of every vector.
  VectorGradients(const core::Network& network, std::int64_t rows)
      : n_(network), rows_(rows), steps_(row_steps(network)) {
    std::int64_t& of_frame = steps_[static_cast<std::size_t>(network.frame)];
    of_frame = padded(of_frame);
    std::int64_t floats = 0;
    for (const std::int64_t step : steps_) floats += padded(rows * step);
    memory_ = KeptBuffer(floats);
    float* next = memory_.data();
    for (std::size_t id = 0; id < steps_.size(); ++id) {
      all_.push_back({next, steps_[id]});
      next += padded(rows * steps_[id]);
    }
    for (const core::Block* block : blocks_of(network)) clear_gaps(network, *block, all_, rows);
  }

  // Before a block: only `given` has a gradient, in the first `rows` rows.
  void begin(core::VectorId given, std::int64_t rows) {
    rows_ = rows;
    there_.clear();
    for (const core::Vector& vector : n_.vectors) there_.emplace_back(static_cast<std::size_t>(vector.size));
    std::vector<bool>& there = there_[static_cast<std::size_t>(given)];
    there.assign(there.size(), true);
  }

  // What was in the span before its phase is not read by that phase, nor after it.
  void drop(const core::Span& span) {
    std::vector<bool>& there = there_[static_cast<std::size_t>(span.vector)];
    std::fill_n(there.begin() + span.first, span.size, false);
  }

  // The memory of a span's gradient.
  MatrixRows own(const core::Span& span) {
    const MatrixRows& rows = all_[static_cast<std::size_t>(span.vector)];
    return {rows.data + span.first, rows.step};
  }
  // The whole gradient of a span, once all readers have passed theirs back: zero where there are none.
  MatrixRows whole(const core::Span& span) {
    claim(span, true);
    return own(span);
  }
  // Whether a span has no gradient yet. It has one after that: where it has one in parts, or `zeros` is set,
  // the other values are zero now; else the caller stores it.
  bool claim(const core::Span& span, bool zeros = false) {
    std::vector<bool>& there = there_[static_cast<std::size_t>(span.vector)];
    const auto begin = there.begin() + span.first, end = begin + span.size;
    const bool none = std::find(begin, end, true) == end;
    const MatrixRows rows = own(span);
    if (none && zeros && span == n_.all_of(span.vector)) {
      std::fill_n(rows.data, rows_ * rows.step, 0.0f);
    } else if (zeros || !none) {
      for (std::int64_t i = 0; i < span.size; ++i) {
        for (std::int64_t row = 0; !begin[i] && row < rows_; ++row) rows.data[row * rows.step + i] = 0.0f;
      }
    }
    std::fill(begin, end, true);
    return none;
  }

  // Rows where a kernel stores what it passes back to a span: its own, or where that would overwrite other
  // gradients, or has other steps, a buffer. settle() adds what is in a buffer.
  struct Stored {
    core::Span span;
    MatrixRows rows;
    bool first = true, in_place = true;
  };
  // For a kernel that writes the values alone, and no padding.
  static constexpr std::int64_t kAnyStep = 0;
  Stored stored(const core::Span& span, std::int64_t step, std::size_t buffer = 0) {
    Stored made{span, own(span), claim(span), false};
    const bool fits = step == kAnyStep || (step == made.rows.step && span == n_.all_of(span.vector));
    made.in_place = made.first && fits;
    if (made.in_place) return made;
    if (step == kAnyStep) step = padded(span.size);
    buffers_[buffer].reserve(rows_ * step);
    made.rows = {buffers_[buffer].data(), step};
    return made;
  }
  void settle(const Stored& stored) {
    if (!stored.in_place) pass_on(stored.span, stored.first, stored.rows);
  }
  // Stores or adds the gradient of a span.
  void pass_on(const core::Span& span, bool first, MatrixRows rows) {
    const MatrixRows to = own(span);
    if (first) return copy_rows(rows, to, rows_, 0, span.size);
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t i = 0; i < span.size; ++i)
        to.data[row * to.step + i] += rows.data[row * rows.step + i];
    }
  }

 private:
  const core::Network& n_;
  std::int64_t rows_;
  std::vector<std::int64_t> steps_;  // of each vector
  KeptBuffer memory_;
  std::vector<MatrixRows> all_;           // of each vector, its rows
  std::vector<std::vector<bool>> there_;  // of each vector's values, whether they have a gradient
  AlignedBuffer buffers_[8];
};

}  // namespace exphil::host
