#include "host/policy/policy.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "core/machine_memory.hpp"
#include "core/work/background.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/cadence.hpp"
#include "host/policy/forward.hpp"
#include "host/policy/prefill_ahead.hpp"
#include "host/policy/session_memory.hpp"
#include "host/policy/workspaces.hpp"

namespace exphil::host {

namespace {

// Lanes of one pass. A single step is bound by reading the weights, so more than a few cores gain little.
constexpr int kLanesOfStep = 4, kLanesOfSequence = 16;
// Below this size of the weights, one core alone is faster than two that must synchronise.
constexpr std::size_t kSmallPolicy = std::size_t{256} << 10;

// What a core multiplies in some 100 us: a shorter prefill is not worth a job.
constexpr std::int64_t kProductsAhead = 4'000'000;

// Fewer agents than this do not justify another thread, which reads all the weights.
constexpr std::int64_t kAgentsPerThread = 4;

float* data_of(core::State* state) {
  return static_cast<HostState*>(state)->data();
}

class HostPolicy final : public core::Policy {
 public:
  HostPolicy(const core::PolicyWeights& weights, const core::PolicyOptions& options)
      : weights_(weights),
        plan_(weights_.network()),
        pool_(plan_, lanes(kLanesOfSequence)),
        cadence_(lanes(kLanesOfSequence) > 1),
        states_(std::make_shared<StateMemory>(
            plan_.states.floats(), StateMemory::reservable(options.max_sessions.value_or(0),
                                                           plan_.states.floats(), core::machine_memory()))),
        held_(std::make_shared<std::atomic<std::size_t>>(0)) {}

  const core::PolicyConfig& config() const override { return weights_.config(); }
  std::uint64_t fingerprint() const override { return weights_.fingerprint(); }
  std::size_t resident_bytes() const override {
    return weights_.bytes() + held_->load(std::memory_order_relaxed);
  }

  std::unique_ptr<core::State> new_state() override {
    auto state = std::make_unique<HostState>(states_, held_);
    plan_.states.reset(state->data());
    return state;
  }

  void copy_state(core::State& to, const core::State& from) override {
    const auto& source = static_cast<const HostState&>(from);
    std::memcpy(data_of(&to), source.data(), source.bytes());
  }

  void read_state(const core::State& state, float* values) override {
    plan_.states.read(static_cast<const HostState&>(state).data(), values);
  }

  void write_state(core::State& state, const float* values) override {
    plan_.states.write(values, data_of(&state));
  }

  // Takes all memory of the call before any state changes; after that nothing can fail.
  void advance(core::State* const* from, core::State* const* to, std::int64_t count, const float* obs,
               float* out) override {
    const core::StepScope frame;
    const Cadence::Call call(cadence_);
    const Sharing sharing = count <= kAgentsPerThread ? sharing_of(call) : Sharing{};
    const auto run = [&](Workspace& work, std::int64_t begin, std::int64_t end) noexcept {
      float *sources[kPassRows], *pointers[kPassRows];
      while (begin < end) {
        const std::int64_t agents = std::min(kPassRows, end - begin);
        for (std::int64_t i = 0; i < agents; ++i) sources[i] = data_of(from[begin + i]);
        for (std::int64_t i = 0; i < agents; ++i) pointers[i] = data_of(to[begin + i]);
        run_step(sources, pointers, agents, obs + begin * config().d_input, out + begin * config().d_output,
                 sharing, work);
        begin += agents;
      }
    };
    if (count <= kAgentsPerThread) return run(*pool_.borrow(), 0, count);
    // At most one piece of a pass per thread: each piece reads all the weights.
    const std::int64_t share = (count + core::threads() - 1) / core::threads();
    const std::int64_t piece = std::clamp(share, kAgentsPerThread, kPassRows);
    const std::int64_t pieces = (count + piece - 1) / piece;
    const int threads = static_cast<int>(std::min<std::int64_t>(pieces, core::threads()));
    std::vector<WorkspacePool::Borrowed> works;
    for (int i = 0; i < threads; ++i) works.push_back(pool_.borrow());
    std::atomic<std::int64_t> next{0};
    std::atomic<unsigned> taken{0};
    with_helpers(threads, [&]() noexcept {
      // A thread that does all remaining work comes again after the others have ended.
      Workspace& work = *works[taken.fetch_add(1, std::memory_order_relaxed) % works.size()];
      for (std::int64_t begin; (begin = next.fetch_add(piece)) < count;) {
        run(work, begin, std::min(count, begin + piece));
      }
    });
  }

