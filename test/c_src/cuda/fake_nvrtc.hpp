// What the fake NVRTC (fake_nvrtc.cpp) offers beside NVRTC's own calls; found by dlsym as fake_nvrtc.
#pragma once

#include <cstddef>
#include <string>

struct FakeGrid {
  unsigned blocks[3], threads[3];
  std::size_t shared_bytes;
};

struct FakeNvrtc {
  // The path of the shared object of a kernel with this image; it is compiled unless an earlier call, of any
  // process, has. "" where the compiler refuses it, whose messages are then in *log.
  std::string (*object_of)(const std::string& image, std::string* log);
  // Runs call(argument) as every thread of a grid of the kernel whose object has `image_of_kernel`, its
  // function emulated_image. On failure returns false with the reason in `problem`. One grid at a time.
  bool (*run)(void* image_of_kernel, const FakeGrid& grid, void (*call)(void*), void* argument, char* problem,
              std::size_t problem_bytes);
};

// FakeNvrtc::run (emulation/grid.cpp).
bool run_emulated_grid(void* image_of_kernel, const FakeGrid& grid, void (*call)(void*), void* argument,
                       char* problem, std::size_t problem_bytes);
