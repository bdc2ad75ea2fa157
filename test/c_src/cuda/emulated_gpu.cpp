// See emulated_gpu.hpp.
#include "cuda/emulated_gpu.hpp"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "cuda/fake_nvrtc.hpp"
#include "kernels/associative/arguments.cuh"
#include "kernels/common/convert_arguments.cuh"
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/gradient_arguments.cuh"
#include "kernels/policy/kept_arguments.cuh"
#include "kernels/policy/training_arguments.cuh"
#include "kernels/recurrent/arguments.cuh"
#include "kernels/recurrent/dense_arguments.cuh"
#include "kernels/recurrent/linear_arguments.cuh"
#include "kernels/scan/backward_arguments.cuh"
#include "kernels/semiseparable/arguments.cuh"
#include "kernels/ssd/arguments.cuh"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

// A kernel's object, loaded: its entry, and what the grid asks of it.
struct Kernel {
  void *entry, *image;
};

FakeNvrtc& fake_compiler() {
  static FakeNvrtc* const calls = [] {
    // Kernels find the grid's state in it.
    void* library = dlopen(EXPHIL_FAKE_NVRTC, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    return static_cast<FakeNvrtc*>(dlsym(library, "fake_nvrtc"));
  }();
  return *calls;
}

// A kernel's entry and its arguments, which every thread is called with.
template <class... Arguments>
struct Call {
  void (*entry)(Arguments...);
  std::tuple<Arguments...> arguments;
  static void run(void* self) {
    const auto* const call = static_cast<const Call*>(self);
    std::apply(call->entry, call->arguments);
  }
};

template <class... Arguments>
bool run_with(const std::tuple<Arguments...>& arguments, const Kernel& kernel, const FakeLaunch& l,
              char* problem, std::size_t bytes) {
  Call<Arguments...> call{reinterpret_cast<void (*)(Arguments...)>(kernel.entry), arguments};
  const FakeGrid grid{
      {l.grid[0], l.grid[1], l.grid[2]}, {l.block[0], l.block[1], l.block[2]}, l.shared_bytes};
  return fake_compiler().run(kernel.image, grid, Call<Arguments...>::run, &call, problem, bytes);
}

template <class... Arguments, std::size_t... I>
std::tuple<Arguments...> arguments_of(const FakeLaunch& l, std::index_sequence<I...>) {
  return std::tuple<Arguments...>(*static_cast<const Arguments*>(l.arguments[I])...);
}

template <class... Arguments>
bool run_entry(const Kernel& kernel, const FakeLaunch& l, char* problem, std::size_t bytes) {
  const auto arguments = arguments_of<Arguments...>(l, std::index_sequence_for<Arguments...>());
  return run_with(arguments, kernel, l, problem, bytes);
}

// The second argument of policy_step and of the kernels for windows is as large as a policy's observation,
// and not read where the first one has an address (EXPHIL_NATIVE_POLICY=inline_obs=0).
template <class Arguments>
bool run_with_obs(const Kernel& kernel, const FakeLaunch& l, char* problem, std::size_t bytes) {
  struct Obs {
    float unread[policy::kMostInlineObs];
  };
  const auto& arguments = *static_cast<const Arguments*>(l.arguments[0]);
  if (arguments.obs == nullptr) return false;
  return run_with(std::make_tuple(arguments, Obs{}), kernel, l, problem, bytes);
}

using Runner = bool (*)(const Kernel&, const FakeLaunch&, char*, std::size_t);
const std::map<std::string, Runner>& gradient_runners() {
  static const Runner norm = run_entry<policy::NormArguments>,
                      convolve = run_entry<policy::ConvolveArguments>,
                      scan = run_entry<policy::GradientScanArguments>,
                      activate = run_entry<policy::ActivateArguments>,
                      heads = run_entry<policy::GradientHeadsArguments>,
                      gate = run_entry<policy::GradientGateArguments>,
                      walk = run_entry<recurrent::WalkArguments>,
                      walk_back = run_entry<recurrent::WalkBackArguments>,
                      training_sums = run_entry<policy::TrainingSumsArguments>;
  static const std::map<std::string, Runner> all = {
      {"policy_gradient_product", run_entry<policy::ProductJobs>},
      {"policy_gradient_product_tensor", run_entry<policy::ProductJobs>},
      {"policy_gradient_product_wide", run_entry<policy::ProductJobs>},
      {"policy_gradient_sums", run_entry<policy::PartSums>},
      {"policy_gradient_copy", run_entry<policy::CopyRowsArguments>},
      {"policy_gradient_norm", norm},
      {"policy_gradient_norm_back", norm},
      {"policy_gradient_norm_of_parts", norm},
      {"policy_gradient_norm_of_parts_back", norm},
      {"policy_gradient_heads", heads},
      {"policy_gradient_heads_back", heads},
      {"policy_gradient_gate", gate},
      {"policy_gradient_gate_back", gate},
      {"policy_gradient_sigmoid", gate},
      {"policy_gradient_sigmoid_back", gate},
      {"policy_gradient_means", gate},
      {"policy_gradient_means_back", gate},
      {"policy_gradient_coefficients", run_entry<policy::GradientCoefficientsArguments>},
      {"policy_gradient_coefficients_back", run_entry<policy::GradientCoefficientsArguments>},
      {"policy_gradient_angle", run_entry<policy::GradientAngleArguments>},
      {"policy_gradient_angle_back", run_entry<policy::GradientAngleArguments>},
      {"policy_gradient_rotation", run_entry<policy::GradientRotationArguments>},
      {"policy_gradient_rotation_back", run_entry<policy::GradientRotationArguments>},
      {"policy_gradient_rotation_input_back", run_entry<policy::GradientRotationArguments>},
      {"policy_gradient_delay", run_entry<policy::GradientDelayArguments>},
      {"policy_gradient_delay_back", run_entry<policy::GradientDelayArguments>},
      {"policy_gradient_ranks", run_entry<policy::GradientRankArguments>},
      {"policy_gradient_ranks_back", run_entry<policy::GradientRankArguments>},
      {"policy_gradient_convolve", convolve},
      {"policy_gradient_history", convolve},
      {"policy_gradient_convolve_back", convolve},
      {"policy_gradient_scan", scan},
      {"policy_gradient_scan_back", scan},
      {"policy_gradient_activate", activate},
      {"policy_gradient_activate_back", activate},
      {"policy_training_loss", run_entry<policy::TrainingLossArguments>},
      {"policy_training_squares", training_sums},
      {"policy_training_result", training_sums},
      {"policy_training_adamw", run_entry<policy::AdamWArguments>},
      {"policy_training_derive", run_entry<policy::DeriveArguments>},
      {"recurrent_walk", walk},
      {"recurrent_units", walk},
      {"recurrent_walk_back", walk_back},
      {"recurrent_units_back", walk_back}};
  return all;
}

const std::map<std::string, Runner>& runners() {
  static const Runner forward = run_entry<scan::Arguments>, backward = run_entry<scan::BackwardArguments>,
                      product = run_entry<policy::ProductArguments>,
                      convolve = run_entry<policy::ConvolutionArguments>,
                      advance = run_entry<policy::ScanArguments>, cell = run_entry<policy::CellArguments>;
  static const std::map<std::string, Runner> all = {
      {"selective_scan", forward},
      {"selective_scan_wide", forward},
      {"selective_scan_matrix", forward},
      {"selective_scan_backward", backward},
      {"selective_scan_backward_local", backward},
      {"selective_scan_backward_carry", backward},
      {"selective_scan_backward_totals", run_entry<scan::BackwardTotalsArguments>},
      {"selective_scan_backward_matrix", backward},
      {"associative_scan", run_entry<associative::Arguments>},
      {"recurrent_weights", run_entry<recurrent::WeightArguments>},
      {"convert_widen", run_entry<convert::Arguments>},
      {"convert_narrow", run_entry<convert::Arguments>},
      {"ssd_active_dt", run_entry<ssd::DtArguments>},
      {"ssd_dt_back", run_entry<ssd::DtArguments>},
      {"ssd_gate", run_entry<ssd::GateArguments>},
      {"ssd_gate_back", run_entry<ssd::GateArguments>},
      {"ssd_add_parts", run_entry<ssd::PartArguments>},
      {"recurrent_linear", run_entry<recurrent::LinearArguments>},
      {"recurrent_linear_back", run_entry<recurrent::LinearArguments>},
      {"semiseparable_product", run_entry<semiseparable::ProductArguments>},
      {"scan_row_sums", run_entry<scan::RowSumArguments>},
      {"policy_product_few", product},
      {"policy_product_some", product},
      {"policy_product_many", product},
      {"policy_product_wide", product},
      {"policy_row_scales", product},
      {"policy_diagonal", product},
      {"policy_convolve_batch", convolve},
      {"policy_convolve_time", convolve},
      {"policy_keep_history", convolve},
      {"policy_mean", run_entry<policy::MeanArguments>},
      {"policy_advance_batch", advance},
      {"policy_advance_time", advance},
      {"policy_cell_recall", cell},
      {"policy_cell_frame", cell},
      {"policy_cell_time", cell},
      {"policy_cell_batch", run_entry<policy::CellBatchArguments>},
      {"policy_cell_rest", run_entry<policy::CellBatchArguments>},
      {"policy_cell_ahead", run_entry<policy::CellAheadArguments>},
      {"policy_batch_frame", run_entry<policy::FrameArguments>},
      {"policy_scan_frame", run_entry<policy::ScanFrameArguments>},
      {"policy_cell_wide", run_entry<policy::CellBatchArguments>},
      {"policy_heads_batch", run_entry<policy::HeadsArguments>},
      {"policy_heads_time", run_entry<policy::HeadsArguments>},
      {"policy_gate", run_entry<policy::GateArguments>},
      {"policy_angle", run_entry<policy::AngleArguments>},
      {"policy_rotation", run_entry<policy::RotationArguments>},
      {"policy_delay", run_entry<policy::DelayArguments>},
      {"policy_cell_walk", run_entry<policy::CellWalkArguments>},
      {"policy_cell_walk_wide", run_entry<policy::CellWalkArguments>},
      {"policy_product_follow", run_entry<policy::FollowArguments>},
      {"policy_keep_rows", run_entry<policy::KeptArguments>},
      {"policy_gather_rows", run_entry<policy::KeptArguments>},
      {"policy_step", run_with_obs<policy::StepArguments>},
      {"policy_step_armed", run_entry<policy::StepArguments, policy::ArmedArguments>},
      {"policy_window", run_with_obs<policy::WindowArguments>},
      {"policy_window_team", run_with_obs<policy::WindowArguments>}};
  return all;
}

Runner runner_of(const std::string& name) {
  const auto found = runners().find(name);
  if (found != runners().end()) return found->second;
  const auto of_gradient = gradient_runners().find(name);
  return of_gradient != gradient_runners().end() ? of_gradient->second : nullptr;
}

std::map<std::string, int> launches_of;

// The library of an image; opened once. Null after a message where it cannot be made.
void* open_image(const FakeLaunch& launch) {
  static std::map<const char*, void*> libraries;
  void*& library = libraries[launch.image];
  if (library == nullptr) {
    std::string problem;
    const std::string object =
        fake_compiler().object_of(std::string(launch.image, launch.image_bytes), &problem);
    if (!object.empty()) library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s: %s\n", launch.function, object.empty() ? problem.c_str() : dlerror());
    }
  }
  return library;
}