  // Steps, not a prefill: every state between the frames is wanted. Each step is a call of its own for the
  // cadence, because steps that follow one another at once are shared by threads.
  void advance_chain(core::State& from, core::State* const* to, std::int64_t seq, const float* frames,
                     float* out) override {
    const core::StepScope frame;
    const WorkspacePool::Borrowed work = pool_.borrow();
    float* source = data_of(&from);
    for (std::int64_t t = 0; t < seq; ++t) {
      const Cadence::Call call(cadence_);
      float* target = data_of(to[t]);
      run_step(&source, &target, 1, frames + t * config().d_input, out + t * config().d_output,
               sharing_of(call), *work);
      source = target;
    }
  }

  void reserve_chain(std::int64_t) override {}  // the states are all that a chain needs

  void await_step(bool awaits) noexcept override {
    shared_.await(awaits ? 1 : -1);
    awaits_steps = true;
  }
  bool help_step(std::chrono::nanoseconds patience) noexcept override { return shared_.help(patience); }

  std::unique_ptr<core::PrefillAhead> prefill_ahead(std::int64_t seq) override {
    if (seq * config().products < kProductsAhead) return nullptr;
    // Not on several lanes, which would wait for each other: it has until the next frame.
    return make_prefill_ahead(*this, [this](core::State& state, const float* frames, std::int64_t count) {
      const WorkspacePool::Borrowed work = pool_.borrow();
      Pass pass;
      pass.obs = frames;
      pass.length = config().window;
      std::vector<float> last(static_cast<std::size_t>(config().d_output));
      run_sequence(pass, data_of(&state), count, last.data(), true, *work);
    });
  }

  void prefill(core::State& state, const float* frames, std::int64_t seq, float* out) override {
    const WorkspacePool::Borrowed work = pool_.borrow();
    const Cadence::Call call(cadence_);
    Pass pass;
    pass.obs = frames;
    pass.length = config().window;
    // Of prefills side by side, as where a node's agents go on on another one, each has a thread.
    pass.lanes = core::on_background_thread() || call.has_cores() ? lanes(kLanesOfSequence) : 1;
    run_sequence(pass, data_of(&state), seq, out, false, *work);
  }

  void window(const float* windows, std::int64_t count, std::int64_t seq, float* out) override {
    if (seq == 0) {  // no frame, so no last output
      std::fill(out, out + count * config().d_output, 0.0f);
      return;
    }
    // With a window for every thread, each thread runs its own; fewer windows are split over the threads.
    const bool alone = count < core::threads();
    const auto run = [&](std::int64_t begin, std::int64_t end) {
      const WorkspacePool::Borrowed work = pool_.borrow();
      for (std::int64_t i = begin; i < end; ++i) {
        Pass pass;
        pass.obs = windows + i * seq * config().d_input;
        pass.lanes = alone ? lanes(kLanesOfSequence) : 1;
        run_window(pass, seq, out + i * config().d_output, *work);
      }
    };
    if (alone) return run(0, count);
    core::parallel_for(count, 1, run);
  }

  std::unique_ptr<core::FrameRing> new_ring(std::int64_t slots) override {
    return std::make_unique<Ring>(*this, slots);
  }

