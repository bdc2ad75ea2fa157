// Large blocks of page-locked host memory. cuMemHostAlloc finds, clears and locks their pages under the
// driver's lock, for which every launch waits: 16 MB take 4 to 20 ms on an H200
// (bench/results/play_beside_scans.md). Here the pages are huge ones of this process, touched before the
// driver gets them, which takes 1.2 ms, and a launch beside it 0.5 ms at most. Used by memory.cpp. Safe from
// any thread.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "cuda/device/memory.hpp"

namespace exphil::cuda {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;  // smaller blocks are cuMemHostAlloc's

// Fills `block`, of at least `bytes`, except for its device address. CUDA_ERROR_OUT_OF_MEMORY where the
// system refuses; another error where the driver does. The context is current.
CUresult pin_pages(std::size_t bytes, PinnedBlock* block) noexcept;

// Results are ignored: where the device is lost there is nothing left to free. The context is current.
void unpin_pages(const PinnedBlock& block) noexcept;

}  // namespace exphil::cuda
