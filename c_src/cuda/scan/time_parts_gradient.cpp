// The gradient of time_parts.hpp.
#include <algorithm>

#include "core/error.hpp"
#include "core/scan/shared_gradients.hpp"
#include "cuda/device/memory.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/scan/backward.hpp"
#include "cuda/scan/time_parts.hpp"

namespace exphil::cuda {
namespace {

using core::ScanOperand;
using core::ScanShape;
using DeviceOperands = core::ScanOperands<CUdeviceptr>;

// The states and totals of one part on its device.
class PartGradient {
 public:
  PartGradient(Context& context, CUstream stream, const ScanShape& shape, const DeviceOperands& operands,
               CUdeviceptr scratch)
      : context_(context),
        stream_(stream),
        shape_(shape),
        operands_(operands),
        scratch_(scratch),
        bytes_(static_cast<std::size_t>(shape.state_floats()) * sizeof(float)),
        memory_(context.device_pool().allocate(5 * stride())),
        staging_(context, bytes_) {
    shape_.add(ScanOperand::initial_state), shape_.add(ScanOperand::d_final_state);
    operands_[ScanOperand::initial_state] = at(0), operands_[ScanOperand::d_final_state] = at(1);
    shape_ = core::with_alignment_of(shape_, operands_);
  }
  PartGradient(const PartGradient&) = delete;
  PartGradient& operator=(const PartGradient&) = delete;
  // After an error the stream may still use the memory, which goes back to its pool.
  ~PartGradient() {
    context_.armed().cancel();
    driver().cuStreamSynchronize(stream_);
  }

  StateFloats decay, end, start;

  // Waits for what all segments of the part do by themselves.
  void find_totals() {
    enqueue_gradient_totals(context_, stream_, shape_, operands_, scratch_, {at(2), at(3), at(4)});
    decay = staging_.read(stream_, at(2)), end = staging_.read(stream_, at(3));
    start = staging_.read(stream_, at(4));
  }

  // The gradients, from the state before the part and the gradient of the state behind it. Waits for them.
  void finish(const StateFloats& before, const StateFloats& behind) {
    staging_.write(stream_, at(0), before), staging_.write(stream_, at(1), behind);
    enqueue_gradient_after_totals(context_, stream_, shape_, operands_, scratch_);
    context_.armed().cancel();
    context_.check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

 private:
  std::size_t stride() const { return (bytes_ + 255) / 256 * 256; }
  CUdeviceptr at(std::size_t number) const { return memory_.address() + number * stride(); }

  Context& context_;
  const CUstream stream_;
  ScanShape shape_;
  DeviceOperands operands_;
  const CUdeviceptr scratch_;
  const std::size_t bytes_;
  const DeviceBuffer memory_;
  StateStaging staging_;
};

// Adds up what all parts have of each gradient of something they share, and writes the sums to all of them.
void add_up_shared(const ScanShape& shape, const std::vector<TimePart>& parts) {
  for (const ScanOperand id : core::shared_gradients(shape)) {
    const core::Operand operand = core::describe(shape, id);
    std::vector<std::uint8_t> sum(operand.bytes()), other(operand.bytes());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const ContextGuard guard(*parts[i].context);
      void* const to = i == 0 ? sum.data() : other.data();
      parts[i].context->check(driver().cuMemcpyDtoH(to, parts[i].operands[id], operand.bytes()),
                              "cuMemcpyDtoH");
      if (i > 0) core::add_numbers(operand, other.data(), sum.data());
    }
    for (const TimePart& part : parts) {
      const ContextGuard guard(*part.context);
      part.context->check(driver().cuMemcpyHtoD(part.operands[id], sum.data(), operand.bytes()),
                          "cuMemcpyHtoD");
    }
  }
}

}  // namespace

void scan_gradient_part(Context& context, CUstream stream, const ScanShape& shape,
                        const DeviceOperands& operands, CUdeviceptr scratch, const PartPlace& place,
                        PassedStates& states, PassedStates& adjoints) {
  if (shape.seq <= kLongestSegment) {
    core::fail(core::ErrorKind::invalid_argument, "x", "a part of a gradient has more than ", kLongestSegment,
               " steps; this one has ", shape.seq);
  }
  PartGradient part(context, stream, shape, operands, scratch);
  part.find_totals();
  const StateFloats& before = states.take(place.number);
  states.give(place.number + 1, carried(shape.complex, part.decay, before, part.end));
  const StateFloats& behind = adjoints.take(place.number + 1);
  adjoints.give(place.number, carried(shape.complex, part.decay, behind, part.start, true));
  part.finish(before, behind);
}

void scan_gradient_time_parts(const ScanShape& shape, const std::vector<TimePart>& parts) {
  require_parts(shape, parts);
  const std::size_t count = parts.size(), floats = static_cast<std::size_t>(shape.state_floats());
  PassedStates states(count + 1), adjoints(count + 1);
  each_part(shape, count, {&states, &adjoints}, [&](std::size_t in_time, const PartPlace& place) {
    const TimePart& part = parts[in_time];
    Context& context = *part.context;
    const ContextGuard guard(context);
    const auto read = [&](ScanOperand id) {
      return read_state(context, shape.has(id) ? part.operands[id] : 0, floats);
    };
    if (place.first()) states.give(0, read(ScanOperand::initial_state));
    if (place.last()) adjoints.give(count, read(ScanOperand::d_final_state));
    const ScanShape own = part_shape(shape, part.steps);
    const DeviceBuffer scratch =
        context.device_pool().allocate(scan_gradient_scratch(own, context.properties()));
    StreamLease stream(context);
    scan_gradient_part(context, stream.handle(), own, part.operands, scratch.address(), place, states,
                       adjoints);
    if (place.first() && shape.has(ScanOperand::grad_initial_state)) {
      write_state(context, part.operands[ScanOperand::grad_initial_state], adjoints.take(0));
    }
  });
  add_up_shared(shape, parts);
}

}  // namespace exphil::cuda
