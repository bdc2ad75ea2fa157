// The stream that runs a policy's short work in the order of the calls, and the lock that fixes the order. Of
// high priority, so that a frame's step does not queue behind a long prefill. Used by every part of a policy
// that enqueues such work: cuda/policy/policy.cpp, fused.cpp, window.cpp, slices.cpp.
//
// Any thread, with the context current but where a function says otherwise. Work is enqueued under the lock
// alone; a caller waits for its work outside the lock. Where that work fails, the caller drains the stream
// before it throws, so that nothing still uses its memory.
#pragma once

#include <cuda.h>

#include <mutex>

#include "cuda/device/context.hpp"
#include "cuda/device/doorbell.hpp"
#include "cuda/policy/wait.hpp"

namespace exphil::cuda {

class OrderedStream {
 public:
  explicit OrderedStream(Context& context);
  ~OrderedStream();
  OrderedStream(const OrderedStream&) = delete;
  OrderedStream& operator=(const OrderedStream&) = delete;

  CUstream handle() const { return stream_; }
  // The lock, for a caller that enqueues. Cancels the armed launch of this stream, which is in the way of all
  // later work, and which may read a state that this work changes.
  std::unique_lock<std::mutex> enter() {
    std::unique_lock<std::mutex> lock(order_);
    doorbell_.cancel();
    return lock;
  }
  std::unique_lock<std::mutex> enter_soon() {  // throws core::WouldWait where the lock is held for longer
    std::unique_lock<std::mutex> lock = lock_soon(order_);
    doorbell_.cancel();
    return lock;
  }
  Doorbell& doorbell() { return doorbell_; }

  // Waits for all enqueued work, whichever context is current. A failure is noted on the context, so that the
  // next call reports it.
  void drain() noexcept;

  // Enqueues under the lock, then waits for the work outside it. Throws the work's error, only after none of
  // it still runs.
  template <class Enqueue>
  void run(Enqueue enqueue) {
    Event done(context_);
    try {
      {
        const auto lock = enter();
        enqueue(stream_);
        done.record(stream_);
      }
      await_event(done, 200);
    } catch (...) {
      drain();
      throw;
    }
  }

 private:
  Context& context_;
  CUstream stream_ = nullptr;
  Doorbell doorbell_;
  std::mutex order_;
};

}  // namespace exphil::cuda
