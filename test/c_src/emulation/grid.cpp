// Runs the grid of a kernel that the fake NVRTC has compiled; linked into its image.
#include "support/grid_run.hpp"

extern "C" {

exphil::grid::Image emulated_image();  // cuda_names.hpp

// Runs call(argument) as every thread of a grid; on failure returns false with the reason in `problem`.
__attribute__((visibility("default"))) bool run_emulated_grid(const unsigned* grid, const unsigned* block,
                                                              std::size_t shared_bytes, void (*call)(void*),
                                                              void* argument, char* problem,
                                                              std::size_t problem_bytes) {
  const exphil::grid::Image image = emulated_image();
  auto& machine = exphil::grid::machine;
  machine.shared = image.shared, machine.shared_bytes = shared_bytes;
  machine.shared_stride = image.stride, machine.cluster = image.cluster;
  try {
    if (image.cluster > 0 && grid[0] > image.most_blocks) throw std::runtime_error("too many blocks");
    exphil::grid::run({grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, [&] { call(argument); });
    return true;
  } catch (const std::exception& error) {
    std::strncpy(problem, error.what(), problem_bytes - 1);
    return false;
  }
}

}  // extern "C"