  // A thread for each window.
  void answer_windows(core::AgentWindow* windows, std::int64_t count, float* out) override {
    if (count == 1) return Policy::answer_windows(windows, count, out);
    const core::StepScope frame;
    core::parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const core::AgentWindow& window = windows[i];
        answer_first(static_cast<Ring*>(window.ring)->frames, window.ring_windows, 1,
                     out + i * config().d_output);
      }
    });
    for (std::int64_t i = 0; i < count; ++i) windows[i].in_ring = true;
  }

 private:
  struct Ring final : core::FrameRing {
    Ring(HostPolicy& of, std::int64_t slots) : policy(of), frames(of.plan_, slots, of.held_) {}
    void answer(const core::RingWindows& windows, float* out) override {
      policy.answer(frames, windows, out);
    }
    HostPolicy& policy;
    HostRing frames;
  };

  // The first window, on so many lanes. The last fresh frames and it are one pass, so that a step is one
  // pass.
  void answer_first(HostRing& ring, const core::RingWindows& windows, int lanes, float* out) {
    const WorkspacePool::Borrowed work = pool_.borrow();
    Pass pass;
    pass.lanes = lanes;
    ring.for_fresh(windows, config().d_input, [&](const FreshFrames& fresh) {
      if (pass.fresh.count > 0) run_sequence(pass, nullptr, 0, nullptr, true, *work);
      pass.fresh = fresh;
    });
    pass.front = ring.rows(windows.first);
    run_window(pass, windows.seq, out, *work);
  }

  // More windows than one are for a thread each.
  void answer(HostRing& ring, const core::RingWindows& windows, float* out) {
    const core::StepScope frame;
    {
      const Cadence::Call call(cadence_);
      answer_first(ring, windows, call.has_cores() ? lanes(kLanesOfSequence) : 1, out);
    }
    core::parallel_for(windows.count - 1, 1, [&](std::int64_t begin, std::int64_t end) {
      const WorkspacePool::Borrowed other = pool_.borrow();
      for (std::int64_t i = begin + 1; i <= end; ++i) {
        Pass later;
        later.front = ring.rows(windows.first + i);
        run_window(later, windows.seq, out + i * config().d_output, *other);
      }
    });
  }

  // How the threads share a step.
  struct Sharing {
    int lanes = 1;
    SharedPass* helper = nullptr;  // null: helpers are woken
  };
  // A thread that is awake helps at once; others only where steps follow one another.
  Sharing sharing_of(const Cadence::Call& call) {
    const int most = lanes(kLanesOfStep);
    if (most == 1 || !call.has_cores()) return {};
    if (!awaits_steps && shared_.has_helper()) return {2, &shared_};
    return {call.soon() ? most : 1, nullptr};
  }
  // One frame of each agent.
  void run_step(float* const* from, float* const* to, std::int64_t agents, const float* obs, float* out,
                const Sharing& sharing, Workspace& work) {
    Pass pass;
    pass.from = from;
    pass.states = to;
    pass.agents = agents;
    pass.frames = 1;
    pass.obs = obs;
    pass.out = out;
    pass.length = config().window;
    pass.lanes = std::min(sharing.lanes, lanes_of(work));
    pass.shared = pass.lanes > 1 ? sharing.helper : nullptr;
    pass.side = awaits_steps ? 1 : 0;
    forward(weights_, plan_, pass, work);
  }

  static int lanes_of(const Workspace& work) { return static_cast<int>(work.lanes.size()); }
  int lanes(int most) const { return weights_.bytes() <= kSmallPolicy ? 1 : std::min(core::threads(), most); }

  // One agent's frames, kPassRows at a time; `pass` says where they are. last_only: out receives only the
  // last frame's output.
  void run_sequence(Pass pass, float* state, std::int64_t seq, float* out, bool last_only, Workspace& work) {
    pass.lanes = std::min(pass.lanes, lanes_of(work));
    pass.states = &state;
    pass.agents = 1;
    std::int64_t t = 0;
    do {
      pass.frames = std::min(kPassRows, seq - t);
      pass.out = last_only ? out : out + t * config().d_output;
      if (last_only) pass.first_output = t + pass.frames == seq ? pass.frames - 1 : pass.frames;
      forward(weights_, plan_, pass, work);
      pass.fresh = {};
      t += pass.frames;
      if (pass.obs != nullptr) pass.obs += pass.frames * config().d_input;
      pass.front.slot += pass.frames;
    } while (t < seq);
  }

  // The last output of `seq` frames from a new agent's state.
  void run_window(Pass pass, std::int64_t seq, float* out, Workspace& work) {
    plan_.states.reset(work.state);
    pass.length = seq;
    run_sequence(pass, work.state, seq, out, true, work);
  }

  const PackedWeights weights_;
  const ForwardPlan plan_;
  WorkspacePool pool_;
  Cadence cadence_;
  SharedPass shared_;
  // A thread that awaits steps has the other side in its own ones, so that it warms for itself what it
  // computes in those of others.
  static inline thread_local bool awaits_steps = false;
  const std::shared_ptr<StateMemory> states_;  // of the sessions and snapshots, which may outlive the policy
  const HeldBytes held_;
};

}  // namespace

std::unique_ptr<core::Policy> make_policy(const core::PolicyWeights& weights,
                                          const core::PolicyOptions& options) {
  return std::make_unique<HostPolicy>(weights, options);
}

}  // namespace exphil::host
