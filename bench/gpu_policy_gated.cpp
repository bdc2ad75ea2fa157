// A policy of any trunk but Mamba's (gpu_policy.cpp) on a CUDA device: checks that windows, prefills and
// batches have the bits of its steps, and times them for one or several settings. Exits with 1 where a check
// fails.
//   make build/bench/gpu_policy_gated
//   EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_policy_gated
//   ../shared/exphil/trunks/gru_e287_h256_w60/policy.bin [f32|bf16|f16|int8|tf32x3] [TUNING ...]
// Mamba-2 and Mamba-3: ../shared/mamba23/{mamba2_real,mamba3_real}/policy.safetensors.
// TUNING is "default" or a list for EXPHIL_NATIVE_POLICY (cuda/policy/tuning.hpp): "walk_team=8".
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu_policy_times.hpp"
#include "bench/gpu_scan_cases.hpp"
#include "core/checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "core/session/session.hpp"
#include "core/session/session_group.hpp"
#include "core/trunk/load.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/loader.hpp"
#include "cuda/policy/rows.hpp"
#include "test/c_src/support/step_without_waiting.hpp"

namespace {

using namespace exphil;
using namespace exphil::bench;
using core::Policy;
using core::State;

constexpr std::int64_t kFrames = 3600, kSeq = 60, kWindows = 32;
// AGENTS: the most of a batch, 4096 or 65536 for instance.
const std::int64_t kMostAgents = from_environment("AGENTS", 1024);

class Bench {
 public:
  explicit Bench(std::shared_ptr<Policy> policy)
      : policy_(std::move(policy)),
        config_(policy_->config()),
        obs_(test::Random(1).vector(
            static_cast<std::size_t>(std::max(kFrames, kMostAgents) * config_.d_input), -1, 1)),
        out_(static_cast<std::size_t>(std::max(kFrames, kMostAgents) * config_.d_output)) {}

  void check() {
    const auto outputs = static_cast<std::size_t>(config_.d_output);
    const auto state = policy_->new_state();
    State* one = state.get();
    Floats stepped(kSeq * outputs), filled = stepped, last(kWindows * outputs), alone = last;
    for (std::int64_t t = 0; t < kSeq; ++t) policy_->step(&one, 1, obs(t), stepped.data() + t * outputs);
    const auto again = policy_->new_state();
    policy_->prefill(*again, obs(0), 7, filled.data());
    policy_->prefill(*again, obs(7), kSeq - 7, filled.data() + 7 * outputs);
    report("prefill in two parts: unlike stepping, bits",
           static_cast<double>(bit_differences(filled, stepped) + bit_differences(read(*again), read(*one))),
           0);
    policy_->window(obs(0), kWindows, kSeq, last.data());
    for (std::int64_t i = 0; i < kWindows; ++i) {
      policy_->window(obs(i * kSeq), 1, kSeq, alone.data() + i * static_cast<std::int64_t>(outputs));
    }
    report("windows together: unlike one by one, bits", static_cast<double>(bit_differences(last, alone)), 0);
    const Floats first(last.begin(), last.begin() + config_.d_output),
        end(stepped.end() - config_.d_output, stepped.end());
    report("window: unlike stepping, bits", static_cast<double>(bit_differences(first, end)), 0);
    for (const std::int64_t count : {3, 40, 300, 1024, 1600}) check_batch(*policy_, obs(0), count);
  }

