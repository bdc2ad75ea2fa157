// See emulated_gpu.hpp.
#include "cuda/emulated_gpu.hpp"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "kernels/scan/backward_arguments.cuh"

namespace exphil::test {
namespace {

using RunGrid = bool (*)(const unsigned*, const unsigned*, std::size_t, void (*)(void*), void*, char*,
                         std::size_t);

// A kernel's entry and the argument of every thread's call.
template <class Argument>
struct Call {
  void (*entry)(Argument);
  const Argument* argument;
  static void run(void* self) {
    const auto* const call = static_cast<const Call*>(self);
    call->entry(*call->argument);
  }
};

template <class Argument>
bool run_entry(void* entry, RunGrid run_grid, const FakeLaunch& l, char* problem, std::size_t bytes) {
  Call<Argument> call{reinterpret_cast<void (*)(Argument)>(entry),
                      static_cast<const Argument*>(l.arguments[0])};
  return run_grid(l.grid, l.block, l.shared_bytes, Call<Argument>::run, &call, problem, bytes);
}

using Runner = bool (*)(void*, RunGrid, const FakeLaunch&, char*, std::size_t);
const std::map<std::string, Runner>& runners() {
  static const Runner forward = run_entry<scan::Arguments>, backward = run_entry<scan::BackwardArguments>;
  static const std::map<std::string, Runner> all = {{"selective_scan", forward},
                                                    {"selective_scan_wide", forward},
                                                    {"selective_scan_matrix", forward},
                                                    {"selective_scan_backward", backward},
                                                    {"selective_scan_backward_local", backward},
                                                    {"selective_scan_backward_carry", backward},
                                                    {"selective_scan_backward_matrix", backward},
                                                    {"scan_row_sums", run_entry<scan::RowSumArguments>}};
  return all;
}

std::map<std::string, int> launches_of;

// The image as a loaded library; opened once.
void* open_image(const FakeLaunch& launch) {
  static const Folder folder;
  static std::map<const char*, void*> libraries;
  void*& library = libraries[launch.image];
  if (library == nullptr) {
    const std::string name = std::to_string(libraries.size()) + ".so";
    folder.write(name, std::string(launch.image, launch.image_bytes));
    library = dlopen(folder.file(name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

int run_launch(const FakeLaunch& launch) {
  const auto runner = runners().find(launch.function);
  if (runner == runners().end() || launch.image == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  void* const library = open_image(launch);
  if (library == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  void* const entry = dlsym(library, launch.function);
  const auto run_grid = reinterpret_cast<RunGrid>(dlsym(library, "run_emulated_grid"));
  if (entry == nullptr || run_grid == nullptr) return CUDA_ERROR_NOT_FOUND;
  ++launches_of[launch.function];
  char problem[200] = "";
  if (runner->second(entry, run_grid, launch, problem, sizeof(problem))) return CUDA_SUCCESS;
  std::fprintf(stderr, "%s: %s\n", launch.function, problem);
  return CUDA_ERROR_LAUNCH_FAILED;
}

}  // namespace

RunResult run_over_emulated(const std::string& tag, std::map<std::string, std::string> variables) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  variables.emplace("EXPHIL_NATIVE_LIBNVRTC", EXPHIL_FAKE_NVRTC);
  variables.emplace("EXPHIL_NATIVE_CACHE", (program.parent_path() / "emulated_kernels").string());
  variables.emplace("FAKE_CUDA_CAPABILITY", "80");  // no clusters
  return run_over_fake(tag, std::move(variables));
}

void emulate_launches() {
  fake().on_launch(run_launch);
}

int emulated_launches(const std::string& entry) {
  return launches_of[entry];
}

}  // namespace exphil::test
