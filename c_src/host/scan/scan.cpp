#include "host/scan/scan.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/recurrence/tile.hpp"
#include "host/scan/operands.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

using core::ScanCall;
using core::ScanOperand;

// A piece with fewer state updates is not worth a thread (about 20 us of one core).
constexpr std::int64_t kUpdatesPerPiece = 1 << 15;

// `y` is the result of this pass over time: y or y_reverse.
ScanSequence sequence_of(const ScanCall& call, const ScanRule& rule, const Packed& packed, ScanOperand y,
                         std::int64_t b, bool reverse) {
  ScanSequence sequence = operands_of(call, rule, packed, b, reverse);
  const Rows y_rows = rows_of(call.shape, call.operands[y], b, reverse);
  sequence.y = const_cast<void*>(y_rows.data);
  sequence.y_step = y_rows.step;
  const std::int64_t state_row = rule.dim * rule.state * rule.parts();
  if (auto* final_state = static_cast<float*>(call.operands[ScanOperand::final_state])) {
    sequence.final_state = final_state + b * state_row;
  }
  if (auto* states = static_cast<float*>(call.operands[ScanOperand::states])) {
    sequence.states_step = reverse ? -state_row : state_row;
    sequence.states = states + first_row(call.shape, b, reverse) * state_row;
  }
  return sequence;
}

void run_direction(const ScanCall& call, const ScanRule& rule, const Packed& packed, ScanOperand y,
                   bool reverse) {
  const std::int64_t blocks = panels(rule.dim);
  const std::int64_t updates = std::max<std::int64_t>(call.shape.seq, 1) * rule.a_block();
  const std::int64_t grain = std::max<std::int64_t>(1, kUpdatesPerPiece / updates);
  core::parallel_for(call.shape.batch * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    float* scratch = thread_scratch(Scratch::scan, scan_scratch_floats(rule));
    while (begin < end) {
      const std::int64_t b = begin / blocks, first = begin % blocks;
      const std::int64_t last = std::min(blocks, first + end - begin);
      scan_channels(rule, sequence_of(call, rule, packed, y, b, reverse), first, last, scratch);
      begin += last - first;
    }
  });
}

}  // namespace

void selective_scan(const ScanCall& call) {
  const ScanRule rule = rule_of(call.shape);
  const Packed packed = pack(call, rule);
  const core::Direction direction = call.shape.options.direction;
  run_direction(call, rule, packed, ScanOperand::y, direction == core::Direction::reverse);
  if (direction == core::Direction::both) run_direction(call, rule, packed, ScanOperand::y_reverse, true);
}

}  // namespace exphil::host
