// Times the resident policy on the CPU: one step, paced at 60 FPS as in a game and back to back, steps of
// many agents, prefill and windows; with "step" one step only; with "agents" the steps of many agents only;
// with "session" a session's steps at 60 FPS, without and with a pace, in turns of a second. Prints p50 and
// p99 in microseconds.
//   make bench
//   build/bench/host_step policy.safetensors match.safetensors [seconds] [f32|bf16|f16|int8]
//   [step|agents|session]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/policy/reference.hpp"
#include "core/session/session.hpp"
#include "core/trunk/load.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/policy.hpp"
#include "host/simd/simd.hpp"

namespace {

using namespace exphil;
using Clock = std::chrono::steady_clock;

double microseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void report(const char* name, std::vector<double> times, double divisor = 1.0) {
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  std::printf("%-34s %6zu runs  p50 %10.1f  p99 %10.1f  (per row %.2f)\n", name, n, times[n / 2],
              times[n * 99 / 100], times[n / 2] / divisor);
  std::fflush(stdout);
}

std::vector<double> repeat(int runs, const std::function<void()>& body) {
  std::vector<double> times;
  body();
  for (int i = 0; i < runs; ++i) {
    const auto begin = Clock::now();
    body();
    times.push_back(microseconds(begin));
  }
  return times;
}

// The first frames of a turn, in which the pace learns the rhythm, do not count.
void time_sessions(const std::shared_ptr<core::Policy>& policy, const float* obs, std::int64_t frames,
                   double seconds) {
  const core::PolicyConfig& config = policy->config();
  core::Session session(policy, core::SessionOptions{});
  std::vector<float> out(static_cast<std::size_t>(config.d_output));
  std::vector<double> times[2];
  std::int64_t tick = 0;
  for (const auto start = Clock::now(); microseconds(start) < seconds * 1e6;) {
    for (const bool paced : {false, true}) {
      session.set_pace(paced ? 60'000'000 : 0);
      for (int i = 0; i < 60; ++i) {
        std::this_thread::sleep_until(start + std::chrono::nanoseconds(16'666'667) * ++tick);
        const auto begin = Clock::now();
        session.step(obs + tick % frames * config.d_input, out.data());
        if (i >= 10) times[paced ? 1 : 0].push_back(microseconds(begin));
      }
    }
  }
  report("session at 60 FPS, plain", times[0]);
  report("session at 60 FPS, with a pace", times[1]);
}

void time_agents(const std::shared_ptr<core::Policy>& policy, const float* obs, float* out) {
  for (const std::int64_t agents : {2, 8, 14, 64, 256}) {
    std::vector<std::unique_ptr<core::State>> states;
    std::vector<core::State*> pointers;
    for (std::int64_t i = 0; i < agents; ++i) {
      states.push_back(policy->new_state());
      pointers.push_back(states.back().get());
    }
    char name[64];
    std::snprintf(name, sizeof name, "step of %lld agents", static_cast<long long>(agents));
    report(name, repeat(200, [&] { policy->step(pointers.data(), agents, obs, out); }),
           static_cast<double>(agents));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: host_step policy.safetensors match.safetensors [seconds] [precision]\n");
    return 2;
  }
  const double seconds = argc > 3 ? std::atof(argv[3]) : 5.0;
  core::PolicyLoadOptions options;
  if (argc > 4 && !core::parse_precision(argv[4], &options.precision)) {
    std::fprintf(stderr, "precision must be f32, bf16, f16 or int8, got %s\n", argv[4]);
    return 2;
  }
  const auto weights = core::load_weights(core::Checkpoint::open(argv[1]), options);
  const core::Safetensors match = core::Safetensors::open(argv[2]);
  const core::TensorView& view = *match.find("obs");
  const auto* obs = static_cast<const float*>(view.data);
  const core::PolicyConfig& config = weights->config;
  const std::int64_t frames = view.shape[0];
  const std::shared_ptr<core::Policy> policy = host::make_policy(*weights, core::PolicyOptions{});
  std::vector<float> out(static_cast<std::size_t>(4096 * config.d_output));
  std::printf("target %s, %d threads, %s, %zu KiB\n", host::simd_target(), core::threads(),
              core::precision_name(config.precision), policy->resident_bytes() / 1024);

  if (argc > 5 && std::string(argv[5]) == "session") {
    time_sessions(policy, obs, frames, seconds);
    return 0;
  }
  if (argc > 5 && std::string(argv[5]) == "agents") {
    time_agents(policy, obs, out.data());
    return 0;
  }

  const auto state = policy->new_state();
  core::State* one = state.get();
  std::int64_t frame = 0;
  const auto step = [&] {
    policy->step(&one, 1, obs + frame * config.d_input, out.data());
    frame = (frame + 1) % frames;
  };
  std::vector<double> paced;
  const auto start = Clock::now();
  for (int i = 0; microseconds(start) < seconds * 1e6; ++i) {
    std::this_thread::sleep_until(start + std::chrono::microseconds(16667) * i);
    const auto begin = Clock::now();
    step();
    paced.push_back(microseconds(begin));
  }
  report("step, paced at 60 FPS", paced);
  report("step, back to back", repeat(3000, step));

  if (argc > 5 && std::string(argv[5]) == "step") return 0;
  core::PolicyReferenceState reference(config);
  std::vector<double> wide(static_cast<std::size_t>(config.d_output));
  report("step, scalar double reference",
         repeat(100, [&] { core::policy_reference_step(*weights, reference, obs, wide.data()); }));

  time_agents(policy, obs, out.data());
  report("prefill of 600 frames", repeat(50, [&] { policy->prefill(*state, obs, 600, out.data()); }), 600);
  report("window of 60 frames", repeat(200, [&] { policy->window(obs, 1, 60, out.data()); }), 60);
  report("64 windows of 56 frames", repeat(20, [&] { policy->window(obs, 64, 56, out.data()); }), 64 * 56);
  return 0;
}
