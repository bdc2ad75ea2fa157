// Steps of one agent or a few through policy_step: the 60 FPS path. Used by cuda/policy/policy.cpp; safe from
// any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/policy/armed.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/ordered_stream.hpp"
#include "cuda/policy/tagged.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

class FusedSteps {
 public:
  FusedSteps(std::shared_ptr<Context> context, const PolicyDims& dims, const PolicyTuning& tuning,
             const core::PolicyWeights& weights, OrderedStream& stream);

  std::size_t resident_bytes() const;
  std::int64_t d_input() const { return dims_.config.d_input; }
  // The most agents for which the calls below are faster than the row kernels; 0 where not even one agent of
  // this policy fits a launch on this device.
  std::int64_t limit() const { return limit_; }
  // Both return or throw after the device has finished with the places.
  // One agent's frames, each with a place; a place may read what the one before it wrote. All are enqueued
  // before the first answer is awaited, kMostInFlight at a time. obs: {count, d_input}.
  void step_chain(const policy::StatePlace* places, std::int64_t count, const float* obs, float* out);
  void reserve_chain(std::int64_t count);  // host memory for so many frames; throws out_of_memory
  void step_few(const policy::StatePlace* states, std::size_t count, const float* obs, float* out);

  // The host memory of one frame in flight.
  struct Ticket {
    TaggedOutputs outputs;
    PinnedBuffer obs;       // {dims.frame_size()}, where it is not passed as an argument
    unsigned sequence = 0;  // of its launch
  };

  // One frame in parts, for cuda/policy/split_step.hpp. The device uses the place and the ticket until poll()
  // has returned true, or collect() or drain() has returned.
  // Throws core::WouldWait where a lock is held or memory would have to be allocated.
  std::unique_ptr<Ticket> begin(const policy::StatePlace& place, const float* obs);
  bool poll(const Ticket& ticket, float* out, std::int64_t microseconds) const;  // whether all outputs came
  // begin() with a ticket that the caller has. Throws WouldWait where it may not wait and would have to.
  void begin_again(Ticket& ticket, const policy::StatePlace& place, const float* obs, bool may_wait);
  void collect(const Ticket& ticket, float* out);  // waits for them, and throws the error of the work
  void end(std::unique_ptr<Ticket> ticket) noexcept;
  void drain() noexcept { stream_.drain(); }

  // A frame that is launched before its observation is there. Throws unsupported where that cannot be had;
  // compiles its kernel. Before the calls below.
  void prepare_armed();
  // Launches it behind all earlier work. It ends by itself after tuning.armed_microseconds, and it is
  // cancelled by all later work of the policy and by whatever else the process does that would wait for it;
  // place is unchanged then. Null where nothing may wait now; throws as begin() does.
  std::unique_ptr<Ticket> begin_ahead(const policy::StatePlace& place);
  // Gives it its observation, once. False where it was cancelled or has ended.
  bool ring(const Ticket& ticket, const float* obs) { return armed_->ring(ticket.sequence, obs); }
  // The same as poll() after ring(), but gives up where the launch has ended without its step.
  bool poll_rung(const Ticket& ticket, float* out, std::int64_t microseconds) const;
  bool ended(const Ticket& ticket) const { return armed_->ended(ticket.sequence); }
  bool waits(const Ticket& ticket) const { return armed_->waits(ticket.sequence); }
  void cancel(const Ticket& ticket) noexcept { armed_->cancel(ticket.sequence); }
  // The same as collect() after ring(). False where the launch has ended without its step.
  bool collect_rung(const Ticket& ticket, float* out);

 private:
  static constexpr std::int64_t kMostInFlight = 32;
  class Lease;
  std::unique_ptr<TeamRunner> fitting_runner(TeamWeights& packed, int agents) const;
  std::unique_ptr<Ticket> make_ticket();
  std::unique_ptr<Ticket> take_ticket();
  void step_some(const policy::StatePlace* places, std::size_t count, const float* obs, float* out);
  void launch_one(Ticket& ticket, const policy::StatePlace& place, const float* obs);

  std::shared_ptr<Context> context_;
  const PolicyDims& dims_;
  const PolicyTuning tuning_;
  OrderedStream& stream_;
  std::unique_ptr<TeamRunner> one_, few_;
  std::int64_t limit_ = 0;
  bool inline_obs_;
  // Launches are numbered in their order, from 1 on. Under the stream's lock.
  unsigned next_number() { return ++sequence_ == 0 ? ++sequence_ : sequence_; }
  unsigned sequence_ = 0;

  std::mutex tickets_mutex_;
  std::vector<std::unique_ptr<Ticket>> tickets_;  // free tickets
  std::size_t made_ = 0;                          // all tickets

  std::mutex armed_mutex_;  // of making it
  std::unique_ptr<ArmedLaunches> armed_;

  std::mutex few_mutex_;  // one batch at a time uses the buffers
  PinnedBuffer few_in_, few_out_;
  DeviceBuffer few_device_in_;
};

}  // namespace exphil::cuda
