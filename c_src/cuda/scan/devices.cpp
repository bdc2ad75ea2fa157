#include "cuda/scan/devices.hpp"

#include <cstring>

#include "cuda/scan/copied_part.hpp"
#include "cuda/scan/runner.hpp"

namespace exphil::cuda {
namespace {

using core::ScanCall;
using core::ScanOperand;

// A call of one sequence, its time split over the devices.
void scan_sequence(const std::vector<Context*>& contexts, const ScanCall& call) {
  const std::size_t count = contexts.size(), floats = static_cast<std::size_t>(call.shape.state_floats());
  PassedStates states(count + 1);
  states.give(0, given_state(call, ScanOperand::initial_state));
  each_part(call.shape, count, {&states}, [&](std::size_t in_time, const PartPlace& place) {
    Context& context = *contexts[in_time];
    const ContextGuard guard(context);
    const std::int64_t begin = time_cut(call.shape.seq, in_time, count);
    CopiedPart part(context, call, begin, time_cut(call.shape.seq, in_time + 1, count) - begin);
    scan_part(context, part.stream(), part.shape(), part.operands(), place, states);
    part.finish();
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
