// A libcuda for tests without a GPU. Device memory is host memory, streams execute work immediately unless
// kernels are told to take time (fake_stream.hpp), and kernels are counted, or run where a test provides a
// callback; a policy's step may be replaced by a simple one. It checks what a real driver checks and the
// tests need: a current context, valid handles, bounded memory, and sticky errors. Built as a shared library
// and opened through EXPHIL_NATIVE_LIBCUDA. The environment configures what must be known before the first
// call: FAKE_CUDA_INIT (cuInit's result), FAKE_CUDA_DEVICES, FAKE_CUDA_CAPABILITY ("90"); where there is no
// test program to set them, FAKE_CUDA_STEPS ("1": simplify_steps()), FAKE_CUDA_DELAY ("-1": held) with
// FAKE_CUDA_DELAY_EVERY (delay()), FAKE_CUDA_LOST: the device is lost at the first call of that name, or
// after as many as FAKE_CUDA_LOST_AFTER says, of the device FAKE_CUDA_LOST_DEVICE alone where that is set;
// and FAKE_CUDA_BLOCK ("ADDRESS:BYTES" in hexadecimal: memory of device 0 that another library has
// allocated, with the floats 0, 1, 2, ...). Each device has a context, an order of its work, bounded memory
// and sticky errors of its own. In one file, despite its length: it mirrors one library, and most of it is a
// table.
#include "cuda/fake_cuda.hpp"

#include <cuda.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/fake_armed.hpp"
#include "cuda/fake_stream.hpp"
#include "kernels/policy/arguments.cuh"

namespace {

constexpr int kMostDevices = 16;
constexpr int kAnyDevice = -1;

struct Failure {
  CUresult result;
  int skip;
  int device = kAnyDevice;
};
struct Block {
  std::size_t bytes;
  int device;
};

// Never destroyed: as with the real driver, calls may come until the process ends.
auto& mutex = *new std::recursive_mutex;
auto& call_counts = *new std::map<std::string, std::int64_t>;
auto& failures = *new std::map<std::string, Failure>;
Failure any_failure{CUDA_SUCCESS, -1};  // among the calls that do work; skip = -1: none
CUresult sticky[kMostDevices] = {};
auto& device_blocks = *new std::map<CUdeviceptr, Block>;
auto& pinned_blocks = *new std::map<void*, std::size_t>;
using Live = std::map<void*, int>;  // the device of each handle
Live &streams = *new Live, &events = *new Live;
auto& opted_in = *new std::map<void*, int>;  // functions
thread_local std::vector<CUcontext> stack;
char contexts[kMostDevices];
int (*launch_callback)(const FakeLaunch&) = nullptr;
bool simple_steps = false;
std::atomic<std::int64_t> armed_timeouts{0};
auto* const works = new FakeStream[kMostDevices];  // whose threads do not end
struct Recorded {
  int device = 0;
  std::uint64_t number = 0;
};
auto& recorded = *new std::map<void*, Recorded>;  // by event: the last work before it

struct Module;
struct Function {
  Module* module;
  std::string name;
};
struct Module {
  std::string image;  // where it is a FakeImage
  std::map<std::string, Function> functions;
};

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(&contexts[device]);
}
int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<char*>(context) - contexts);
}
// Of the context that is current on this thread.
int current_device() {
  return stack.empty() ? 0 : device_of(stack.back());
}
// The order of work of that device.
FakeStream& work() {
  return works[current_device()];
}

bool stays(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED;
}

bool does_work(const std::string& call) {
  for (const char* const frees : {"cuMemFree", "cuMemFreeHost", "cuMemHostUnregister", "cuStreamDestroy",
                                  "cuEventDestroy", "cuModuleUnload", "cuCtxPopCurrent"}) {
    if (call == frees) return false;
  }
  return true;
}

// Counts a call and returns an injected or required error before it does anything.
CUresult enter(const char* call, bool needs_context = true, int device = current_device()) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  ++call_counts[call];
  const auto failure = failures.find(call);
  if (failure != failures.end() &&
      (failure->second.device == kAnyDevice || failure->second.device == device) &&
      failure->second.skip-- <= 0) {
    const CUresult result = failure->second.result;
    failures.erase(failure);
    if (stays(result)) sticky[device] = result;
    return result;
  }
  if (any_failure.skip >= 0 && does_work(call) && any_failure.skip-- == 0) {
    if (stays(any_failure.result)) sticky[device] = any_failure.result;
    return any_failure.result;
  }
  if (!needs_context) return CUDA_SUCCESS;
  if (sticky[device] != CUDA_SUCCESS) return sticky[device];
  return stack.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

