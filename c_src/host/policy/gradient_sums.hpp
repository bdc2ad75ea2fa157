// The gradients of a policy's weights while they are added up: of each product an object of its own, of the
// other weights a place in a row of memory. Used by host/policy/gradient.cpp; one call at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/policy/gradient.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/weights.hpp"
#include "host/simd/linear_gradient.hpp"

namespace exphil::host {

struct PhaseSums {
  LinearGradient product;
  PhaseWeights weights;     // places in the totals of the block
  std::int64_t at = 0;      // the first of them
  std::int64_t floats = 0;  // of all of them
};

struct BlockSums {
  std::vector<PhaseSums> phases;
  AlignedBuffer totals;
};

// Of a phase's weights a row for each sequence, from sequence `first` on.
struct SequenceSums {
  const PhaseSums& phase;
  float* rows;
  std::int64_t first;
  // Null where the phase has no place for such a weight. Some have one for a weight that is absent.
  float* of(std::int64_t sequence, PhaseWeightName name) const {
    const PanelPlace& place = phase.weights[name].place;
    if (place.floats() == 0) return nullptr;
    return rows + (sequence - first) * phase.floats + place.at - phase.at;
  }
};

class GradientSums {
 public:
  explicit GradientSums(const core::PolicyWeights& weights);

  std::vector<BlockSums> blocks;

  // Floats of rows at a time that stay in a core's caches.
  static constexpr std::int64_t kRowFloats = std::int64_t{1} << 19;

  // Calls run(sums, count) for all sequences, `most` at a time: zeros, to which it adds. The rows are added
  // to the totals in the order of the sequences, so it does not matter how many rows there are at a time.
  template <class Run>
  static void sum_up(BlockSums& block, const PhaseSums& phase, std::int64_t sequences, std::int64_t most,
                     AlignedBuffer* memory, const Run& run) {
    memory->reserve(std::min(most, sequences) * phase.floats);
    for (std::int64_t first = 0; first < sequences; first += most) {
      const std::int64_t count = std::min(most, sequences - first);
      std::fill_n(memory->data(), count * phase.floats, 0.0f);
      run(SequenceSums{phase, memory->data(), first}, count);
      add_rows_of(block, phase, memory->data(), count);
    }
  }
  // Calls run(begin, end, sums) for all parts of all sequences, one sequence after another, on the library's
  // threads.
  template <class Run>
  static void each_part(BlockSums& block, const PhaseSums& phase, std::int64_t sequences, std::int64_t parts,
                        AlignedBuffer* memory, const Run& run) {
    const std::int64_t most = std::max<std::int64_t>(kRowFloats / std::max<std::int64_t>(phase.floats, 1), 1);
    sum_up(block, phase, sequences, most, memory, [&](const SequenceSums& sums, std::int64_t count) {
      const std::int64_t first = sums.first * parts;
      core::parallel_for(count * parts, 1, [&](std::int64_t begin, std::int64_t end) {
        run(first + begin, first + end, sums);
      });
    });
  }
  // to: zeros_of the network.
  void write(const core::PolicyWeights& weights, core::PolicyValues<float>* to) const;

 private:
  static void add_rows_of(BlockSums& block, const PhaseSums& phase, const float* rows, std::int64_t count);
};

}  // namespace exphil::host
