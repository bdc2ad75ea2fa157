#include "cuda/device/download.hpp"

#include <cstring>
#include <utility>

namespace exphil::cuda {
namespace {

// cuPointerGetAttributes answers for any address, with 0 for one that it does not know.
// cuMemHostGetDevicePointer fails for it, which compute-sanitizer reports as an error.
CUdeviceptr pinned_address_at(const char* data) {
  unsigned type = 0;
  CUdeviceptr found = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void* values[] = {&type, &found};
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  const bool known = driver().cuPointerGetAttributes(2, attributes, values, address) == CUDA_SUCCESS;
  return known && type == CU_MEMORYTYPE_HOST ? found : 0;
}

}  // namespace

CUdeviceptr pinned_address(const void* data, std::size_t bytes) {
  const char* const first = static_cast<const char*>(data);
  return pinned_address_at(first + bytes - 1) != 0 ? pinned_address_at(first) : 0;
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