std::size_t total_pinned() {
  std::size_t sum = 0;
  for (const auto& block : pinned_blocks) sum += block.second;
  return sum;
}
std::size_t total_of(int device) {
  std::size_t sum = 0;
  for (const auto& [address, block] : device_blocks) {
    if (device == kAnyDevice || block.device == device) sum += block.bytes;
  }
  return sum;
}

template <class Handle>
CUresult create(Live& live, Handle* handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  void* made = std::malloc(1);
  live[made] = current_device();
  *handle = static_cast<Handle>(made);
  return CUDA_SUCCESS;
}

CUresult destroy(Live& live, void* handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (live.erase(handle) == 0) return CUDA_ERROR_INVALID_HANDLE;
  std::free(handle);
  return CUDA_SUCCESS;
}

CUresult alive(const Live& live, void* handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  return live.count(handle) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Work goes to a stream of the current context alone; null is its default stream.
CUresult usable(void* stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (stream == nullptr) return CUDA_SUCCESS;
  const auto found = streams.find(stream);
  if (found == streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  return found->second == current_device() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

// FAKE_CUDA_BLOCK
void add_foreign_block() {
  const char* text = std::getenv("FAKE_CUDA_BLOCK");
  char* rest = nullptr;
  const CUdeviceptr address = text == nullptr ? 0 : std::strtoull(text, &rest, 16);
  if (address == 0 || *rest != ':') return;
  const std::size_t bytes = std::strtoull(rest + 1, nullptr, 16);
  void* wanted = reinterpret_cast<void*>(address);
  if (mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
      wanted) {
    return;
  }
  for (std::size_t i = 0; i < bytes / 4; ++i) static_cast<float*>(wanted)[i] = static_cast<float>(i);
  std::lock_guard<std::recursive_mutex> lock(mutex);
  device_blocks[address] = {bytes, 0};
}

void* host(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

Recorded last_before(void* event) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  return recorded[event];
}

// Whether the range is within one allocated device or pinned block.
bool inside(CUdeviceptr address, std::size_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  for (const auto& [start, block] : device_blocks) {
    if (address >= start && address + bytes <= start + block.bytes) return true;
  }
  for (const auto& [start, size] : pinned_blocks) {
    const auto base = reinterpret_cast<CUdeviceptr>(start);
    if (address >= base && address + bytes <= base + size) return true;
  }
  return false;
}

// The memory at an address, as the driver describes it: 0 bytes where it has neither allocated nor
// registered it.
struct Described {
  CUcontext context = nullptr;
  unsigned type = 0;
  int device = 0;
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  CUdeviceptr address = 0;
};

Described described(CUdeviceptr address) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Described found;
  const auto look = [&](CUdeviceptr start, std::size_t bytes, unsigned type, int device) {
    if (address < start || address >= start + bytes) return;
    found = {context_of(device), type, device, start, bytes, address};
  };
  for (const auto& [start, block] : device_blocks)
    look(start, block.bytes, CU_MEMORYTYPE_DEVICE, block.device);
  for (const auto& [start, bytes] : pinned_blocks) {
    look(reinterpret_cast<CUdeviceptr>(start), bytes, CU_MEMORYTYPE_HOST, 0);
  }
  return found;
}

CUresult put_attribute(const Described& memory, CUpointer_attribute attribute, void* value) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) = memory.context;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = memory.type;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = memory.address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = memory.device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = memory.start;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(value) = memory.bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

template <class T>
CUresult fill(CUdeviceptr to, T value, std::size_t count, void* stream) {
  if (!inside(to, count * sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult unusable = usable(stream); unusable) return unusable;
  work().add([=] { std::fill_n(static_cast<T*>(host(to)), count, value); });
  return CUDA_SUCCESS;
}

CUresult copy(void* to, const void* from, std::size_t bytes, CUdeviceptr checked, void* stream) {
  if (!inside(checked, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult unusable = usable(stream); unusable) return unusable;
  work().add([=] { std::memmove(to, from, bytes); });
  return CUDA_SUCCESS;
}

CUresult wait_for_all(CUresult result, FakeStream& of = work()) {
  of.wait_for(of.enqueued());
  return result;
}

// All work of the stream's device, whichever context is current.
FakeStream& work_of(void* stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  const auto found = streams.find(stream);
  return found == streams.end() ? work() : works[found->second];
}

// A step that costs next to nothing: the first kSimple values of a state depend on their old values and on
// the observation's first kSimple / 8, and the outputs are these values, over and over.
constexpr int kSimple = 64;
void simple_step(const exphil::policy::StepArguments& step, std::size_t words) {
  for (int k = 0; k < kSimple; ++k) {
    step.state.to[k] = 0.5f * step.state.from[k] + step.obs[k / 8] * static_cast<float>(k + 1);
  }
  for (std::size_t i = 0; i < words; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, step.state.to + i % kSimple, sizeof(bits));
    __atomic_store_n(step.tagged + i, static_cast<unsigned long long>(step.sequence) << 32 | bits,
                     __ATOMIC_RELEASE);
  }
}

// Words of 8 bytes in a pinned block.
std::size_t words_at(void* tagged) {
  return pinned_blocks[tagged] / sizeof(unsigned long long);
}

// A launch that waits for the host, on the stream's thread. `run` makes it where steps are not simple.
void launch_armed(const exphil::policy::StepArguments& step, const exphil::policy::ArmedArguments& armed,
                  const std::function<int(void**)>& run) {
  const std::size_t words = simple_steps ? words_at(step.tagged) : 0;
  const auto run_and_wait = [=] {
    auto own_step = step;
    auto own_armed = armed;
    void* arguments[] = {&own_step, &own_armed};
    if (!simple_steps) {
      if (run(arguments) != CUDA_SUCCESS) std::abort();
      return;
    }
    float obs[kSimple / 8];
    if (!await_observation(armed, step.sequence, kSimple / 8, obs)) return;
    own_step.obs = obs;
    simple_step(own_step, words);
  };
  const auto body = [=] {
    const auto begin = std::chrono::steady_clock::now();
    run_and_wait();
    const std::chrono::nanoseconds most(armed.nanoseconds);
    armed_timeouts += most.count() > 0 && std::chrono::steady_clock::now() - begin >= most;
  };
  work().add(body, true, true);
}

CUresult launch_simple(const Function& function, void** arguments) {
  if (function.name == "policy_step") {
    const auto step = *static_cast<const exphil::policy::StepArguments*>(arguments[0]);
    if (step.obs == nullptr || step.tagged == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    work().add([step, words = words_at(step.tagged)] { simple_step(step, words); }, true);
  } else if (function.name.rfind("policy_window", 0) == 0) {
    const auto window = *static_cast<const exphil::policy::WindowArguments*>(arguments[0]);
    work().add([window, words = words_at(window.tagged)] {
      std::fill_n(window.tagged, words, static_cast<unsigned long long>(window.sequence) << 32);
    });
  }
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, const unsigned (&grid)[3], const unsigned (&block)[3],
                std::size_t shared_bytes, void* stream, void** arguments) {
  if (CUresult unusable = stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : usable(stream); unusable) {
    return unusable;
  }
  std::lock_guard<std::recursive_mutex> lock(mutex);  // kernels run one at a time
  const auto* const f = reinterpret_cast<const Function*>(function);
  const bool armed = f->name == "policy_step_armed";
  if (simple_steps && !armed) return launch_simple(*f, arguments);
  if (launch_callback == nullptr && !simple_steps) return CUDA_SUCCESS;
  const std::string& image = f->module->image;
  FakeLaunch made{f->name.c_str(), image.empty() ? nullptr : image.data(), image.size(), {}, {}, shared_bytes,
                  arguments};
  std::copy_n(grid, 3, made.grid), std::copy_n(block, 3, made.block);
  if (!armed) {
    wait_for_all(CUDA_SUCCESS);
    return static_cast<CUresult>(launch_callback(made));
  }
  if (!simple_steps) {
    // Its limit of time is for the observation, not for the emulation's compiler.
    made.arguments = nullptr;
    if (const int result = launch_callback(made)) return static_cast<CUresult>(result);
  }
  launch_armed(*static_cast<const exphil::policy::StepArguments*>(arguments[0]),
               *static_cast<const exphil::policy::ArmedArguments*>(arguments[1]),
               [made, run = launch_callback](void** own) mutable {
                 made.arguments = own;
                 return run(made);
               });
  return CUDA_SUCCESS;
}

}  // namespace

// Returns the injected or required error from the calling function.
#define ENTER(...)     \
  const OwnMemory own; \
  if (CUresult entered = enter(__VA_ARGS__); entered) return entered

extern "C" FakeCuda fake_cuda;

// Exempts the fake driver's own allocations from injected failures, and those of test code that runs in a
// launch.
struct OwnMemory {
  OwnMemory() { change(1); }
  ~OwnMemory() { change(-1); }
  static void change(int by) {
    if (fake_cuda.pause_failing != nullptr) fake_cuda.pause_failing(by);
  }
};

extern "C" {

FakeCuda fake_cuda = {
    [](const char* call, int result, int skip) {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      failures[call] = {static_cast<CUresult>(result), skip, kAnyDevice};
    },
    [](const char* call) {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      return call_counts[call];
    },
    [] { return static_cast<int>(stack.size()); },
    [] {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      return total_of(kAnyDevice);
    },
    [] {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      return total_pinned();
    },
    [] {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      return static_cast<int>(streams.size());
    },
    [] {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      return static_cast<int>(events.size());
    },
    [](int (*callback)(const FakeLaunch&)) {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      launch_callback = callback;
    },
    [](int result, int skip) {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      const bool happened = any_failure.skip < 0;
      any_failure = {static_cast<CUresult>(result), skip, kAnyDevice};
      return happened;
    },
    nullptr,
    [] { simple_steps = true; },
    [](std::int64_t microseconds, int every) {
      for (int device = 0; device < kMostDevices; ++device) works[device].set_delay(microseconds, every);
    },
    [] { return armed_timeouts.load(); },
    [](int device) {
      std::lock_guard<std::recursive_mutex> lock(mutex);
      sticky[device] = CUDA_ERROR_ILLEGAL_ADDRESS;
    },
};

// ---- the process and its devices
// -----------------------------------------------------------------------------

CUresult cuInit(unsigned) {
  add_foreign_block();
  if (from_environment("FAKE_CUDA_STEPS", 0) != 0) simple_steps = true;
  if (const int delay = from_environment("FAKE_CUDA_DELAY", 0); delay != 0) {
    fake_cuda.delay(delay, from_environment("FAKE_CUDA_DELAY_EVERY", 1));
  }
  if (const char* const call = std::getenv("FAKE_CUDA_LOST"); call != nullptr) {
    std::lock_guard<std::recursive_mutex> lock(mutex);
    failures[call] = {CUDA_ERROR_ILLEGAL_ADDRESS, from_environment("FAKE_CUDA_LOST_AFTER", 0),
                      from_environment("FAKE_CUDA_LOST_DEVICE", kAnyDevice)};
  }
  return static_cast<CUresult>(from_environment("FAKE_CUDA_INIT", 0));
}

CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      *text = "CUDA_ERROR_OUT_OF_MEMORY";
      break;
    case CUDA_ERROR_NO_DEVICE:
      *text = "CUDA_ERROR_NO_DEVICE";
      break;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      *text = "CUDA_ERROR_ILLEGAL_ADDRESS";
      break;
    case CUDA_ERROR_INVALID_VALUE:
      *text = "CUDA_ERROR_INVALID_VALUE";
      break;
    case CUDA_ERROR_INVALID_CONTEXT:
      *text = "CUDA_ERROR_INVALID_CONTEXT";
      break;
    default:
      *text = nullptr;
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "as the fake driver says";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = from_environment("FAKE_CUDA_DEVICES", 1);
  ENTER("cuDeviceGetCount", false);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(length));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  const int capability = from_environment("FAKE_CUDA_CAPABILITY", 90);
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capability / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capability % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 227 * 1024;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = kFakeMemory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) {
  std::memset(uuid, 0, sizeof(*uuid));
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain", false, device);
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  ENTER("cuCtxPushCurrent", false, device_of(context));
  stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  ENTER("cuCtxPopCurrent", false);
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  ENTER("cuCtxGetDevice");
  *device = current_device();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  ENTER("cuStreamGetCtx", false);
  if (CUresult dead = alive(streams, stream); dead) return dead;
  *context = context_of(streams[stream]);
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  ENTER("cuCtxSynchronize");
  return wait_for_all(CUDA_SUCCESS);
}

// ---- memory
// --------------------------------------------------------------------------------------------------

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  ENTER("cuMemAlloc");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  const std::size_t free = kFakeMemory - total_of(current_device());
  if (bytes > free) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::size_t whole = (bytes + 255) / 256 * 256;
  // Zeros, because a simple step writes a part of a state alone, and the rest is exported with it.
  *address = reinterpret_cast<CUdeviceptr>(std::memset(std::aligned_alloc(256, whole), 0, whole));
  device_blocks[*address] = {bytes, current_device()};
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr address) {
  ENTER("cuMemFree");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (device_blocks.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(host(address));
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(std::size_t* free, std::size_t* all) {
  ENTER("cuMemGetInfo");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  *free = kFakeMemory - total_of(current_device());
  *all = kFakeMemory;
  return CUDA_SUCCESS;
}

// An unknown address is no error here: its attributes are 0.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  ENTER("cuPointerGetAttributes");
  const Described memory = described(address);
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult result = put_attribute(memory, attributes[i], values[i]); result) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** data, std::size_t bytes, unsigned) {
  ENTER("cuMemHostAlloc");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (bytes > kFakeMemory - total_pinned()) return CUDA_ERROR_OUT_OF_MEMORY;
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  pinned_blocks[*data] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* data) {
  ENTER("cuMemFreeHost");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (pinned_blocks.erase(data) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(data);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* data, unsigned) {
  ENTER("cuMemHostGetDevicePointer");
  if (described(reinterpret_cast<CUdeviceptr>(data)).type != CU_MEMORYTYPE_HOST)
    return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<CUdeviceptr>(data);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* data, std::size_t bytes, unsigned) {
  ENTER("cuMemHostRegister");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (bytes > kFakeMemory - total_pinned()) return CUDA_ERROR_OUT_OF_MEMORY;
  return pinned_blocks.emplace(data, bytes).second ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
CUresult cuMemHostUnregister(void* data) {
  ENTER("cuMemHostUnregister");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  return pinned_blocks.erase(data) > 0 ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  ENTER("cuMemcpyHtoD");
  return wait_for_all(copy(host(to), from, bytes, to, nullptr));
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  ENTER("cuMemcpyDtoH");
  return wait_for_all(copy(to, host(from), bytes, from, nullptr));
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  ENTER("cuMemcpyHtoDAsync");
  return copy(host(to), from, bytes, to, stream);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  ENTER("cuMemcpyDtoHAsync");
  return copy(to, host(from), bytes, from, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  ENTER("cuMemcpyDtoDAsync");
  return inside(from, bytes) ? copy(host(to), host(from), bytes, to, stream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D*, CUstream) {
  ENTER("cuMemcpy2DAsync");
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  ENTER("cuMemsetD8Async");
  return fill(to, value, count, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
  ENTER("cuMemsetD16Async");
  return fill(to, value, count, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  ENTER("cuMemsetD32Async");
  return fill(to, value, count, stream);
}

// ---- streams and events
// --------------------------------------------------------------------------------------

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  ENTER("cuStreamCreate");
  return create(streams, stream);
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  ENTER("cuStreamCreateWithPriority");
  return create(streams, stream);
}
CUresult cuStreamDestroy(CUstream stream) {
  ENTER("cuStreamDestroy");
  return destroy(streams, stream);
}
CUresult cuStreamSynchronize(CUstream stream) {
  ENTER("cuStreamSynchronize");
  // null: the default stream
  return wait_for_all(stream == nullptr ? CUDA_SUCCESS : alive(streams, stream), work_of(stream));
}
CUresult cuStreamQuery(CUstream stream) {
  ENTER("cuStreamQuery");
  FakeStream& of = work_of(stream);
  if (!of.done(of.enqueued())) return CUDA_ERROR_NOT_READY;
  return alive(streams, stream);
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  ENTER("cuStreamWaitEvent");
  if (CUresult dead = alive(streams, stream); dead) return dead;
  if (CUresult dead = alive(events, event); dead) return dead;
  // Work of one device is in order anyway.
  const Recorded last = last_before(event);
  FakeStream &waits = work_of(stream), &other = works[last.device];
  if (&waits != &other && !other.done(last.number)) {
    waits.add([&other, last] { other.wait_for(last.number); }, false, true);
  }
  return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER("cuCtxGetStreamPriorityRange");
  *least = *greatest = 0;
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  ENTER("cuEventCreate");
  return create(events, event);
}
CUresult cuEventDestroy(CUevent event) {
  ENTER("cuEventDestroy");
  return destroy(events, event);
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER("cuEventRecord");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (CUresult dead = alive(events, event); dead) return dead;
  if (CUresult unusable = usable(stream); unusable) return unusable;
  if (events[event] != current_device()) return CUDA_ERROR_INVALID_HANDLE;
  recorded[event] = {current_device(), work().enqueued()};
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
  ENTER("cuEventSynchronize");
  const Recorded last = last_before(event);
  works[last.device].wait_for(last.number);
  return alive(events, event);
}
CUresult cuEventQuery(CUevent event) {
  ENTER("cuEventQuery");
  if (const Recorded last = last_before(event); !works[last.device].done(last.number)) {
    return CUDA_ERROR_NOT_READY;
  }
  return alive(events, event);
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent end) {
  ENTER("cuEventElapsedTime");
  *milliseconds = 0;
  return alive(events, end);
}

// ---- kernels
// -------------------------------------------------------------------------------------------------

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  ENTER("cuModuleLoadDataEx");
  auto* const made = new Module;
  FakeImage header;
  std::memcpy(header.magic, image, sizeof(header.magic));
  if (std::memcmp(header.magic, kFakeImageMagic, sizeof(header.magic)) == 0) {
    std::memcpy(&header, image, sizeof(header));
    made->image.assign(static_cast<const char*>(image) + sizeof(header), header.bytes);
  }
  *module = reinterpret_cast<CUmodule>(made);
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
// Modules and functions stay until the process ends.
CUresult cuModuleUnload(CUmodule) {
  ENTER("cuModuleUnload");
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  ENTER("cuModuleGetFunction");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto* const from = reinterpret_cast<Module*>(module);
  *function =
      reinterpret_cast<CUfunction>(&from->functions.emplace(name, Function{from, name}).first->second);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetGlobal(CUdeviceptr*, std::size_t*, CUmodule, const char*) {
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int value) {
  ENTER("cuFuncSetAttribute");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (value > 227 * 1024) return CUDA_ERROR_INVALID_VALUE;
  opted_in[function] = value;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction function) {
  ENTER("cuFuncGetAttribute");
  std::lock_guard<std::recursive_mutex> lock(mutex);
  *value = opted_in.count(function) != 0 ? opted_in[function] : 48 * 1024;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** arguments, void**) {
  ENTER("cuLaunchKernel");
  const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  return launch(function, grid, block, shared_bytes, stream, arguments);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
  ENTER("cuLaunchKernelEx");
  const unsigned grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  return launch(function, grid, block, config->sharedMemBytes, config->hStream, arguments);
}
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z,
                                   unsigned shared_bytes, CUstream stream, void** arguments) {
  ENTER("cuLaunchCooperativeKernel");
  const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  return launch(function, grid, block, shared_bytes, stream, arguments);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = 1;
  return CUDA_SUCCESS;
}
// Two, so that kernels with clusters have several.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  ENTER("cuOccupancyMaxActiveClusters");
  *clusters = 2;
  return CUDA_SUCCESS;
}

// ---- graphs: present, and refused
// ----------------------------------------------------------------------------

CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamEndCapture(CUstream, CUgraph*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphCreate(CUgraph*, unsigned) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphDestroy(CUgraph) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphLaunch(CUgraphExec, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphUpload(CUgraphExec, CUstream) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphExecDestroy(CUgraphExec) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphAddKernelNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                              const CUDA_KERNEL_NODE_PARAMS*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
