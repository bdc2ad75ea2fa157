#include "cuda/scan/time_parts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "cuda/device/memory.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/scan/forward.hpp"

namespace exphil::cuda {
namespace {

using core::ScanOperand;
using core::ScanShape;
using DeviceOperands = core::ScanOperands<CUdeviceptr>;

// Two scans that differ at first by less than rounding go on to differ by as much as rounding adds up to,
// which for a state that lasts 1,000 steps is some 2^-20 of it.
constexpr float kRounding = 0x1p-18f;

// Steps of a part, in the order of the scan.
struct Block {
  std::int64_t begin, steps;
};

std::vector<Block> blocks_of(std::int64_t steps, std::int64_t first) {
  std::vector<Block> blocks;
  for (std::int64_t at = 0; at < steps;) {
    const std::int64_t size = std::min(at == 0 ? first : at, steps - at);
    blocks.push_back({at, size});
    at += size;
  }
  return blocks;
}

// The scans of one part.
class PartScan {
 public:
  PartScan(Context& context, CUstream stream, const ScanShape& shape, const DeviceOperands& operands,
           std::int64_t first_block)
      : context_(context),
        stream_(stream),
        shape_(shape),
        operands_(operands),
        blocks_(blocks_of(shape.seq, first_block)),
        bytes_(static_cast<std::size_t>(shape.state_floats()) * sizeof(float)),
        memory_(context.device_pool().allocate((blocks_.size() + 2) * stride())),
        staging_(context, bytes_) {}
  PartScan(const PartScan&) = delete;
  PartScan& operator=(const PartScan&) = delete;
  // After an error the stream may still use the memory, which goes back to its pool.
  ~PartScan() {
    context_.armed().cancel();
    driver().cuStreamSynchronize(stream_);
  }

  // Each returns the state behind the part, and waits for it.

  StateFloats from(const StateFloats& before) {
    write(again(0), before);
    scan({0, shape_.seq}, again(0), again(1));
    return read(again(1));
  }

  void from_zero() {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      scan(blocks_[i], i == 0 ? 0 : from_zero_after(i - 1), from_zero_after(i));
    }
  }

  // After from_zero(): what from() gives, in the blocks that differ.
  StateFloats again_from(const StateFloats& before) {
    write(again(0), before);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      scan(blocks_[i], again(i), again(i + 1));
      StateFloats after = read(again(i + 1));
      if (i + 1 == blocks_.size()) return after;
      if (is_forgotten(after, read(from_zero_after(i)))) return read(from_zero_after(blocks_.size() - 1));
    }
    return before;  // a part without steps
  }

 private:
  std::size_t stride() const { return (bytes_ + 255) / 256 * 256; }
  CUdeviceptr from_zero_after(std::size_t block) const { return memory_.address() + block * stride(); }
  // Two that take turns.
  CUdeviceptr again(std::size_t turn) const {
    return memory_.address() + (blocks_.size() + turn % 2) * stride();
  }

  // Whether the two are the same but for rounding: in each channel no number differs by more than kRounding
  // of the channel's largest. False where there is a NaN.
  bool is_forgotten(const StateFloats& one, const StateFloats& other) const {
    const std::size_t row = one.size() / static_cast<std::size_t>(shape_.dim);
    for (std::size_t first = 0; first < one.size(); first += row) {
      float largest = 0;
      for (std::size_t i = first; i < first + row; ++i) largest = std::max(largest, std::abs(other[i]));
      for (std::size_t i = first; i < first + row; ++i) {
        if (!(std::abs(one[i] - other[i]) <= kRounding * largest)) return false;
      }
    }
    return true;
  }

  // before: 0 for zeros.
  void scan(const Block& block, CUdeviceptr before, CUdeviceptr after) {
    const bool reverse = shape_.options.direction == core::Direction::reverse;
    DeviceOperands operands =
        from_step(shape_, operands_, reverse ? shape_.seq - block.begin - block.steps : block.begin);
    operands[ScanOperand::initial_state] = before, operands[ScanOperand::final_state] = after;
    ScanShape shape = part_shape(shape_, block.steps);
    if (before != 0) shape.add(ScanOperand::initial_state);
    shape.add(ScanOperand::final_state);
    enqueue_scan(context_, stream_, core::with_alignment_of(shape, operands), operands);
  }

  void write(CUdeviceptr to, const StateFloats& state) { staging_.write(stream_, to, state); }
  StateFloats read(CUdeviceptr from) { return staging_.read(stream_, from); }

  Context& context_;
  const CUstream stream_;
  const ScanShape shape_;
  const DeviceOperands operands_;
  const std::vector<Block> blocks_;
  const std::size_t bytes_;
  const DeviceBuffer memory_;
  StateStaging staging_;
};

}  // namespace

