// Times the parts of loading a policy onto a GPU, up to its first step. Run it twice: the first run may
// compile kernels, which the second one finds on disk.
//   make bench
//   build/bench/gpu_load policy.safetensors [f32|bf16|f16|int8]
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.hpp"
#include "core/policy/policy.hpp"
#include "core/trunk/load.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_cache.hpp"
#include "cuda/jit/kernel_compiler.hpp"
#include "cuda/policy/loader.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/tuning.hpp"
#include "cuda/policy/window.hpp"

namespace {

using namespace exphil;
using Clock = std::chrono::steady_clock;

// Runs it and prints how long it took.
template <class Part>
auto timed(const std::string& name, const Part& part) {
  const auto begin = Clock::now();
  struct Print {
    const std::string& name;
    Clock::time_point begin;
    ~Print() {
      std::printf("%-44s %8.2f ms\n", name.c_str(),
                  std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
      std::fflush(stdout);
    }
  } print{name, begin};
  return part();
}

// The kernels that a load asks for, one after another; a load asks for them on several threads at once.
void time_kernels(cuda::Context& context, const cuda::PolicyDims& dims) {
  const cuda::PolicyTuning tuning = cuda::policy_tuning();
  std::vector<cuda::KernelSpec> specs = cuda::row_kernels(dims);
  for (const cuda::WindowShape& shape : cuda::window_candidates(context.properties(), dims, tuning)) {
    specs.push_back(shape.kernel(dims));
  }
  for (const int agents : {1, tuning.batch_agents}) {
    const auto shapes = cuda::team_candidates(context.properties(), dims, tuning, agents);
    if (!shapes.empty()) specs.push_back(cuda::team_kernel(dims, shapes.front()));
  }
  for (const cuda::KernelSpec& spec : specs) {
    timed("    " + spec.file + " " + spec.entry, [&] { return context.kernels().get(spec); });
  }
  timed("  the key of one of them on disk", [&] {
    return cuda::cache_key(cuda::prepare_compile(specs.front(), context.properties().architecture()));
  });
}

void run(const std::string& path, const core::PolicyLoadOptions& options) {
  const auto context = timed("the driver and its context", [] { return cuda::Context::open(0); });
  const auto weights =
      timed("the file", [&] { return core::load_weights(core::Checkpoint::open(path), options); });
  const cuda::PolicyDims dims =
      timed("the lowered network", [&] { return cuda::PolicyDims(weights->config); });
  {
    const cuda::ContextGuard guard(*context);
    timed("each kernel, alone", [&] { time_kernels(*context, dims); });
  }
  timed("  weights for rows, in load_policy again", [&] {
    const cuda::RowLayout layout = cuda::row_layout(dims);
    const std::unique_ptr<std::byte[]> packed(new std::byte[layout.bytes]);
    cuda::pack_rows(*weights, dims, layout, packed.get());
  });
  timed("  weights for a team of 16, the same", [&] {
    const std::unique_ptr<std::byte[]> packed(new std::byte[cuda::team_bytes(dims, 16)]);
    cuda::pack_team(*weights, dims, 16, packed.get());
  });
  std::vector<float> obs(static_cast<std::size_t>(weights->config.d_input));
  std::vector<float> out(static_cast<std::size_t>(weights->config.d_output));
  for (const char* const name : {"load_policy with these kernels", "load_policy once more"}) {
    const auto policy = timed(name, [&] { return cuda::load_policy(context, weights, {}); });
    const auto state = policy->new_state();
    core::State* one = state.get();
    timed("  its first step", [&] { policy->step(&one, 1, obs.data(), out.data()); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  core::PolicyLoadOptions options;
  if (argc < 2 || (argc > 2 && !core::parse_precision(argv[2], &options.precision))) {
    std::fprintf(stderr, "usage: gpu_load policy.safetensors [f32|bf16|f16|int8]\n");
    return 2;
  }
  const auto begin = Clock::now();
  try {
    run(argv[1], options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("%-44s %8.2f ms\n", "all of it",
              std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  return 0;
}
