#include "host/scan/scan.hpp"

#include <algorithm>

#include "core/parallel.hpp"
#include "host/recurrence/tile.hpp"
#include "host/scan/operands.hpp"

namespace exphil::host {

namespace {

using core::ScanProblem;

// Below this many state updates a piece is not worth a thread (about 20 us of one core).
constexpr std::int64_t kUpdatesPerPiece = 1 << 15;

ScanSequence sequence_of(const ScanProblem& problem, const ScanRule& rule, const Packed& packed,
                         const core::ScanOutputs& outputs, void* y, std::int64_t b, bool reverse) {
  ScanSequence sequence = operands_of(problem, rule, packed, b, reverse);
  const Rows y_rows = rows_of(problem, y, b, reverse);
  sequence.y = const_cast<void*>(y_rows.data);
  sequence.y_step = y_rows.step;
  const std::int64_t state_row = problem.dim * rule.state * rule.parts();
  if (outputs.final_state != nullptr) sequence.final_state = outputs.final_state + b * state_row;
  if (outputs.states != nullptr) {
    sequence.states_step = reverse ? -state_row : state_row;
    sequence.states = outputs.states + first_row(problem, b, reverse) * state_row;
  }
  return sequence;
}

// Scratch of this thread, kept from call to call.
float* thread_scratch(const ScanRule& rule) {
  static thread_local AlignedBuffer scratch;
  scratch.reserve(scan_scratch_floats(rule));
  return scratch.data();
}

void run_direction(const ScanProblem& problem, const ScanRule& rule, const Packed& packed,
                   const core::ScanOutputs& outputs, void* y, bool reverse) {
  const std::int64_t blocks = panels(problem.dim);
  const std::int64_t updates = std::max<std::int64_t>(problem.seq, 1) * rule.a_block();
  const std::int64_t grain = std::max<std::int64_t>(1, kUpdatesPerPiece / updates);
  core::parallel_for(problem.batch * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    float* scratch = thread_scratch(rule);
    while (begin < end) {
      const std::int64_t b = begin / blocks, first = begin % blocks;
      const std::int64_t last = std::min(blocks, first + end - begin);
      const ScanSequence sequence = sequence_of(problem, rule, packed, outputs, y, b, reverse);
      scan_channels(rule, sequence, first, last, scratch);
      begin += last - first;
    }
  });
}

}  // namespace

void selective_scan(const ScanProblem& problem, const core::ScanOutputs& outputs) {
  const ScanRule rule = rule_of(problem);
  const Packed packed = pack(problem, rule);
  const core::Direction direction = problem.options.direction;
  run_direction(problem, rule, packed, outputs, outputs.y, direction == core::Direction::reverse);
  if (direction == core::Direction::both) {
    run_direction(problem, rule, packed, outputs, outputs.y_reverse, true);
  }
}

}  // namespace exphil::host