bool has_steps(ScanOperand id) {
  switch (id) {
    case ScanOperand::a:
    case ScanOperand::d:
    case ScanOperand::dt_bias:
    case ScanOperand::initial_state:
    case ScanOperand::final_state:
    case ScanOperand::d_final_state:
    case ScanOperand::grad_a:
    case ScanOperand::grad_d:
    case ScanOperand::grad_dt_bias:
    case ScanOperand::grad_initial_state:
      return false;
    default:
      return true;
  }
}

ScanShape part_shape(ScanShape shape, std::int64_t steps) {
  shape.seq = steps;
  for (const ScanOperand id : {ScanOperand::initial_state, ScanOperand::final_state,
                               ScanOperand::d_final_state, ScanOperand::grad_initial_state}) {
    shape.remove(id);
  }
  return shape;
}

PartPlace place_of(const ScanShape& shape, std::size_t in_time, std::size_t count) {
  const bool reverse = shape.options.direction == core::Direction::reverse;
  return {reverse ? count - 1 - in_time : in_time, count};
}

StateFloats read_state(Context& context, CUdeviceptr from, std::size_t floats) {
  StateFloats state(floats);
  if (from != 0) {
    context.check(driver().cuMemcpyDtoH(state.data(), from, floats * sizeof(float)), "cuMemcpyDtoH");
  }
  return state;
}

void write_state(Context& context, CUdeviceptr to, const StateFloats& state) {
  context.check(driver().cuMemcpyHtoD(to, state.data(), state.size() * sizeof(float)), "cuMemcpyHtoD");
}

void require_parts(const ScanShape& shape, const std::vector<TimePart>& parts) {
  std::int64_t steps = 0;
  for (const TimePart& part : parts) steps += part.steps;
  if (steps != shape.seq || shape.batch != 1 || shape.full_matrix ||
      shape.options.direction == core::Direction::both) {
    core::fail(core::ErrorKind::invalid_argument, "x",
               "parts of one sequence in one direction with a diagonal A were expected, of ", shape.seq,
               " steps together; they have ", steps);
  }
}

StateStaging::StateStaging(Context& context, std::size_t bytes)
    : context_(context), staged_(context, bytes) {}

void StateStaging::write(CUstream stream, CUdeviceptr to, const StateFloats& state) {
  std::memcpy(staged_.data(), state.data(), staged_.size());
  context_.check(driver().cuMemcpyHtoDAsync(to, staged_.data(), staged_.size(), stream), "cuMemcpyHtoDAsync");
  context_.armed().cancel();
  context_.check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

StateFloats StateStaging::read(CUstream stream, CUdeviceptr from) {
  context_.check(driver().cuMemcpyDtoHAsync(staged_.data(), from, staged_.size(), stream),
                 "cuMemcpyDtoHAsync");
  context_.armed().cancel();
  context_.check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  StateFloats state(staged_.size() / sizeof(float));
  std::memcpy(state.data(), staged_.data(), staged_.size());
  return state;
}

std::int64_t time_cut(std::int64_t seq, std::size_t number, std::size_t count) {
  const auto parts = static_cast<std::int64_t>(count), begin = static_cast<std::int64_t>(number);
  return seq / parts * begin + std::min(begin, seq % parts);  // without a product beyond 63 bits
}

void each_part(const ScanShape& shape, std::size_t count, std::initializer_list<PassedStates*> passed,
               const std::function<void(std::size_t in_time, const PartPlace& place)>& part) {
  side_by_side(count, [&](std::size_t in_time) {
    try {
      part(in_time, place_of(shape, in_time, count));
    } catch (...) {
      for (PassedStates* const states : passed) states->fail_rest();
      throw;
    }
  });
}

void scan_part(Context& context, CUstream stream, const ScanShape& shape, const DeviceOperands& operands,
               const PartPlace& place, PassedStates& states, std::int64_t first_block) {
  PartScan part(context, stream, shape, operands, first_block);
  if (states.is_given(place.number)) {
    states.give(place.number + 1, part.from(states.take(place.number)));
    return;
  }
  part.from_zero();
  states.give(place.number + 1, part.again_from(states.take(place.number)));
}

void scan_time_parts(const ScanShape& shape, const std::vector<TimePart>& parts, std::int64_t first_block) {
  require_parts(shape, parts);
  const std::size_t count = parts.size(), floats = static_cast<std::size_t>(shape.state_floats());
  PassedStates states(count + 1);
  each_part(shape, count, {&states}, [&](std::size_t in_time, const PartPlace& place) {
    const TimePart& part = parts[in_time];
    Context& context = *part.context;
    const ContextGuard guard(context);
    if (place.first()) {
      const bool given = shape.has(ScanOperand::initial_state);
      states.give(0, read_state(context, given ? part.operands[ScanOperand::initial_state] : 0, floats));
    }
    StreamLease stream(context);
    scan_part(context, stream.handle(), part_shape(shape, part.steps), part.operands, place, states,
              first_block);
    if (place.last() && shape.has(ScanOperand::final_state)) {
      write_state(context, part.operands[ScanOperand::final_state], states.take(count));
    }
  });
}

}  // namespace exphil::cuda