int run_launch(const FakeLaunch& launch) {
  const Runner runner = runner_of(launch.function);
  if (runner == nullptr || launch.image == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  void* const library = open_image(launch);
  if (library == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  const Kernel kernel{dlsym(library, launch.function), dlsym(library, "emulated_image")};
  if (kernel.entry == nullptr || kernel.image == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (launch.arguments == nullptr) return CUDA_SUCCESS;
  ++launches_of[launch.function];
  char problem[200] = "";
  if (runner(kernel, launch, problem, sizeof(problem))) return CUDA_SUCCESS;
  std::fprintf(stderr, "%s: %s\n", launch.function, problem);
  return CUDA_ERROR_LAUNCH_FAILED;
}

}  // namespace

void require_emulated(const std::string& tag, const std::map<std::string, std::string>& variables) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  std::map<std::string, std::string> all = variables;
  all.emplace("EXPHIL_NATIVE_POLICY", kEmulatedPolicy);
  all.emplace("EXPHIL_NATIVE_LIBNVRTC", EXPHIL_FAKE_NVRTC);
  all.emplace("EXPHIL_NATIVE_CACHE", (program.parent_path() / "emulated_kernels").string());
  all.emplace("FAKE_CUDA_CAPABILITY", "80");  // no clusters
  CAPTURE(tag, all["EXPHIL_NATIVE_POLICY"]);
  require_passed(run_over_fake(tag, all));
}

void require_emulated_teams(const std::vector<std::string>& tags, const std::string& more) {
  const std::string tuning = "team=4,cluster=1,staged=0,inline_obs=0,batch_agents=2" + more;
  for (const std::string& tag : tags) {
    require_emulated(tag, {{"FAKE_CUDA_CAPABILITY", "90"}, {"EXPHIL_NATIVE_POLICY", tuning}});
  }
}

void emulate_launches() {
  fake().on_launch(run_launch);
}

int emulated_launches(const std::string& entry) {
  return launches_of[entry];
}

}  // namespace exphil::test
