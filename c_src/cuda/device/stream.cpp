// Streams and events; see stream.hpp.
#include "cuda/device/stream.hpp"

#include <algorithm>

#include "cuda/device/context.hpp"
#include "cuda/device/quiet_context.hpp"
#include "cuda/device/slow_call.hpp"

namespace exphil::cuda {

StreamPool::~StreamPool() {
  for (const auto& streams : free_) {
    for (CUstream stream : streams) destroy(stream);
  }
}

CUstream StreamPool::take(StreamPriority priority) {
  context_.require_alive();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<CUstream>& free = free_[static_cast<int>(priority)];
    if (!free.empty()) {
      CUstream stream = free.back();
      free.pop_back();
      return stream;
    }
  }
  const ContextGuard guard(context_);
  const SlowCall slow(&context_.armed());
  return create(priority);
}

// Non-blocking: no implicit ordering with the legacy default stream, which EXLA or others may use.
CUstream StreamPool::create(StreamPriority priority) {
  CUstream stream = nullptr;
  if (priority == StreamPriority::low) {
    context_.check(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
  }
  int lowest = 0, highest = 0;
  context_.check(driver().cuCtxGetStreamPriorityRange(&lowest, &highest), "cuCtxGetStreamPriorityRange");
  const int number = priority == StreamPriority::high ? highest : std::max(highest, lowest - 1);
  context_.check(driver().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, number),
                 "cuStreamCreateWithPriority");
  return stream;
}

void StreamPool::give(CUstream stream, StreamPriority priority) noexcept {
  try {
    std::lock_guard<std::mutex> lock(mutex_);
    free_[static_cast<int>(priority)].push_back(stream);
  } catch (...) {
    destroy(stream);
  }
}

void StreamPool::destroy(CUstream stream) noexcept {
  // Results are ignored: on a lost or closing device nothing can be destroyed.
  const QuietContext current(context_.handle());
  if (!current.pushed()) return;
  const SlowCall slow(&context_.armed());
  driver().cuStreamDestroy(stream);
}

StreamLease::StreamLease(Context& context, StreamPriority priority)
    : context_(context), priority_(priority), stream_(context.streams().take(priority)) {}

StreamLease::~StreamLease() {
  const QuietContext current(context_.handle());
  if (!current.pushed()) {
    context_.streams().destroy(stream_);
    return;
  }
  context_.armed().cancel();
  const CUresult result = driver().cuStreamSynchronize(stream_);
  context_.note(result, "cuStreamSynchronize");
  // A stream that cannot be synchronised is in an abandoned graph capture or on a lost device.
  result == CUDA_SUCCESS ? context_.streams().give(stream_, priority_) : context_.streams().destroy(stream_);
}

void StreamLease::synchronize() {
  const ContextGuard guard(context_);
  context_.armed().cancel();
  context_.check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

Event::Event(Context& context, Timing timing) : context_(context) {
  const ContextGuard guard(context_);
  const unsigned flags = timing == Timing::on ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  context_.check(driver().cuEventCreate(&event_, flags), "cuEventCreate");
}

Event::~Event() {
  const QuietContext current(context_.handle());
  driver().cuEventDestroy(event_);
}

void Event::record(CUstream stream) {
  const ContextGuard guard(context_);
  context_.check(driver().cuEventRecord(event_, stream), "cuEventRecord");
}

void Event::make_wait(CUstream stream) {
  const ContextGuard guard(context_);
  context_.check(driver().cuStreamWaitEvent(stream, event_, 0), "cuStreamWaitEvent");
}

void Event::synchronize() {
  const ContextGuard guard(context_);
  context_.armed().cancel();
  context_.check(driver().cuEventSynchronize(event_), "cuEventSynchronize");
}

bool Event::done() {
  const ContextGuard guard(context_);
  const CUresult result = driver().cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  context_.check(result, "cuEventQuery");
  return true;
}

float Event::milliseconds_since(Event& start) {
  const ContextGuard guard(context_);
  float milliseconds = 0;
  context_.check(driver().cuEventElapsedTime(&milliseconds, start.event_, event_), "cuEventElapsedTime");
  return milliseconds;
}

}  // namespace exphil::cuda
