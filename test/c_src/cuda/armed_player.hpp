// Sessions with and without latency: :armed on the fake driver, and how a process plays them. For
// cuda/policy/armed_test.cpp and armed_faults_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/session/session.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/loader.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/step_without_waiting.hpp"

namespace exphil::test {

using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;
using SharedPolicy = std::shared_ptr<core::Policy>;

inline constexpr std::size_t kArmedFrames = 40;
// EXPHIL_NATIVE_POLICY: the fake driver's simple steps; a wait on the device that is over only where
// something waits for the launch, after the most that it may be, which FakeCuda::armed_timeouts then counts,
// a short one, and one that is over at once. With the long wait, a frame whose kernel has no core for long is
// waited for by looking: a call of the driver that waits would cancel the launch that is ahead of it.
inline constexpr char kSimpleSteps[] = "team=1,inline_obs=0,batch_agents=1";
inline constexpr const char* kLongWait = ",cluster=0,armed_microseconds=16000000,spin_microseconds=16000000";
inline constexpr const char* kShortWait = ",cluster=0,armed_microseconds=5000";
inline constexpr const char* kNoWait = ",cluster=0,armed_microseconds=0";

// Of kernels, on the fake driver.
inline std::int64_t launches() {
  return fake().calls("cuLaunchKernel") + fake().calls("cuLaunchKernelEx") +
         fake().calls("cuLaunchCooperativeKernel");
}

inline SharedPolicy load_armed_policy(int device = 0) {
  PolicySpec spec;
  spec.d_input = 9;
  core::PolicyOptions options;
  options.max_sessions = 16;
  return cuda::load_policy(cuda::Context::open(device), make_policy(spec), options);
}

inline core::SessionOptions options_of(bool armed) {
  core::SessionOptions options;
  options.armed = armed, options.history = 4;
  return options;
}

class ArmedPlayer {
 public:
  ArmedPlayer(const SharedPolicy& policy, bool armed)
      : session(policy, options_of(armed)),
        out(4 * static_cast<std::size_t>(policy->config().d_output)),
        obs_(
            Random(7).vector((kArmedFrames + 4) * static_cast<std::size_t>(policy->config().d_input), -1, 1)),
        width_(static_cast<std::size_t>(policy->config().d_input)) {}

  const float* obs(std::size_t t) const { return obs_.data() + t % kArmedFrames * width_; }

  const Floats& play(std::size_t t) {
    step_without_waiting(session, obs(t), out.data());
    return out;
  }

  core::Session session;
  Floats out;

 private:
  Floats obs_;
  std::size_t width_;
};

}  // namespace exphil::test
