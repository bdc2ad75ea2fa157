// A policy on a CUDA device: core::Policy over policy_step (one agent or a few) and the row kernels
// (many agents, sequences). See core/policy/policy.hpp for the contract.
//
// Order of work: short work (clearing, copying and stepping states) runs on one high-priority stream of the
// policy, in the order of the calls. Such a call holds the stream's lock only while it enqueues. copy_state
// and new_state do not wait for the device, because later uses of the state are later on the stream. A call
// that changes a state writes to another slot, which becomes the state's slot when the call has succeeded
// (NextStates), so a failed call changes no state. Work over many rows runs on other streams, starts after
// the work that the policy's stream had when it was called, and is complete when the call returns.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/error.hpp"
#include "core/policy/policy.hpp"
#include "cuda/policy/agent_batches.hpp"
#include "cuda/policy/fused.hpp"
#include "cuda/policy/kept_ring.hpp"
#include "cuda/policy/loader.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/prefill_ahead.hpp"
#include "cuda/policy/prepare.hpp"
#include "cuda/policy/row_windows.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/slices.hpp"
#include "cuda/policy/split_step.hpp"
#include "cuda/policy/state_arena.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/window.hpp"

namespace exphil::cuda {
namespace {
constexpr std::int64_t kStates = 1024;  // where nobody says how many there will be

// Slots for this many states, plus the next states of the usual number of concurrent calls.
std::int64_t with_spare(std::int64_t states) {
  constexpr std::int64_t kSpare = 32;
  return states > INT64_MAX - kSpare ? states : states + std::min(states, kSpare);
}

class CudaPolicy : public core::Policy {
 public:
  CudaPolicy(std::shared_ptr<Context> context, const core::PolicyWeights& weights,
             const core::PolicyOptions& options)
      : context_(std::move(context)),
        dims_(weights.config),
        fingerprint_(weights.fingerprint),
        tuning_(policy_tuning()),
        prepared_(prepare_kernels(*context_, dims_, tuning_)),
        stream_(*context_),
        arena_(std::make_shared<StateArena>(context_,
                                            static_cast<std::size_t>(dims_.network().state_floats()) * 4,
                                            with_spare(options.max_sessions.value_or(kStates)))),
        fused_(context_, dims_, tuning_, weights, stream_),
        rows_(*context_, dims_, tuning_, weights),
        windows_(context_, dims_, tuning_, rows_, stream_),
        slices_(context_, dims_, rows_, tuning_, stream_),
        row_windows_(context_, dims_, tuning_, rows_, slices_),
        prefills_(context_, dims_, tuning_, rows_, arena_),
        batches_(context_, dims_, rows_, tuning_, *arena_, stream_, slices_, fused_.limit()) {
    warm_up();
  }

  // Buffers return to their pools only after the last use.
  ~CudaPolicy() override { stream_.drain(); }

  const core::PolicyConfig& config() const override { return dims_.config; }
  std::uint64_t fingerprint() const override { return fingerprint_; }
  bool on_device() const override { return true; }
  std::size_t resident_bytes() const override {
    return fused_.resident_bytes() + rows_.resident_bytes() + windows_.resident_bytes() +
           row_windows_.resident_bytes() + arena_->held_bytes() + batches_.group_bytes();
  }

  std::unique_ptr<core::State> new_state() override;
  void copy_state(core::State& to, const core::State& from) override;
  void read_state(const core::State& state, float* values) override;
  void write_state(core::State& state, const float* values) override;
  void advance(core::State* const* from, core::State* const* to, std::int64_t count, const float* obs,
               float* out) override;
  void advance_rows(core::State* const* from, core::State* const* to, std::int64_t count,
                    const std::int64_t* rows, const float* obs, float* out) override;
  void advance_group(core::State* const* from, core::State* const* to, std::int64_t count,
                     const std::int64_t* rows, const float* obs, float* out,
                     core::GroupMemory* kept) override;
  bool advance_group_if(const std::function<bool()>& is_right, const core::GroupStates& states,
                        std::int64_t count, const float* obs, float* out) override;
  std::unique_ptr<core::GroupMemory> group_memory(std::int64_t count) override;
  bool checks_frames(std::int64_t count) const override { return count > fused_.limit(); }
  int copying_helpers(std::int64_t count) const override { return batches_.copying_helpers(count); }
  void advance_chain(core::State& from, core::State* const* to, std::int64_t seq, const float* frames,
                     float* out) override;
  void reserve_chain(std::int64_t seq) override;
  int batches_at_once() const override { return tuning_.batches; }
  void reserve_batch(std::int64_t count, int at_once) override;
  void reserve_windows(std::int64_t count, std::int64_t seq) override;
  std::unique_ptr<core::SplitStep> split_step() override;
  std::unique_ptr<core::SplitStep> armed_step(Frames frames) override;
  std::unique_ptr<core::PrefillAhead> prefill_ahead(std::int64_t seq) override;
  void prefill(core::State& state, const float* frames, std::int64_t seq, float* out) override;
  void window(const float* windows, std::int64_t count, std::int64_t seq, float* out) override;
  std::unique_ptr<core::FrameRing> new_ring(std::int64_t slots) override;
  void answer_windows(core::AgentWindow* windows, std::int64_t count, float* out) override;

