#include "cuda/device/download.hpp"

#include <cstring>
#include <utility>

namespace exphil::cuda {
// cuPointerGetAttributes answers for any address, with 0 for one that it does not know.
// cuMemHostGetDevicePointer fails for it, which compute-sanitizer reports as an error.
CUdeviceptr pinned_address(const void* data, std::size_t bytes) {
  unsigned type = 0;
  CUdeviceptr found = 0, start = 0;
  std::size_t size = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&type, &found, &start, &size};
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  const bool known = driver().cuPointerGetAttributes(4, attributes, values, address) == CUDA_SUCCESS &&
                     type == CU_MEMORYTYPE_HOST;
  return known && found - start + bytes <= size ? found : 0;
}

void Download::add(CUstream stream, void* to, CUdeviceptr from, std::size_t bytes) {
  if (to == nullptr || bytes == 0) return;
  void* target = to;
  if (pinned_address(to, bytes) == 0) {
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