  void times() {
    sessions();
    for (const std::int64_t seq : {1, 15, 30, 60, 120}) {
      time(core::message("window of ", seq, " frames, one").c_str(), 500,
           [&] { policy_->window(next(), 1, seq, out_.data()); });
    }
    for (const std::int64_t count : {2, 8, 32}) {
      time(core::message("window of 60 frames, ", count, " at once").c_str(), 100,
           [&] { policy_->window(obs(0), count, kSeq, out_.data()); });
    }
    const auto state = policy_->new_state();
    State* one = state.get();
    time("prefill, 60 frames", 300, [&] { policy_->prefill(*one, next(), kSeq, out_.data()); });
    time("prefill, 3600 frames", 10, [&] { policy_->prefill(*one, obs(0), kFrames, out_.data()); });
    std::vector<std::unique_ptr<State>> states;
    std::vector<State*> pointers;
    for (const std::int64_t count : {1, 2, 8, 16, 32, 48, 64, 96, 128, 256, 512, 1024, 4096, 65536}) {
      if (count > kMostAgents) break;
      while (static_cast<std::int64_t>(states.size()) < count) {
        states.push_back(policy_->new_state());
        pointers.push_back(states.back().get());
      }
      time(core::message("step, ", count, count == 1 ? " agent" : " agents").c_str(), count > 1024 ? 50 : 500,
           [&] { policy_->step(pointers.data(), count, obs(0), out_.data()); });
    }
  }

 private:
  const float* obs(std::int64_t frame) const { return obs_.data() + frame * config_.d_input; }
  const float* next() { return obs(frame_++ % (kFrames - 120)); }
  Floats read(State& state) {
    Floats all(static_cast<std::size_t>(config_.state_floats()));
    policy_->read_state(state, all.data());
    return all;
  }

  void sessions() {
    core::SessionOptions options;
    core::Session plain(policy_, options);
    options.armed = config_.precision != core::Precision::tf32x3;  // whose steps are several launches
    core::Session armed(policy_, options);
    core::SessionOptions of_window;
    of_window.window = kSeq;
    core::Session windows(policy_, of_window);
    for (int turn = 0; turn < 2; ++turn) {
      time("session step, plain", 3000, [&] { test::step_without_waiting(plain, next(), out_.data()); });
      if (!options.armed) continue;
      time("session step, armed", 3000, [&] { test::step_without_waiting(armed, next(), out_.data()); });
    }
    const auto step = [&] { test::step_without_waiting(windows, next(), out_.data()); };
    time("window session, step", 2000, step);
    time("window session, step every 2 ms", 500, step, wait_2_ms);
    for (const std::int64_t count : {2, 3, 4, 6, 8, 32, 128, 512, 2048}) windows_together(count, of_window);
  }
  void windows_together(std::int64_t count, const core::SessionOptions& options) {
    std::vector<std::unique_ptr<core::Session>> sessions;
    std::vector<core::Session*> each;
    for (std::int64_t i = 0; i < count; ++i) {
      sessions.push_back(std::make_unique<core::Session>(policy_, options));
      each.push_back(sessions.back().get());
    }
    core::SessionGroup group(each);
    group.keep();
    time(core::message("step of ", count, " window sessions").c_str(), count > 128 ? 100 : 500,
         [&] { group.step(obs(frame_++ % 64), out_.data()); });
  }

