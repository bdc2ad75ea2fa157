#include "cuda/scan/devices.hpp"

#include <algorithm>
#include <complex>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error.hpp"
#include "cuda/device/download.hpp"
#include "cuda/device/operand_image.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/scan/forward.hpp"
#include "cuda/scan/runner.hpp"

namespace exphil::cuda {
namespace {

using core::Flow;
using core::ScanCall;
using core::ScanOperand;
using core::ScanShape;
using Floats = std::vector<float>;

// Calls part(0) to part(count - 1), each in a thread of its own, the first in this one, and throws the first
// error by number when all have ended.
void side_by_side(std::size_t count, const std::function<void(std::size_t)>& part) {
  std::vector<std::exception_ptr> errors(count);
  const auto run = [&](std::size_t number) {
    try {
      part(number);
    } catch (...) {
      errors[number] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    for (std::size_t i = 1; i < count; ++i) threads.emplace_back(run, i);
  } catch (const std::exception&) {  // the parts that have no thread run here, in their order
  }
  run(0);
  for (std::size_t i = threads.size() + 1; i < count; ++i) run(i);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// The states between the parts of a sequence. Each is given once, or never because of an error. Not
// std::promise: it reads thread-local data of the C++ library, for which a library compiled with initial-exec
// has no room in a process that has loaded the C++ library late (Python with JAX).
class States {
 public:
  explicit States(std::size_t count) : states_(count), errors_(count) {}

  void give(std::size_t number, Floats state) {
    const std::lock_guard<std::mutex> lock(mutex_);
    states_[number] = std::move(state);
    changed_.notify_all();
  }
  // Of the error that is being handled; nothing where the state was given.
  void fail(std::size_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!states_[number]) errors_[number] = std::current_exception();
    changed_.notify_all();
  }
  const Floats& take(std::size_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return states_[number] || errors_[number]; });
    if (errors_[number]) std::rethrow_exception(errors_[number]);
    return *states_[number];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Floats>> states_;
  std::vector<std::exception_ptr> errors_;
};

// decay * before + from_zero, of complex states in pairs.
Floats combined(bool complex, const Floats& decay, const Floats& before, const Floats& from_zero) {
  Floats state(before.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (!complex) {
      state[i] = decay[i] * before[i] + from_zero[i];
    } else if (i % 2 == 0) {
      const std::complex<float> left =
          std::complex<float>(decay[i], decay[i + 1]) * std::complex<float>(before[i], before[i + 1]);
      state[i] = left.real() + from_zero[i], state[i + 1] = left.imag() + from_zero[i + 1];
    }
  }
  return state;
}

bool has_time(ScanOperand id) {
  return id != ScanOperand::initial_state && id != ScanOperand::final_state;
}

// Some steps of a call of one sequence, on a device: copied there, and scanned from any state.
class TimePart {
 public:
  // Steps begin .. begin + count. The context is current.
  TimePart(Context& context, const ScanCall& call, std::int64_t begin, std::int64_t count)
      : context_(context),
        call_(steps_of(call, begin, count)),
        table_(core::describe_operands(call_.shape)),
        image_(table_, call_.operands, 1, 1),
        memory_(context.device_pool().allocate(image_.bytes())),
        first_(context.device_pool().allocate(state_bytes())),
        last_(context.device_pool().allocate(state_bytes())),
        download_(context),
        stream_(context) {
    upload_ = std::make_unique<Upload>(
        context, stream_.handle(), memory_.address(), image_.segments(), image_.ends(), [](std::size_t) {},
        call.on_device);
    upload_->run();
  }

  // The state after the part from this state before it.
  Floats state_after(const Floats& before) { return scan(call_.shape, before, device_operands()); }

  // What is left after the part of a state that was 1 before it: the state after a scan without inputs.
  Floats decay() {
    ScanShape shape = call_.shape;
    shape.remove(ScanOperand::states);
    Floats ones(floats(), 1.0f);
    for (std::size_t i = 1; call_.shape.complex && i < ones.size(); i += 2) ones[i] = 0;
    zeros_ = context_.device_pool().allocate(table_[ScanOperand::x].bytes());
    context_.check(
        driver().cuMemsetD8Async(zeros_.address(), 0, table_[ScanOperand::x].bytes(), stream_.handle()),
        "cuMemsetD8Async");
    auto operands = device_operands();
    operands[ScanOperand::x] = zeros_.address();
    return scan(shape, ones, operands);
  }

  // Copies the answers of the last scan to host memory.
  void finish() {
    const auto device = image_.addresses(0, memory_.address());
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      if (!table_[id].present || table_[id].flow != Flow::out) continue;
      download_.add(stream_.handle(), call_.operands[id], device[id], table_[id].bytes());
    }
    stream_.synchronize();
    download_.finish();
  }

  std::size_t floats() const { return static_cast<std::size_t>(call_.shape.state_floats()); }

 private:
  // Without the states before and after it, which are not copied with the others.
  static ScanCall steps_of(const ScanCall& call, std::int64_t begin, std::int64_t count) {
    ScanCall steps = call;
    const auto table = core::describe_operands(call.shape);
    const auto strides = core::sequence_strides(table);
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      if (!has_time(id) || call.operands[id] == nullptr) {
        steps.shape.remove(id);
        steps.operands[id] = nullptr;
      } else if (table[id].present && table[id].per_sequence) {
        steps.operands[id] =
            static_cast<char*>(call.operands[id]) +
            static_cast<std::size_t>(begin) * (strides[id] / static_cast<std::size_t>(call.shape.seq));
      }
    }
    steps.shape.seq = count;
    return steps;
  }

