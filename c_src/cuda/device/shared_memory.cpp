#include "cuda/device/shared_memory.hpp"

#include "core/error.hpp"

namespace exphil::cuda {

namespace {

using core::ErrorKind;
using core::fail;

// An attribute of the memory at `address`, or 0 where the driver does not know the address. Unlike
// cuPointerGetAttribute this call does not fail then, so that a user's compute-sanitizer reports nothing.
template <class T>
T attribute_of(CUdeviceptr address, CUpointer_attribute attribute) {
  T value{};
  void* values[] = {&value};
  const CUresult result = driver().cuPointerGetAttributes(1, &attribute, values, address);
  return result == CUDA_SUCCESS ? value : T{};
}

void require_device(Context& context, const core::DeviceRange& range, CUdeviceptr address) {
  if (attribute_of<unsigned>(address, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) != CU_MEMORYTYPE_DEVICE) {
    fail(ErrorKind::invalid_argument, range.argument, range.argument,
         " is said to be in device memory, and its address is not (any more) memory of a CUDA device");
  }
  const int device = attribute_of<int>(address, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  const int own = context.properties().index;
  if (device != own) {
    fail(ErrorKind::invalid_argument, range.argument, range.argument, " is in the memory of device ", device,
         ", and the call runs on device ", own);
  }
  // Memory of a pool or a mapping has no context; the primary context may read it.
  const auto owner = attribute_of<CUcontext>(address, CU_POINTER_ATTRIBUTE_CONTEXT);
  if (owner != nullptr && owner != context.handle()) {
    fail(ErrorKind::invalid_argument, range.argument, range.argument,
         " is in the memory of a CUDA context that is not the device's primary one");
  }
}

void require_range(const core::DeviceRange& range, CUdeviceptr address) {
  const auto begin = attribute_of<CUdeviceptr>(address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  const auto bytes = attribute_of<std::size_t>(address, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  if (begin == 0 || bytes == 0) {
    fail(ErrorKind::invalid_argument, range.argument, "the extent of the memory of ", range.argument,
         " is unknown to the driver");
  }
  const std::size_t left = bytes - (address - begin);
  if (address < begin || address - begin > bytes || left < range.bytes) {
    fail(ErrorKind::invalid_argument, range.argument, range.argument, " needs ", range.bytes,
         " bytes of device memory, and its allocation has ", left, " from its address on");
  }
}

}  // namespace

void require_shared_memory(Context& context, const core::DeviceRanges& ranges) {
  if (ranges.empty()) return;
  for (const core::DeviceRange& range : ranges) {
    if (range.bytes == 0) continue;
    const auto address = reinterpret_cast<CUdeviceptr>(range.data);
    require_device(context, range, address);
    require_range(range, address);
  }
}

}  // namespace exphil::cuda
