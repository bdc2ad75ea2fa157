#include "cuda/scan/devices.hpp"

#include <cstring>

#include "cuda/scan/copied_part.hpp"
#include "cuda/scan/runner.hpp"

namespace exphil::cuda {
namespace {

using core::ScanCall;
using core::ScanOperand;

// The part of a call that is number `in_time` of `count` in the order of time.
void scan_copied_part(Context& context, const ScanCall& call, std::size_t in_time, std::size_t count,
                      PassedStates& states) {
  const PartPlace place = place_of(call.shape, in_time, count);
  try {
    const ContextGuard guard(context);
    const std::int64_t begin = time_cut(call.shape, in_time, count);
    CopiedPart part(context, call, begin, time_cut(call.shape, in_time + 1, count) - begin);
    scan_part(context, part.stream(), part.shape(), part.operands(), place, states);
    part.finish();
  } catch (...) {
    states.fail(place.number + 1);  // the parts after it wait for this state
    throw;
  }
}

// A call of one sequence, its time split over the devices.
void scan_sequence(const std::vector<Context*>& contexts, const ScanCall& call) {
  const std::size_t count = contexts.size(), floats = static_cast<std::size_t>(call.shape.state_floats());
  PassedStates states(count + 1);
  states.give(0, given_state(call, ScanOperand::initial_state));
  side_by_side(count, [&](std::size_t in_time) {
    scan_copied_part(*contexts[in_time], call, in_time, count, states);
  });
  if (void* const to = call.operands[ScanOperand::final_state]; to != nullptr) {
    std::memcpy(to, states.take(count).data(), floats * sizeof(float));
  }
}

}  // namespace

void run_scan_on(const std::vector<std::shared_ptr<Context>>& contexts, const ScanCall& call) {
  const std::int64_t batch = call.shape.batch;
  if (contexts.size() == 1 || batch == 0 || call.shape.dim == 0) return run_scan(*contexts[0], call);
  require_host_tensors(call);
  const auto strides = core::sequence_strides(core::describe_operands(call.shape));
  split_batch(contexts, call.shape, kLeastSteps,
              [&](const std::vector<Context*>& own, std::int64_t begin, std::int64_t sequences) {
                ScanCall part = call;
                part.shape.batch = sequences;
                part.operands = core::slice_batch(strides, call.operands, begin);
                if (own.size() == 1) return run_scan(*own.front(), part);
                scan_sequence(own, part);
              });
}

}  // namespace exphil::cuda