  const std::shared_ptr<Policy> policy_;
  const core::PolicyConfig& config_;
  const Floats obs_;
  Floats out_;
  std::int64_t frame_ = 0;
};

// Events around the launches of a pass over rows that are on the device, after a fill that empties the L2:
// forward, and a frame of many agents, each with its state. What a call adds: its frames' way to the device,
// its answers' way back.
void time_kernels(cuda::Context& context, const core::PolicyWeights& weights) {
  const cuda::ContextGuard guard(context);
  const cuda::PolicyDims dims(weights.config);
  const cuda::RowKernels kernels(context, dims, cuda::policy_tuning(), weights);
  Timer timer(context);
  std::printf("  events around nothing: %.1f us\n", timer.nothing_us());
  const auto time_job = [&](const std::string& what, cuda::RowBuffers& buffers, cuda::RowJob job) {
    job.out = buffers.out.as<float>();
    const double us = timer.median_us(
        101, [&](int, CUstream stream) { kernels.enqueue(stream, buffers, job); }, buffers.out.address(),
        buffers.out.bytes());
    std::printf("  kernels of %s: median %.1f us\n", what.c_str(), us);
  };
  const auto clear = [&](CUdeviceptr at, std::size_t bytes) {
    context.check(cuda::driver().cuMemsetD8Async(at, 0, bytes, nullptr), "cuMemsetD8Async");
  };
  for (const std::int64_t sequences : {std::int64_t{1}, kWindows}) {
    cuda::RowBuffers buffers;
    buffers.reserve(context, dims, sequences * kSeq);
    cuda::RowJob job;
    job.rows = sequences * kSeq, job.seq = kSeq, job.sequences = static_cast<int>(sequences);
    clear(buffers.in.address(), buffers.in.bytes());
    time_job(core::message(sequences, " x 60, all outputs"), buffers, job);
  }
  for (const std::int64_t agents : {std::int64_t{256}, std::int64_t{1024}, std::int64_t{4096}}) {
    cuda::RowBuffers buffers;
    buffers.reserve(context, dims, agents);
    clear(buffers.in.address(), buffers.in.bytes());
    const auto floats = static_cast<std::size_t>(dims.network().state_floats());
    const cuda::DeviceBuffer states =
        context.device_pool().allocate(static_cast<std::size_t>(2 * agents) * floats * sizeof(float));
    clear(states.address(), states.bytes());
    std::vector<policy::StatePlace> places;
    for (std::int64_t i = 0; i < agents; ++i) {
      auto* const from = states.as<float>() + static_cast<std::size_t>(2 * i) * floats;
      places.push_back({from, from + floats});
    }
    const std::size_t frames = static_cast<std::size_t>(agents * dims.frame_size()) * sizeof(float);
    context.check(cuda::driver().cuMemcpyHtoD(buffers.in.address() + frames, places.data(),
                                              places.size() * sizeof(places[0])),
                  "cuMemcpyHtoD");
    cuda::RowJob job;
    job.rows = agents, job.batch = job.keep_states = true;
    time_job(core::message(agents, " agents, one frame"), buffers, job);
  }
}

void run(const char* path, core::Precision precision, const std::string& tuning) {
  std::printf("tuning %s\n", tuning.c_str());
  if (tuning == "default") {
    unsetenv("EXPHIL_NATIVE_POLICY");
  } else {
    setenv("EXPHIL_NATIVE_POLICY", tuning.c_str(), 1);
  }
  core::PolicyLoadOptions load;
  load.precision = precision;
  const auto weights = core::load_weights(core::Checkpoint::open(path), load);
  core::PolicyOptions options;
  options.max_sessions = std::max<std::int64_t>(kMostAgents, 2048) + 16;
  const auto context = cuda::Context::open(0);
  const Clock::time_point begin = Clock::now();
  Bench bench(cuda::load_policy(context, weights, options));
  std::printf("  loaded in %.0f ms\n", microseconds(begin) / 1e3);
  bench.check();
  bench.times();
  time_kernels(*context, *weights);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: gpu_policy_gated POLICY [f32|bf16|f16|int8|tf32x3] [TUNING ...]\n");
    return 2;
  }
  std::vector<std::string> tunings(argv + std::min(argc, 3), argv + argc);
  if (tunings.empty()) tunings.push_back("default");
  for (const std::string& tuning : tunings) {
    try {
      core::Precision precision = core::Precision::f32;
      if (argc > 2 && !core::parse_precision(argv[2], &precision)) {
        core::fail(core::ErrorKind::invalid_argument, "", "no precision: ", argv[2]);
      }
      run(argv[1], precision, tuning);
    } catch (const core::Error& error) {
      std::printf("  FAILED: %s: %s\n", core::error_kind_name(error.kind()), error.what());
      ++failures;
    }
  }
  std::printf("%s\n", failures == 0 ? "all right" : "NOT RIGHT");
  return failures == 0 ? 0 : 1;
}