  std::size_t state_bytes() const { return floats() * sizeof(float); }

  core::ScanOperands<CUdeviceptr> device_operands() const {
    auto operands = image_.addresses(0, memory_.address());
    operands[ScanOperand::initial_state] = first_.address();
    operands[ScanOperand::final_state] = last_.address();
    return operands;
  }

  Floats scan(ScanShape shape, const Floats& before, const core::ScanOperands<CUdeviceptr>& operands) {
    shape.add(ScanOperand::initial_state), shape.add(ScanOperand::final_state);
    Floats after(floats());
    const CUstream stream = stream_.handle();
    context_.check(driver().cuMemcpyHtoDAsync(first_.address(), before.data(), state_bytes(), stream),
                   "cuMemcpyHtoDAsync");
    enqueue_scan(context_, stream, shape, operands);
    context_.check(driver().cuMemcpyDtoHAsync(after.data(), last_.address(), state_bytes(), stream),
                   "cuMemcpyDtoHAsync");
    stream_.synchronize();
    return after;
  }

  Context& context_;
  const ScanCall call_;
  const core::PerOperand<ScanOperand, core::Operand> table_;
  const OperandImage<ScanOperand> image_;
  // Destroyed in reverse order: the stream is idle before its buffers are returned to their pools.
  const DeviceBuffer memory_, first_, last_;
  DeviceBuffer zeros_;
  Download download_;
  std::unique_ptr<Upload> upload_;
  StreamLease stream_;
};

// Part `number` in the order of the scan, of `count`.
void scan_part(Context& context, const ScanCall& call, std::size_t number, std::size_t count,
               States& states) {
  try {
    const ContextGuard guard(context);
    const bool reverse = call.shape.options.direction == core::Direction::reverse;
    const auto place = static_cast<std::int64_t>(reverse ? count - 1 - number : number);
    const auto parts = static_cast<std::int64_t>(count);
    const std::int64_t begin = call.shape.seq * place / parts, end = call.shape.seq * (place + 1) / parts;
    TimePart part(context, call, begin, end - begin);
    if (number == 0 || number + 1 == count) {
      states.give(number + 1, part.state_after(states.take(number)));
    } else {
      const Floats decay = part.decay(), from_zero = part.state_after(Floats(part.floats()));
      const Floats& before = states.take(number);
      states.give(number + 1, combined(call.shape.complex, decay, before, from_zero));
      part.state_after(before);
    }
    part.finish();
  } catch (...) {
    states.fail(number + 1);  // the parts after it wait for this state
    throw;
  }
}

// A call of one sequence, its time split over the devices.
void scan_sequence(const std::vector<Context*>& contexts, const ScanCall& call) {
  const std::size_t count = contexts.size(), floats = static_cast<std::size_t>(call.shape.state_floats());
  States states(count + 1);
  const auto* const given = static_cast<const float*>(call.operands[ScanOperand::initial_state]);
  const bool has_state = call.shape.has(ScanOperand::initial_state) && given != nullptr;
  states.give(0, has_state ? Floats(given, given + floats) : Floats(floats));
  side_by_side(count, [&](std::size_t number) { scan_part(*contexts[number], call, number, count, states); });
  if (void* const to = call.operands[ScanOperand::final_state]; to != nullptr) {
    std::memcpy(to, states.take(count).data(), floats * sizeof(float));
  }
}

// Devices for each sequence.
std::size_t devices_per_sequence(std::size_t devices, const ScanShape& shape) {
  if (shape.full_matrix || shape.options.direction == core::Direction::both) return 1;
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, shape.seq / kLeastSteps));
  return std::clamp<std::size_t>(devices / static_cast<std::size_t>(shape.batch), 1, most);
}

}  // namespace

void run_scan_on(const std::vector<std::shared_ptr<Context>>& contexts, const ScanCall& call) {
  const std::int64_t batch = call.shape.batch;
  if (contexts.size() == 1 || batch == 0 || call.shape.dim == 0) return run_scan(*contexts[0], call);
  if (!call.on_device.empty()) {
    const std::string& argument = call.on_device.front().argument;
    core::fail(core::ErrorKind::unsupported, argument, argument,
               " is in the memory of one device, and the call runs on several");
  }
  const auto strides = core::sequence_strides(core::describe_operands(call.shape));
  const std::size_t each = devices_per_sequence(contexts.size(), call.shape);
  const std::size_t parts = std::min(contexts.size() / each, static_cast<std::size_t>(batch));
  side_by_side(parts, [&](std::size_t number) {
    const auto place = static_cast<std::int64_t>(number), count = static_cast<std::int64_t>(parts);
    const std::int64_t begin = batch * place / count, end = batch * (place + 1) / count;
    ScanCall part = call;
    part.shape.batch = end - begin;
    part.operands = core::slice_batch(strides, call.operands, begin);
    if (each == 1) return run_scan(*contexts[number], part);
    std::vector<Context*> own;
    for (std::size_t i = 0; i < each; ++i) own.push_back(contexts[number * each + i].get());
    scan_sequence(own, part);
  });
}

}  // namespace exphil::cuda
