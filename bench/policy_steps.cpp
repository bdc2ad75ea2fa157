// A resident policy for bench/steps_beside_xla.py: a library that Python opens, so that the policy's steps
// and JAX's programs run in one process, on one device and in one context.
//   make build/bench/policy_steps.so
// Each function returns 0 (or a handle), or -1 (null) where it failed, with exphil_bench_error saying why.
// One thread at a time.
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/session/session.hpp"
#include "core/trunk/load.hpp"
#include "core/work/pause.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/loader.hpp"
#include "host/policy/policy.hpp"
#include "test/c_src/support/step_without_waiting.hpp"

#define EXPHIL_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace exphil;
using Clock = std::chrono::steady_clock;

std::string last_error;

struct Player {
  std::shared_ptr<core::Policy> policy;
  core::Safetensors match;
  std::unique_ptr<core::Session> session;
  std::vector<float> out;
};

std::uint64_t mix(std::uint64_t hash, const std::vector<float>& values) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(float); ++i) hash = (hash ^ bytes[i]) * 1099511628211U;
  return hash;
}

constexpr std::chrono::microseconds kArmLead{60};

}  // namespace

EXPHIL_EXPORT const char* exphil_bench_error() {
  return last_error.c_str();
}

// The policy and the match of the folder `melee`, on the first GPU or, where cuda is 0, on the host.
EXPHIL_EXPORT void* exphil_bench_open(const char* melee, int cuda) {
  try {
    const std::string folder = melee;
    const auto weights = core::load_weights(core::Checkpoint::open(folder + "/policy.safetensors"), {});
    std::shared_ptr<core::Policy> policy =
        cuda != 0 ? cuda::load_policy(cuda::Context::open(0), weights, {}) : host::make_policy(*weights, {});
    auto player = std::make_unique<Player>(Player{std::move(policy),
                                                  core::Safetensors::open(folder + "/match.safetensors"),
                                                  nullptr, std::vector<float>()});
    player->out.resize(static_cast<std::size_t>(player->policy->config().d_output));
    return player.release();
  } catch (const std::exception& error) {
    last_error = error.what();
    return nullptr;
  }
}

// The first `count` frames of the match from a zero state, one every `period` microseconds, on the policy's
// only session. armed: with latency: :armed, which arms it shortly before the frame where these are far
// apart. times: {count}, what each step took in microseconds. hash: of all outputs.
EXPHIL_EXPORT int exphil_bench_steps(void* handle, std::int64_t count, std::int64_t period, int armed,
                                     double* times, std::uint64_t* hash) {
  try {
    Player& player = *static_cast<Player*>(handle);
    core::SessionOptions options;
    options.armed = armed != 0;
    player.session = std::make_unique<core::Session>(player.policy, options);
    const core::TensorView& obs = *player.match.find("obs");
    const auto* frames = static_cast<const float*>(obs.data);
    *hash = 14695981039346656037U;
    const auto begin = Clock::now();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto due = begin + std::chrono::microseconds(i * period);
      std::this_thread::sleep_until(due - kArmLead);
      if (armed != 0 && Clock::now() < due) player.session->arm();
      while (Clock::now() < due) core::pause_briefly();
      const float* frame = frames + i % obs.shape[0] * player.policy->config().d_input;
      const auto sent = Clock::now();
      test::step_without_waiting(*player.session, frame, player.out.data());
      times[i] = std::chrono::duration<double, std::micro>(Clock::now() - sent).count();
      *hash = mix(*hash, player.out);
    }
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return -1;
  }
}
