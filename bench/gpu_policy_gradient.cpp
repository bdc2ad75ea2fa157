// The gradient of a policy over 32 windows of 60 frames on the GPU: of the shared one over its match, or of
// any file that loads over random frames. Its checks are the tests of tag [gpu][policy][gradient].
//   make build/bench/gpu_policy_gradient
//   EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_policy_gradient ../shared/melee
//   EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_policy_gradient POLICY
// where POLICY is ../shared/exphil/trunks/gru_e287_h256_w60/policy.bin, say.
// Kernels: events around all launches of a call, after a fill of 256 MB that empties the L2. Whole call:
// core::PolicyGradient::run on host memory, with uploads and downloads, by the clock.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/gpu_scan_cases.hpp"
#include "core/checkpoint/checkpoint.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/error.hpp"
#include "core/trunk/load.hpp"
#include "cuda/policy/gradient.hpp"
#include "cuda/policy/gradient_pass.hpp"
#include "cuda/policy/loader.hpp"

namespace {

using namespace exphil;
using Weights = std::shared_ptr<const core::PolicyWeights>;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kBatch = 32, kSeq = 60;
constexpr int kRuns = 201;

void time_kernels(std::shared_ptr<cuda::Context> context, const Weights& weights,
                  const core::PolicySequences& sequences) {
  const cuda::PolicyGradient policy(context, weights);
  cuda::GradientStreams streams(*context);
  bench::Timer timer(*context, streams.main());
  const cuda::DeviceBuffer sums = context->device_pool().allocate(policy.gradient_bytes());
  std::printf("kernels, medians of %d (an event pair around nothing takes %.1f us):\n", kRuns,
              timer.nothing_us());
  for (const bool gradient : {false, true}) {
    cuda::GradientMemory memory(*context, weights->network(), policy.shape(sequences, gradient, false));
    const auto bytes = static_cast<std::size_t>(kBatch * kSeq * weights->config.d_input) * sizeof(float);
    context->check(cuda::driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(memory.frames().data),
                                               sequences.frames, bytes),
                   "cuMemcpyHtoD");
    if (gradient) {
      const auto floats = static_cast<std::size_t>(kBatch * kSeq * weights->config.d_output);
      const std::vector<float> d_outs(floats, 0.01f);
      context->check(cuda::driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(memory.d_outs().data),
                                                 d_outs.data(), floats * sizeof(float)),
                     "cuMemcpyHtoD");
    }
    const double us = timer.median_us(
        kRuns,
        [&](int, CUstream) { policy.enqueue(streams, memory, sums.address(), false, !gradient, false); },
        sums.address(), policy.gradient_bytes());
    std::printf("  %-30s %9.1f us\n", gradient ? "gradient (forward included)" : "forward", us);
  }
}

void time_calls(const std::shared_ptr<cuda::Context>& context, const Weights& weights,
                const core::PolicySequences& sequences) {
  const auto policy = cuda::make_gradient(context, weights);
  const std::vector<float> d_outs(static_cast<std::size_t>(kBatch * kSeq * weights->config.d_output), 0.01f);
  auto gradient = core::zeros_of<float>(weights->network());
  std::vector<double> times;
  for (int run = -3; run < kRuns; ++run) {
    const Clock::time_point start = Clock::now();
    core::PolicyGradOutputs outputs;
    outputs.weights = &gradient;
    policy->run(sequences, d_outs.data(), outputs);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (run >= 0) times.push_back(us);
  }
  std::sort(times.begin(), times.end());
  std::printf("whole call, %d runs: median %.1f us, best %.1f, p90 %.1f\n", kRuns, times[kRuns / 2], times[0],
              times[kRuns * 9 / 10]);
}

// What the targets are for: Mamba's, and those of the recurrent cells.
void print_targets(const core::PolicyConfig& config) {
  const bool mamba = config.trunk.rfind("mamba", 0) == 0;
  std::printf("%s, %lld > %lld; must: %s\n", config.trunk.c_str(), static_cast<long long>(config.d_input),
              static_cast<long long>(config.d_output),
              mamba ? "gradient 1200 us" : "forward 300 us, gradient 950 us (GRU 287 > 256 x 2 > 64)");
}

std::vector<float> frames_for(const std::string& path, const core::PolicyConfig& config) {
  const auto floats = static_cast<std::size_t>(kBatch * kSeq * config.d_input);
  if (std::filesystem::is_directory(path)) {
    const core::Safetensors match = core::Safetensors::open(path + "/match.safetensors");
    const auto* const from = static_cast<const float*>(match.find("obs")->data);
    return {from, from + floats};
  }
  std::mt19937 random(1);
  std::vector<float> frames(floats);
  for (float& value : frames) value = std::uniform_real_distribution<float>(-1.0f, 1.0f)(random);
  return frames;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string path = argc > 1 ? argv[1] : "../shared/melee";
    const bool shared = std::filesystem::is_directory(path);
    const auto context = cuda::Context::open(0);
    const cuda::ContextGuard guard(*context);
    std::printf("%s\n", context->properties().name.c_str());
    const Weights weights =
        core::load_weights(core::Checkpoint::open(shared ? path + "/policy.safetensors" : path), {});
    print_targets(weights->config);
    const std::vector<float> frames = frames_for(path, weights->config);
    core::PolicySequences sequences;
    sequences.batch = kBatch, sequences.seq = kSeq;
    sequences.frames = frames.data();
    time_kernels(context, weights, sequences);
    time_calls(context, weights, sequences);
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
