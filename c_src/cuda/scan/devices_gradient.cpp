// The gradient of devices.hpp.
#include <cstring>
#include <map>
#include <mutex>

#include "core/scan/shared_gradients.hpp"
#include "cuda/scan/backward.hpp"
#include "cuda/scan/copied_part.hpp"
#include "cuda/scan/devices.hpp"
#include "cuda/scan/gradient_runner.hpp"

namespace exphil::cuda {
namespace {

using core::ScanCall;
using core::ScanOperand;

// Host memory for a part's gradients of what all parts share.
class OwnSums {
 public:
  // `part` then writes to it.
  explicit OwnSums(ScanCall* part) : shape_(part->shape) {
    for (const ScanOperand id : core::shared_gradients(shape_)) {
      auto& memory = memory_[id];
      memory.resize(core::describe(shape_, id).bytes());
      part->operands[id] = memory.data();
    }
  }
  void write_to(const ScanCall& call, bool first) const {
    for (const auto& [id, memory] : memory_) {
      if (first) {
        if (!memory.empty()) std::memcpy(call.operands[id], memory.data(), memory.size());
      } else {
        core::add_numbers(core::describe(shape_, id), memory.data(), call.operands[id]);
      }
    }
  }

 private:
  const core::ScanShape shape_;
  std::map<ScanOperand, std::vector<std::uint8_t>> memory_;
};

// The sums of all parts, by the place of a part in the call, so that the order of additions is always the
// same. Any thread.
class AllSums {
 public:
  void add(std::int64_t place, OwnSums sums) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sums_.emplace(place, std::move(sums));
  }
  void write_to(const ScanCall& call) const {
    bool first = true;
    for (const auto& [place, sums] : sums_) sums.write_to(call, first), first = false;
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, OwnSums> sums_;
};

// A call of one sequence, its time split over the devices.
void gradient_of_sequence(const std::vector<Context*>& contexts, const ScanCall& call, std::int64_t place,
                          AllSums* all) {
  const std::size_t count = contexts.size();
  PassedStates states(count + 1), adjoints(count + 1);
  states.give(0, given_state(call, ScanOperand::initial_state));
  adjoints.give(count, given_state(call, ScanOperand::d_final_state));
  each_part(call.shape, count, {&states, &adjoints}, [&](std::size_t in_time, const PartPlace& in_scan) {
    Context& context = *contexts[in_time];
    const ContextGuard guard(context);
    ScanCall own = call;
    OwnSums sums(&own);
    const std::int64_t begin = part_begin(call.shape.seq, in_time, count);
    CopiedPart part(context, own, begin, part_begin(call.shape.seq, in_time + 1, count) - begin);
    const DeviceBuffer scratch =
        context.device_pool().allocate(scan_gradient_scratch(part.shape(), context.properties()));
    scan_gradient_part(context, part.stream(), part.shape(), part.operands(), scratch.address(), in_scan,
                       states, adjoints);
    part.finish();
    all->add(place * static_cast<std::int64_t>(count) + static_cast<std::int64_t>(in_time), std::move(sums));
  });
  if (call.shape.has(ScanOperand::grad_initial_state)) {
    const StateFloats& gradient = adjoints.take(0);
    std::memcpy(call.operands[ScanOperand::grad_initial_state], gradient.data(),
                gradient.size() * sizeof(float));
  }
}

}  // namespace

void run_scan_grad_on(const std::vector<std::shared_ptr<Context>>& contexts,
                      const core::ScanGradProblem& problem, const core::ScanGradOutputs& outputs) {
  const ScanCall call = core::gradient_call(problem, outputs);
  if (contexts.size() == 1 || call.shape.batch == 0 || call.shape.dim == 0) {
    return run_scan_grad(*contexts[0], call);
  }
  require_host_tensors(call);
  const auto strides = core::sequence_strides(core::describe_operands(call.shape));
  AllSums sums;
  split_batch(contexts, call.shape, kLeastGradientSteps,
              [&](const std::vector<Context*>& own, std::int64_t begin, std::int64_t sequences) {
                ScanCall part = call;
                part.shape.batch = sequences;
                part.operands = core::slice_batch(strides, call.operands, begin);
                if (own.size() > 1) return gradient_of_sequence(own, part, begin, &sums);
                OwnSums of_part(&part);
                run_scan_grad(*own.front(), part);
                sums.add(begin, std::move(of_part));
              });
  sums.write_to(call);
}

}  // namespace exphil::cuda
