// Memory of the backward pass of host/policy/gradient.cpp. One call at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "host/policy/gradient_vectors.hpp"
#include "host/recurrence/gradient.hpp"

namespace exphil::host {

// Used by one block after the other.
struct BackRows {
  BackRows(const core::Network& n, std::int64_t count, std::int64_t seq) : d(n, count * seq) {
    const std::int64_t rows = count * seq;
    const std::vector<std::int64_t> steps = row_steps(n);
    std::int64_t sum_floats = 0, by_channel_floats = 0;
    for (const core::Phase* phase : core::phases_of(n)) {
      const auto* const scan = std::get_if<core::SelectiveScan>(phase);
      if (scan == nullptr) continue;
      sum_floats = std::max(sum_floats, count * sums_of(*scan, seq));
      const std::int64_t step = steps[static_cast<std::size_t>(scan->out.vector)];
      if (scan->input_dt) by_channel_floats = std::max(by_channel_floats, rows * step);
    }
    b_sums = KeptBuffer(sum_floats), c_sums = KeptBuffer(sum_floats);
    by_channel = KeptBuffer(by_channel_floats);
  }
  // Floats of a sequence in b_sums and in c_sums.
  static std::int64_t sums_of(const core::SelectiveScan& scan, std::int64_t seq) {
    return sum_slots(scan.x.size, 1) * tiles(seq) * scan.b.size * kTile;
  }

  VectorGradients d;
  AlignedBuffer rows;         // SequenceSums::rows
  KeptBuffer b_sums, c_sums;  // ProjectionGradient::sums of each sequence
  KeptBuffer by_channel;      // what each channel of a scan passes to input_dt
};

}  // namespace exphil::host
