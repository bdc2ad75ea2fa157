// One scan, or its gradient, whose time is split over the memory of several devices: each has some steps of
// the tensors and computes them, and states go from part to part through host memory, {dim, state} numbers
// each. Used by calls on host tensors (devices.hpp), by benchmarks, and by whoever has device memory of its
// own.
//
// Forward, a part scans its steps from zero while the parts before it do theirs. When it knows the state
// before it, it scans its steps again, block by block, until a block ends with the state that it ended with
// from zero, but for rounding: from there on nothing depends on the state before the part. So it costs a
// fraction where states decay, and twice the time of a part where they do not.
//
// Backward, each segment of time is first computed by itself (backward.hpp). From the segments of a part
// follow its decay, the state it ends with from zero, and the gradient that leaves its first step without one
// from behind. With those the parts exchange states and gradients of states, and each is carried once.
//
// The answers are those of one device but for rounding; the same in every run on the same kinds of devices.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/device/staged_bytes.hpp"
#include "cuda/scan/parts.hpp"

namespace exphil::cuda {

// Consecutive steps of one sequence on a device, in the order of time.
struct TimePart {
  Context* context = nullptr;
  std::int64_t steps = 0;
  // Of x, dt, b and all else that has steps: the part's own. What has none is whole on each device: a, d,
  // dt_bias and constant b, c. The states before and after: as the functions say.
  core::ScanOperands<CUdeviceptr> operands;
};

// Steps of the first block that is scanned again; each other is as long as all before it.
inline constexpr std::int64_t kFirstBlock = 16384;

// Where part `number` of `count` begins in time. The parts are equal: what is scanned again waits for the
// part that is scanned first, so more steps there gain nothing (bench/results/devices.md).
std::int64_t time_cut(std::int64_t seq, std::size_t number, std::size_t count);

// `shape`: of the whole sequence; batch is 1, direction forward or reverse, A diagonal. initial_state: an
// operand of the part that is scanned first, final_state of the last. Returns when all is computed. Any
// thread. Throws as enqueue_scan.
void scan_time_parts(const core::ScanShape& shape, const std::vector<TimePart>& parts,
                     std::int64_t first_block = kFirstBlock);

// `shape`: that of core::gradient_call. initial_state and grad_initial_state: operands of the part that is
// scanned first, d_final_state of the last. Gradients of what all parts share (a, d, dt_bias, constant b and
// c) are added up in the order of the parts, and the sums are written to every part's memory. Returns when
// all is computed. Throws as enqueue_scan_gradient.
void scan_gradient_time_parts(const core::ScanShape& shape, const std::vector<TimePart>& parts);

// ---- one part, in a thread of its own: for callers that copy its tensors to and from the device ----

// Where a part is in the order of the scan.
struct PartPlace {
  std::size_t number = 0, count = 1;
  bool first() const { return number == 0; }
  bool last() const { return number + 1 == count; }
};
// By its place in time.
PartPlace place_of(const core::ScanShape& shape, std::size_t in_time, std::size_t count);

// side_by_side(), with each part's place. Where one throws, those that wait for states of `passed` throw its
// error.
void each_part(const core::ScanShape& shape, std::size_t count, std::initializer_list<PassedStates*> passed,
               const std::function<void(std::size_t in_time, const PartPlace& place)>& part);

// shape: part_shape(). states: before each part in the order of the scan, and behind the last; this part
// gives the one behind it, or throws: call it in each_part(), where
// the others then do not wait for it. The context is current, and the stream is idle when the function
// returns.
void scan_part(Context& context, CUstream stream, const core::ScanShape& shape,
               const core::ScanOperands<CUdeviceptr>& operands, const PartPlace& place, PassedStates& states,
               std::int64_t first_block = kFirstBlock);

// states as above; adjoints: the gradients of the same states. This part gives the state behind it and the
// gradient of the one before it. scratch: scan_gradient_scratch bytes of the part's shape.
void scan_gradient_part(Context& context, CUstream stream, const core::ScanShape& shape,
                        const core::ScanOperands<CUdeviceptr>& operands, CUdeviceptr scratch,
                        const PartPlace& place, PassedStates& states, PassedStates& adjoints);

// Throws invalid_argument where these are no parts of a scan of this shape.
void require_parts(const core::ScanShape& shape, const std::vector<TimePart>& parts);

// One state on its way between a device and the host, through page-locked memory where the pool has some: the
// driver copies others by way of memory of its own. One thread.
class StateStaging {
 public:
  StateStaging(Context& context, std::size_t bytes);
  // Both wait for the stream. The context is current.
  void write(CUstream stream, CUdeviceptr to, const StateFloats& state);
  StateFloats read(CUstream stream, CUdeviceptr from);

 private:
  Context& context_;
  const StagedBytes staged_;
};

// {dim, state} from device memory, zeros for a null address, and to it. The context is current.
StateFloats read_state(Context& context, CUdeviceptr from, std::size_t floats);
void write_state(Context& context, CUdeviceptr to, const StateFloats& state);

// `shape` with `steps` steps, without the states before and after it.
core::ScanShape part_shape(core::ScanShape shape, std::int64_t steps);

// Whether the operand has a row for each step, unless it is constant.
bool has_steps(core::ScanOperand id);

// The addresses from step `begin` on, of one sequence of `shape`.
template <class Pointer>
core::ScanOperands<Pointer> from_step(const core::ScanShape& shape, core::ScanOperands<Pointer> operands,
                                      std::int64_t begin) {
  for (const core::ScanOperand id : core::all_operands<core::ScanOperand>()) {
    const std::size_t bytes = core::describe(shape, id).sequence_stride();
    if (bytes == 0 || !has_steps(id) || operands[id] == Pointer{}) continue;
    operands[id] = core::offset_address(
        operands[id], static_cast<std::size_t>(begin) * (bytes / static_cast<std::size_t>(shape.seq)));
  }
  return operands;
}

}  // namespace exphil::cuda
