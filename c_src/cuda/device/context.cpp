// The device's context, its errors and its guard; see context.hpp.
#include "cuda/device/context.hpp"

#include <map>
#include <mutex>

#include "core/error.hpp"
#include "cuda/device/settings.hpp"
#include "cuda/device/slow_call.hpp"

namespace exphil::cuda {
namespace {

using core::ErrorKind;
using core::fail;

// Errors after which every later call on the context fails until the process ends. Given as numbers, because
// some names are newer than the oldest supported toolkit.
bool is_sticky(CUresult result) {
  switch (static_cast<int>(result)) {
    case 4:    // DEINITIALIZED
    case 46:   // DEVICE_UNAVAILABLE
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED: a memory error that killed this process's work
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 709:  // CONTEXT_IS_DESTROYED
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
    case 721:  // TENSOR_MEMORY_LEAK
      return true;
    default:
      return false;
  }
}

// Before a context exists, any failure means that the backend is unavailable.
void require(CUresult result, const char* call, int device) {
  if (result == CUDA_SUCCESS) return;
  fail(ErrorKind::backend_unavailable, "", "CUDA device ", device, " cannot be used: ", call, " failed with ",
       describe_result(result));
}

int attribute(CUdevice device, CUdevice_attribute which, int index) {
  int value = 0;
  require(driver().cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute", index);
  return value;
}

}  // namespace

std::string describe_result(CUresult result) {
  const char *name = nullptr, *text = nullptr;
  if (driver().cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  if (driver().cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "no description";
  return core::message(name, " (", static_cast<int>(result), "): ", text);
}

int device_count() {
  int count = 0;
  const CUresult result = driver().cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) {
    fail(ErrorKind::backend_unavailable, "", "cuDeviceGetCount failed with ", describe_result(result));
  }
  if (count == 0)
    fail(ErrorKind::backend_unavailable, "", "the driver ", driver().library, " finds no CUDA device");
  return count;
}

DeviceProperties query_device(int device) {
  const int count = device_count();
  if (device < 0 || device >= count) {
    fail(ErrorKind::backend_unavailable, ":device", "there is no CUDA device ", device, ": this machine has ",
         count, ", numbered from 0");
  }
  CUdevice handle = 0;
  require(driver().cuDeviceGet(&handle, device), "cuDeviceGet", device);
  DeviceProperties properties;
  properties.index = device;
  char name[256] = "";
  require(driver().cuDeviceGetName(name, sizeof(name), handle), "cuDeviceGetName", device);
  properties.name = name;
  properties.compute_major = attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  properties.compute_minor = attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  properties.multiprocessors = attribute(handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  properties.max_shared_per_block =
      attribute(handle, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
  properties.l2_bytes = attribute(handle, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
  require(driver().cuDeviceTotalMem(&properties.total_memory, handle), "cuDeviceTotalMem", device);
  require(driver().cuDriverGetVersion(&properties.driver_version), "cuDriverGetVersion", device);
  return properties;
}

void require_supported(const DeviceProperties& properties) {
  if (properties.architecture() >= kOldestArchitecture) return;
  fail(ErrorKind::backend_unavailable, "", "CUDA device ", properties.index, " (", properties.name,
       ") has compute capability ", properties.compute_major, ".", properties.compute_minor,
       "; 7.5 or later is needed");
}

std::shared_ptr<Context> Context::open(int device) {
  // Leaked on purpose: the contexts exist until the process ends, and static destructors must not call CUDA,
  // because the driver may already be unloaded.
  static auto* mutex = new std::mutex;
  static auto* contexts = new std::map<int, std::shared_ptr<Context>>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::shared_ptr<Context>& context = (*contexts)[device];
  if (!context) context = std::shared_ptr<Context>(new Context(device));
  return context;
}

Context::Context(int device) : properties_(query_device(device)) {
  require_supported(properties_);
  nvrtc();  // fails now rather than at the first kernel
  CUdevice handle = 0;
  const SlowCall slow;
  require(driver().cuDeviceGet(&handle, device), "cuDeviceGet", device);
  require(driver().cuDevicePrimaryCtxRetain(&handle_, handle), "cuDevicePrimaryCtxRetain", device);
  device_pool_ = std::make_unique<DevicePool>(*this);
  pinned_pool_ = std::make_unique<PinnedPool>(*this, settings().pinned_limit);
  streams_ = std::make_unique<StreamPool>(*this);
  kernels_ = std::make_unique<KernelCache>(*this);
}

Context::~Context() = default;

void Context::fail_call(CUresult result, const char* call) {
  if (is_sticky(result)) {
    mark_lost(result, call);
    fail(ErrorKind::device_lost, "", call, " failed with ", describe_result(result), "; CUDA device ",
         properties_.index, " is lost to this process");
  }
  const ErrorKind kind =
      result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::out_of_memory : ErrorKind::cuda_error;
  fail(kind, "", call, " failed with ", describe_result(result));
}

void Context::clear(const DeviceBuffer& memory) {
  check(driver().cuMemsetD8Async(memory.address(), 0, memory.bytes(), nullptr), "cuMemsetD8Async");
  const SlowCall slow(&armed());
  check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

void Context::note(CUresult result, const char* call) noexcept {
  if (result == CUDA_SUCCESS || !is_sticky(result)) return;
  try {
    mark_lost(result, call);
  } catch (...) {
    lost_.store(true, std::memory_order_release);  // no memory for the message
  }
}

void Context::mark_lost(CUresult result, const char* call) {
  if (reason_claimed_.test_and_set()) return;
  lost_reason_ = core::message(call, " failed with ", describe_result(result));
  lost_.store(true, std::memory_order_release);
}

void Context::fail_lost() const {
  fail(ErrorKind::device_lost, "", "CUDA device ", properties_.index, " (", properties_.name,
       ") was lost to this process earlier: ", lost_reason_,
       ". Restart the VM to use it again; the host backend goes on working");
}

ContextGuard::ContextGuard(Context& context) {
  context.require_alive();
  context.check(driver().cuCtxPushCurrent(context.handle()), "cuCtxPushCurrent");
}

ContextGuard::~ContextGuard() {
  CUcontext popped;
  driver().cuCtxPopCurrent(&popped);
}

}  // namespace exphil::cuda
