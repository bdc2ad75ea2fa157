#include "cuda/device/download.hpp"

#include <cstring>
#include <utility>

namespace exphil::cuda {
namespace {

// cuPointerGetAttributes answers for any address, with 0 for one that it does not know.
// cuMemHostGetDevicePointer fails for it, which compute-sanitizer reports as an error.
bool is_pinned_at(const char* data) {
  unsigned type = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* values[] = {&type};
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  return driver().cuPointerGetAttributes(1, &attribute, values, address) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_HOST;
}

bool is_pinned(const void* data, std::size_t bytes) {
  const char* const first = static_cast<const char*>(data);
  return is_pinned_at(first) && is_pinned_at(first + bytes - 1);
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
