#include "cuda/device/shared_memory.hpp"

#include "core/error.hpp"

namespace exphil::cuda {

namespace {

using core::ErrorKind;
using core::fail;

// An attribute of the memory at `address`; false where the driver has none, as for memory that it did not
// allocate.
template <class T>
bool ask(CUpointer_attribute attribute, CUdeviceptr address, T* value) {
  return driver().cuPointerGetAttribute(value, attribute, address) == CUDA_SUCCESS;
}

void require_device(Context& context, const core::DeviceRange& range, CUdeviceptr address) {
  unsigned type = 0;
  if (!ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &type) || type != CU_MEMORYTYPE_DEVICE) {
    fail(ErrorKind::invalid_argument, range.argument, range.argument,
         " is said to be in device memory, and its address is not (any more) memory of a CUDA device");
  }
  int device = -1;
  const int own = context.properties().index;
  if (!ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, &device) || device != own) {
    fail(ErrorKind::invalid_argument, range.argument, range.argument, " is in the memory of device ", device,
         ", and the call runs on device ", own);
  }
  // Memory of a pool or a mapping has no context; the primary context may read it.
  CUcontext owner = nullptr;
  if (ask(CU_POINTER_ATTRIBUTE_CONTEXT, address, &owner) && owner != nullptr && owner != context.handle()) {
    fail(ErrorKind::invalid_argument, range.argument, range.argument,
         " is in the memory of a CUDA context that is not the device's primary one");
  }
}

void require_range(const core::DeviceRange& range, CUdeviceptr address) {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  if (!ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address, &begin) ||
      !ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address, &bytes)) {
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
  if (driver().cuPointerGetAttribute == nullptr) {
    fail(ErrorKind::unsupported, ranges.front().argument,
         "this driver is too old to check tensors in device memory");
  }
  for (const core::DeviceRange& range : ranges) {
    if (range.bytes == 0) continue;
    const auto address = reinterpret_cast<CUdeviceptr>(range.data);
    require_device(context, range, address);
    require_range(range, address);
  }
}

}  // namespace exphil::cuda
