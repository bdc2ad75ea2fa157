// A scan call in the form of host/recurrence: the rule, packed A, and each sequence's strided rows. Callers:
// scan.cpp and gradient.cpp of this folder. Plain functions: any thread.
#pragma once

#include <cstdint>

#include "core/scan/call.hpp"
#include "host/recurrence/sequence.hpp"
#include "host/simd/aligned.hpp"

namespace exphil::host {

// Panels of A, and of B and C where they are constant.
struct Packed {
  AlignedBuffer a, a_bounds, b, c;
};

ScanRule rule_of(const core::ScanShape& shape);
Packed pack(const core::ScanCall& call, const ScanRule& rule);

// Rows {seq, dim} of sequence b, read from the last to the first where `reverse`. data may be null.
Rows rows_of(const core::ScanShape& shape, const void* data, std::int64_t b, bool reverse);

// The row of (batch, seq) where sequence b begins; its last step where time runs backwards.
std::int64_t first_row(const core::ScanShape& shape, std::int64_t b, bool reverse);

// The operands of sequence b; no results.
ScanSequence operands_of(const core::ScanCall& call, const ScanRule& rule, const Packed& packed,
                         std::int64_t b, bool reverse);

}  // namespace exphil::host
