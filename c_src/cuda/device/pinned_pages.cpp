#include "cuda/device/pinned_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "cuda/device/driver.hpp"
#include "cuda/device/slow_call.hpp"

namespace exphil::cuda {

namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Begins at a huge page; null where the system refuses.
char* map_pages(std::size_t bytes) {
  const std::size_t reserved = bytes + kHugePage;
  if (reserved < bytes) return nullptr;
  void* const mapped = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const first = static_cast<char*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const std::size_t before = round_up(address, kHugePage) - address;
  char* const pages = first + before;
  if (before > 0) munmap(first, before);
  munmap(pages + bytes, kHugePage - before);
  madvise(pages, bytes, MADV_HUGEPAGE);
  madvise(pages, bytes, MADV_DONTFORK);  // the device would go on with the pages of one of the two processes
  return pages;
}

}  // namespace

CUresult pin_pages(std::size_t bytes, PinnedBlock* block) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t size = round_up(bytes, page);
  char* const pages = size < bytes ? nullptr : map_pages(size);
  if (pages == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  for (std::size_t at = 0; at < size; at += page) *static_cast<volatile char*>(pages + at) = 0;
  const SlowCall slow;
  const CUresult result =
      driver().cuMemHostRegister(pages, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (result != CUDA_SUCCESS) {
    munmap(pages, size);
    return result;
  }
  block->data = pages;
  block->mapped_bytes = size;
  return CUDA_SUCCESS;
}

void unpin_pages(const PinnedBlock& block) noexcept {
  // Pages that the device may still use stay mapped.
  if (driver().cuMemHostUnregister(block.data) == CUDA_SUCCESS) munmap(block.data, block.mapped_bytes);
}

}  // namespace exphil::cuda
