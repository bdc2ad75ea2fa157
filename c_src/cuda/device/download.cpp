#include "cuda/device/download.hpp"

#include <cstring>
#include <utility>

namespace exphil::cuda {
namespace {

bool is_pinned(void* data, std::size_t bytes) {
  CUdeviceptr address;
  char* first = static_cast<char*>(data);
  return driver().cuMemHostGetDevicePointer(&address, first, 0) == CUDA_SUCCESS &&
         driver().cuMemHostGetDevicePointer(&address, first + bytes - 1, 0) == CUDA_SUCCESS;
}

}  // namespace

void Download::add(CUstream stream, void* to, CUdeviceptr from, std::size_t bytes) {
  if (to == nullptr || bytes == 0) return;
  void* target = to;
  if (!is_pinned(to, bytes)) {
    Staged staged{to, bytes, context_.pinned_pool().try_stage(bytes)};
    if (staged.buffer) {
      target = staged.buffer.data();
      staged_.push_back(std::move(staged));
    }  // else directly into pageable memory: slower, and the call blocks on it
  }
  context_.check(driver().cuMemcpyDtoHAsync(target, from, bytes, stream), "cuMemcpyDtoHAsync");
}

void Download::finish() {
  for (const Staged& s : staged_) std::memcpy(s.to, s.buffer.data(), s.bytes);
}

}  // namespace exphil::cuda
