// Steps of one agent or a few through policy_step: the 60 FPS path. Used by cuda/policy/policy.cpp; safe from
// any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/tuning.hpp"
#include "cuda/policy/wait.hpp"

namespace exphil::cuda {

// The one stream on which a policy's short work runs in the order of the calls, and the lock that gives that
// order. High priority: a frame's step does not queue behind somebody's long prefill.
class OrderedStream {
 public:
  explicit OrderedStream(Context& context);
  ~OrderedStream();
  OrderedStream(const OrderedStream&) = delete;
  OrderedStream& operator=(const OrderedStream&) = delete;

  CUstream handle() const { return stream_; }
  std::mutex& order() { return order_; }

  // Waits for all that was enqueued. A failure is noted on the context: the next call says so.
  void drain() noexcept;

  // Enqueues under the lock, then waits, outside it, until that is done. Throws what the work failed with,
  // and only when nothing of it runs any more.
  template <class Enqueue>
  void run(Enqueue enqueue) {
    Event done(context_);
    try {
      {
        std::lock_guard<std::mutex> lock(order_);
        enqueue(stream_);
        done.record(stream_);
      }
      if (!spin_until([&] { return done.done(); }, 200)) done.synchronize();
    } catch (...) {
      drain();
      throw;
    }
  }

 private:
  Context& context_;
  CUstream stream_ = nullptr;
  std::mutex order_;
};

class FusedSteps {
 public:
  FusedSteps(std::shared_ptr<Context> context, const PolicyDims& dims, const PolicyTuning& tuning,
             const core::PolicyWeights& weights, OrderedStream& stream);

  std::size_t resident_bytes() const;
  // Up to how many agents the calls below are quicker than the row kernels; 0 where not even one agent of
  // this policy fits a launch on this device.
  std::int64_t limit() const { return limit_; }
  // Both return, or throw, when the device has done with the places.
  void step_one(const policy::StatePlace& state, const float* obs, float* out);
  void step_few(const policy::StatePlace* states, std::size_t count, const float* obs, float* out);

 private:
  // What one call in flight needs in host memory.
  struct Ticket {
    PinnedBuffer tagged;  // {outputs} of policy_step's 8-byte words
    PinnedBuffer obs;     // {dims.input()}, where it does not travel as an argument
  };
  class Lease;
  std::unique_ptr<TeamRunner> fitting_runner(TeamWeights& packed, int agents) const;
  std::unique_ptr<Ticket> make_ticket();
  void collect(const Ticket& ticket, unsigned sequence, float* out);

  std::shared_ptr<Context> context_;
  const PolicyDims& dims_;
  const PolicyTuning tuning_;
  OrderedStream& stream_;
  std::unique_ptr<TeamRunner> one_, few_;
  std::int64_t limit_ = 0;
  bool inline_obs_;
  unsigned sequence_ = 0;  // under the stream's lock

  std::mutex tickets_mutex_;
  std::vector<std::unique_ptr<Ticket>> tickets_;  // not in use
  std::size_t made_ = 0;                          // tickets there are

  std::mutex few_mutex_;  // one batch at a time: its buffers
  PinnedBuffer few_in_, few_out_;
  DeviceBuffer few_device_in_;
};

}  // namespace exphil::cuda