 private:
  CUdeviceptr slot(const core::State& state) const { return state_of(*arena_, state).slot(); }
  template <class Work>
  void change(core::State* const* from, core::State* const* to, std::int64_t count, Work work);
  template <class Work>
  void change(core::State* const* states, std::int64_t count, Work work) {
    change(states, states, count, work);
  }
  void begin(CUdeviceptr slot);  // writes a new agent's state
  void warm_up();
  // So many windows of one length take less time by the row kernels, together, than by their rings.
  std::int64_t windows_together(std::int64_t seq) const;

  std::shared_ptr<Context> context_;
  const PolicyDims dims_;
  const std::uint64_t fingerprint_;
  const PolicyTuning tuning_;
  const bool prepared_;
  OrderedStream stream_;
  std::shared_ptr<StateArena> arena_;
  FusedSteps fused_;
  RowKernels rows_;
  WindowKernel windows_;
  SlicePipeline slices_;
  RowWindows row_windows_;
  PrefillLanes prefills_;
  std::mutex initial_mutex_;
  std::unique_ptr<core::State> initial_;  // a new agent's, for prefills_; null until one is made
  AgentBatches batches_;
};

// Calls work(places) for these states. They change when it returns and not where it throws; it does neither
// before the device has finished with the places.
template <class Work>
void CudaPolicy::change(core::State* const* from, core::State* const* to, std::int64_t count, Work work) {
  NextStates next(*arena_, from, to, count);
  work(next.places());
  next.commit();
}

void CudaPolicy::begin(CUdeviceptr slot) {
  const auto lock = stream_.enter();
  const CUdeviceptr initial = rows_.initial_state();
  const std::size_t bytes = arena_->state_bytes();
  if (initial == 0)
    return context_->check(driver().cuMemsetD8Async(slot, 0, bytes, stream_.handle()), "cuMemsetD8Async");
  context_->check(driver().cuMemcpyDtoDAsync(slot, initial, bytes, stream_.handle()), "cuMemcpyDtoDAsync");
}

std::unique_ptr<core::State> CudaPolicy::new_state() {
  const ContextGuard guard(*context_);
  auto state = std::make_unique<CudaState>(arena_);
  begin(state->slot());
  return state;
}

void CudaPolicy::copy_state(core::State& to, const core::State& from) {
  const ContextGuard guard(*context_);
  const CUdeviceptr target = slot(to), source = slot(from);
  const auto lock = stream_.enter();
  static_cast<CudaState&>(to).set(target, arena_->stamps(1));
  context_->check(driver().cuMemcpyDtoDAsync(target, source, arena_->state_bytes(), stream_.handle()),
                  "cuMemcpyDtoDAsync");
}

void CudaPolicy::read_state(const core::State& state, float* values) {
  const ContextGuard guard(*context_);
  const CUdeviceptr source = slot(state);
  const std::size_t bytes = static_cast<std::size_t>(dims_.network().state_floats()) * 4;
  const PinnedBuffer staging = context_->pinned_pool().stage(bytes);
  stream_.run([&](CUstream stream) {
    context_->check(driver().cuMemcpyDtoHAsync(staging.data(), source, bytes, stream), "cuMemcpyDtoHAsync");
  });
  unpack_state(dims_, staging.as<float>(), values);
}

void CudaPolicy::write_state(core::State& state, const float* values) {
  const ContextGuard guard(*context_);
  const std::size_t bytes = static_cast<std::size_t>(dims_.network().state_floats()) * 4;
  const PinnedBuffer staging = context_->pinned_pool().stage(bytes);
  pack_state(dims_, values, staging.as<float>());
  core::State* const changed = &state;
  change(&changed, 1, [&](const policy::StatePlace* place) {
    const auto target = reinterpret_cast<CUdeviceptr>(place->to);
    stream_.run([&](CUstream stream) {
      context_->check(driver().cuMemcpyHtoDAsync(target, staging.data(), bytes, stream), "cuMemcpyHtoDAsync");
    });
  });
}

void CudaPolicy::advance(core::State* const* from, core::State* const* to, std::int64_t count,
                         const float* obs, float* out) {
  if (count == 0) return;
  const ContextGuard guard(*context_);
  if (count > fused_.limit()) {
    batches_.advance({from, to, nullptr}, count, {obs, out});
    return;
  }
  change(from, to, count, [&](const policy::StatePlace* places) {
    if (count == 1) {
      fused_.step_chain(places, 1, obs, out);
    } else {
      fused_.step_few(places, static_cast<std::size_t>(count), obs, out);
    }
  });
}

bool CudaPolicy::advance_group_if(const std::function<bool()>& is_right, const core::GroupStates& states,
                                  std::int64_t count, const float* obs, float* out) {
  if (!batches_.may_guess(count)) return false;
  const ContextGuard guard(*context_);
  return batches_.advance(states, count, {obs, out}, is_right);
}

std::unique_ptr<core::GroupMemory> CudaPolicy::group_memory(std::int64_t count) {
  const ContextGuard guard(*context_);
  return batches_.group_memory(count);
}

void CudaPolicy::advance_group(core::State* const* from, core::State* const* to, std::int64_t count,
                               const std::int64_t* rows, const float* obs, float* out,
                               core::GroupMemory* kept) {
  if (kept == nullptr) return Policy::advance_group(from, to, count, rows, obs, out, kept);
  const ContextGuard guard(*context_);
  batches_.advance({from, to, kept}, count, {obs, out, rows});
}

void CudaPolicy::advance_rows(core::State* const* from, core::State* const* to, std::int64_t count,
                              const std::int64_t* rows, const float* obs, float* out) {
  // Few frames are copied in less time than a launch takes.
  if (count <= std::max<std::int64_t>(1, fused_.limit()))
    return Policy::advance_rows(from, to, count, rows, obs, out);
  const ContextGuard guard(*context_);
  batches_.advance({from, to, nullptr}, count, {obs, out, rows});
}

void CudaPolicy::advance_chain(core::State& from, core::State* const* to, std::int64_t seq,
                               const float* frames, float* out) {
  if (seq == 0) return;
  const ContextGuard guard(*context_);
  NextStates next(*arena_, from, to, seq);
  if (fused_.limit() >= 1) {
    fused_.step_chain(next.places(), seq, frames, out);
  } else {
    for (std::int64_t t = 0; t < seq; ++t) {
      SliceHooks hooks;
      hooks.find = [&] { return BatchStates{next.places() + t}; };
      slices_.batch(1, {frames + t * dims_.config.d_input, out + t * dims_.outputs()}, false, hooks,
                    slices_.turn());
    }
  }
  next.commit();
}

// The row kernels have several launches and no words to poll.
std::unique_ptr<core::SplitStep> CudaPolicy::split_step() {
  if (fused_.limit() == 0) return nullptr;
  return std::make_unique<CudaSplitStep>(*context_, *arena_, fused_);
}

std::unique_ptr<core::SplitStep> CudaPolicy::armed_step(Frames frames) {
  return std::make_unique<CudaSplitStep>(*context_, *arena_, fused_, frames);
}

void CudaPolicy::reserve_chain(std::int64_t seq) {
  const ContextGuard guard(*context_);
  arena_->reserve(static_cast<std::size_t>(seq));
  fused_.reserve_chain(seq);
}

void CudaPolicy::reserve_batch(std::int64_t count, int at_once) {
  const ContextGuard guard(*context_);
  arena_->reserve(static_cast<std::size_t>(count) * static_cast<std::size_t>(at_once));
  batches_.reserve(count, at_once);
}

void CudaPolicy::reserve_windows(std::int64_t count, std::int64_t seq) {
  const ContextGuard guard(*context_);
  slices_.reserve_windows(count, seq, windows_together(seq), windows_.takes(seq));
}

std::unique_ptr<core::PrefillAhead> CudaPolicy::prefill_ahead(std::int64_t seq) {
  if (fused_.limit() == 0) return nullptr;
  const std::lock_guard<std::mutex> lock(initial_mutex_);
  if (!initial_) {
    initial_ = new_state();
    stream_.run([](CUstream) {});  // other streams read it
  }
  return prefills_.make(seq, *initial_);
}

void CudaPolicy::prefill(core::State& state, const float* frames, std::int64_t seq, float* out) {
  if (seq == 0) return;
  const ContextGuard guard(*context_);
  core::State* const changed = &state;
  change(&changed, 1, [&](const policy::StatePlace* place) {
    slices_.sequence({*place, frames, seq, out, false, dims_.carried_decays()});
  });
}

void CudaPolicy::window(const float* windows, std::int64_t count, std::int64_t seq, float* out) {
  if (seq == 0) {  // no frame, so no last output
    std::fill(out, out + count * dims_.outputs(), 0.0f);
    return;
  }
  const ContextGuard guard(*context_);
  if (count == 1 && windows_.takes(seq)) return windows_.run(windows, count, seq, out);
  if (seq <= slices_.most_rows()) return slices_.windows(windows, count, seq, out);
  const CudaState scratch(arena_);
  auto* values = as_pointer<float>(scratch.slot());
  for (std::int64_t i = 0; i < count; ++i) {
    begin(scratch.slot());
    const float* const frames = windows + i * seq * dims_.config.d_input;
    slices_.sequence({{values, values}, frames, seq, out + i * dims_.outputs(), true, dims_.decays(seq)});
  }
}

std::unique_ptr<core::FrameRing> CudaPolicy::new_ring(std::int64_t slots) {
  const ContextGuard guard(*context_);
  const bool in_rows = row_windows_.takes(slots);
  if (in_rows && row_windows_.are_walked()) return row_windows_.new_ring(slots);
  if (windows_.takes(slots)) return windows_.new_ring(slots);
  if (in_rows) return row_windows_.new_ring(slots);
  return std::make_unique<ObservationRing>(*this, slots);
}

std::int64_t CudaPolicy::windows_together(std::int64_t seq) const {
  if (tuning_.windows_together > 0) return tuning_.windows_together;
  return windows_.takes(seq) ? 3 : 2;
}

void CudaPolicy::answer_windows(core::AgentWindow* windows, std::int64_t count, float* out) {
  const ContextGuard guard(*context_);
  const bool together = count >= windows_together(windows[0].ring_windows.seq);
  if (together && slices_.answer(windows, count, out)) return;
  core::Policy::answer_windows(windows, count, out);
}

// Runs every kernel once on temporary states, so that lazy initialisation (the driver's too) happens here.
void CudaPolicy::warm_up() {
  const ContextGuard guard(*context_);
  const std::unique_ptr<core::State> first = new_state(), second = new_state();
  core::State* both[] = {first.get(), second.get()};
  constexpr std::int64_t kSeq = 64;
  const std::vector<float> obs(static_cast<std::size_t>(kSeq * dims_.config.d_input), 0.0f);
  std::vector<float> out(static_cast<std::size_t>(kSeq * dims_.outputs()));
  for (int i = 0; i < 3; ++i) step(both, 1, obs.data(), out.data());
  if (fused_.limit() > 1) step(both, 2, obs.data(), out.data());
  copy_state(*both[1], *both[0]);
  batches_.advance({both, both, nullptr}, 2, {obs.data(), out.data()});
  if (rows_.values_ahead() > 0) {  // with what a group knows, and with what it does not yet
    CudaGroupMemory group(context_, 2, rows_.values_ahead(), std::make_shared<std::atomic<std::size_t>>(0));
    for (int i = 0; i < 2; ++i) batches_.advance({both, both, &group}, 2, {obs.data(), out.data()});
  }
  prefill(*both[0], obs.data(), kSeq, out.data());
  window(obs.data(), 1, kSeq, out.data());
  stream_.run([](CUstream) {});
}

}  // namespace

std::unique_ptr<core::Policy> load_policy(std::shared_ptr<Context> context,
                                          std::shared_ptr<const core::PolicyWeights> weights,
                                          const core::PolicyOptions& options) {
  const ContextGuard guard(*context);
  if (options.max_sessions && *options.max_sessions < 1) {
    core::fail(core::ErrorKind::invalid_argument, ":max_sessions", "expected at least 1, got ",
               *options.max_sessions);
  }
  return std::make_unique<CudaPolicy>(context, *weights, options);
}

}  // namespace exphil::cuda
