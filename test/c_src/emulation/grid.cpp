// Runs the grids of kernels that the fake NVRTC has compiled (cuda/fake_nvrtc.hpp); a part of that library.
#define EXPHIL_GRID_STATE __attribute__((visibility("default")))

#include <mutex>

#include "cuda/fake_nvrtc.hpp"
#include "support/grid_run.hpp"

bool run_emulated_grid(void* image_of_kernel, const FakeGrid& grid, void (*call)(void*), void* argument,
                       char* problem, std::size_t problem_bytes) {
  static std::mutex one_at_a_time;  // they share the machine and its fibres
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  // The shared memory is that of this thread.
  const auto image = reinterpret_cast<exphil::grid::Image (*)()>(image_of_kernel)();
  auto& machine = exphil::grid::machine;
  machine.shared = image.shared, machine.shared_bytes = grid.shared_bytes;
  machine.shared_stride = image.stride, machine.cluster = image.cluster;
  const auto& [x, y, z] = grid.blocks;
  const auto& [thread_x, thread_y, thread_z] = grid.threads;
  try {
    if (image.cluster > 0 && x > image.most_blocks) throw std::runtime_error("too many blocks");
    exphil::grid::run({x, y, z}, {thread_x, thread_y, thread_z}, [&] { call(argument); });
    return true;
  } catch (const std::exception& error) {
    std::strncpy(problem, error.what(), problem_bytes - 1);
    return false;
  }
}
