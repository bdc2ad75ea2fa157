// Loaded kernels of one context; see kernel_cache.hpp.
#include "cuda/jit/kernel_cache.hpp"

#include <map>
#include <mutex>
#include <unordered_map>

#include "core/error.hpp"
#include "core/work/parallel.hpp"
#include "cuda/device/context.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/device/slow_call.hpp"
#include "cuda/jit/kernel_compiler.hpp"

namespace exphil::cuda {
namespace {

using core::ErrorKind;
using core::fail;

// Kernels of one file with the same defines share a module.
std::string module_name(const KernelSpec& spec) {
  std::string name = spec.file;
  for (const std::string& define : spec.defines) name += "\n" + define;
  return name;
}

struct Module {
  std::mutex mutex;  // held while compiling and loading
  CUmodule handle = nullptr;
};

struct Function {
  CUfunction handle = nullptr;
  std::size_t opted_in = 0;  // dynamic shared bytes that the function was opted into
};

}  // namespace

struct KernelCache::Impl {
  explicit Impl(Context& owner) : context(owner) {}

  // Throws the failure of compiling or loading; the next call tries again.
  CUmodule load(const KernelSpec& spec);
  CUmodule load_image(const std::string& image, const KernelSpec& spec);

  Context& context;
  std::mutex mutex;  // protects both maps and the contents of a Function
  std::unordered_map<std::string, std::shared_ptr<Module>> modules;
  std::unordered_map<std::string, Function> functions;
};

CUmodule KernelCache::Impl::load(const KernelSpec& spec) {
  std::shared_ptr<Module> module;
  {
    std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<Module>& slot = modules[module_name(spec)];
    if (!slot) slot = std::make_shared<Module>();
    module = slot;
  }
  std::lock_guard<std::mutex> lock(module->mutex);
  if (module->handle == nullptr) {
    module->handle = load_image(cached_image(spec, context.properties().architecture()), spec);
  }
  return module->handle;
}

CUmodule KernelCache::Impl::load_image(const std::string& image, const KernelSpec& spec) {
  std::string log(4096, '\0');
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule module = nullptr;
  const SlowCall slow(&context.armed());
  const CUresult result = driver().cuModuleLoadDataEx(&module, image.data(), 2, options, values);
  switch (result) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE:
      fail(ErrorKind::compile_failed, "", "the driver (CUDA ", context.properties().driver_version / 1000,
           ".", context.properties().driver_version % 1000 / 10, ") refuses ", spec.file,
           " as compiled by NVRTC ", nvrtc().major, ".", nvrtc().minor, " (", nvrtc().library,
           "): ", describe_result(result), ". An NVRTC of the driver's own major version works\n",
           log.c_str());
    default:
      context.check(result, "cuModuleLoadDataEx");
  }
  return module;
}

KernelCache::KernelCache(Context& context) : impl_(std::make_unique<Impl>(context)) {}

// Modules stay loaded: the context lasts as long as the process, and work in flight may still use them.
KernelCache::~KernelCache() = default;

CUfunction KernelCache::get(const KernelSpec& spec, std::size_t dynamic_shared) {
  const std::string name = spec.entry + "\n" + module_name(spec);
  {
    std::lock_guard<std::mutex> lock(impl_->mutex);
    const auto found = impl_->functions.find(name);
    if (found != impl_->functions.end() && dynamic_shared <= found->second.opted_in) {
      return found->second.handle;
    }
  }
  Context& context = impl_->context;
  const ContextGuard guard(context);
  CUmodule module = impl_->load(spec);
  CUfunction handle = nullptr;
  const SlowCall slow(&context.armed());  // the driver may load a kernel's code only now
  context.check(driver().cuModuleGetFunction(&handle, module, spec.entry.c_str()), "cuModuleGetFunction");

  int allowed = 0;  // 48 KB less the kernel's static shared memory
  context.check(
      driver().cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, handle),
      "cuFuncGetAttribute");

  std::lock_guard<std::mutex> lock(impl_->mutex);
  Function& function =
      impl_->functions.try_emplace(name, Function{handle, static_cast<std::size_t>(allowed)}).first->second;
  if (dynamic_shared > function.opted_in) {
    context.check(driver().cuFuncSetAttribute(handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                              static_cast<int>(dynamic_shared)),
                  "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
    function.opted_in = dynamic_shared;
  }
  return handle;
}

void KernelCache::prepare(const std::vector<KernelSpec>& specs) {
  core::parallel_for(static_cast<std::int64_t>(specs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) get(specs[static_cast<std::size_t>(i)]);
  });
}

}  // namespace exphil::cuda
