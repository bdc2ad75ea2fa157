// Loaded kernels: over the fake driver with the real NVRTC (driver_test.cpp runs these), and real launches.
#include "cuda/jit/kernel_cache.hpp"

#include <filesystem>
#include <thread>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/launch.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::ErrorKind;
using cuda::Context;
using cuda::ContextGuard;
using cuda::driver;
using cuda::KernelCache;
using cuda::KernelSpec;

const char* const kAxpy = R"(
extern "C" __global__ void axpy(const float* x, float* y, float a, long long count) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < count) y[i] += a * x[i] + SHIFT;
}
// Reverses each block's elements through dynamic shared memory, `pad` floats into it.
extern "C" __global__ void reverse(float* x, int pad) {
  extern __shared__ float tile[];
  tile[pad + threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  x[blockIdx.x * blockDim.x + threadIdx.x] = tile[pad + blockDim.x - 1 - threadIdx.x];
}
)";

struct KernelFolder {
  KernelFolder() { kernels.write("test.cu", kAxpy); }
  Folder kernels, cache;
  Environment kernels_variable{"EXPHIL_NATIVE_KERNELS", kernels.path().c_str()};
  Environment cache_variable{"EXPHIL_NATIVE_CACHE", cache.path().c_str()};
};

KernelSpec axpy(int shift) {
  return {"test.cu", "axpy", {"SHIFT=" + std::to_string(shift)}};
}

TEST_CASE("a kernel is compiled and loaded once, for every caller", "[.fake]") {
  const auto context = Context::open(0);
  const KernelFolder workshop;
  KernelCache cache(*context);
  const auto loads = fake().calls("cuModuleLoadDataEx");
  std::vector<CUfunction> functions(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    threads.emplace_back([&, i] { functions[i] = cache.get(axpy(0)); });
  }
  for (auto& thread : threads) thread.join();
  for (const CUfunction function : functions) CHECK(function == functions[0]);
  CHECK(fake().calls("cuModuleLoadDataEx") == loads + 1);
  cache.get({"test.cu", "reverse", {"SHIFT=0"}});  // of the same module
  CHECK(fake().calls("cuModuleLoadDataEx") == loads + 1);
  cache.get(axpy(1));
  CHECK(fake().calls("cuModuleLoadDataEx") == loads + 2);
  cache.prepare({axpy(0), axpy(1), axpy(2), axpy(3), axpy(3)});
  CHECK(fake().calls("cuModuleLoadDataEx") == loads + 4);
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("a loaded kernel is returned without a driver call", "[.fake]") {
  const auto context = Context::open(0);
  const KernelFolder workshop;
  KernelCache cache(*context);
  cache.get(axpy(0));
  const auto pushes = fake().calls("cuCtxPushCurrent");
  cache.get(axpy(0));
  cache.get(axpy(0), 40 * 1024);
  CHECK(fake().calls("cuCtxPushCurrent") == pushes);
}

TEST_CASE("large dynamic shared memory is opted into, once for each growth", "[.fake]") {
  const auto context = Context::open(0);
  const KernelFolder workshop;
  KernelCache cache(*context);
  const KernelSpec spec = {"test.cu", "opted", {"SHIFT=0"}};
  const auto calls = fake().calls("cuFuncSetAttribute");
  cache.get(spec, 48 * 1024);
  CHECK(fake().calls("cuFuncSetAttribute") == calls);
  cache.get(spec, 100 * 1024);
  cache.get(spec, 100 * 1024);
  cache.get(spec, 60 * 1024);
  CHECK(fake().calls("cuFuncSetAttribute") == calls + 1);
  cache.get(spec, 200 * 1024);
  CHECK(fake().calls("cuFuncSetAttribute") == calls + 2);
  const core::Error error = thrown_by([&] { cache.get(spec, 300 * 1024); });
  CHECK(error.kind() == ErrorKind::cuda_error);
  CHECK(contains(error.what(), "MAX_DYNAMIC_SHARED"));
  cache.get(spec, 200 * 1024);
}

TEST_CASE("a kernel that fails to compile is tried again", "[.fake]") {
  const auto context = Context::open(0);
  const KernelFolder workshop;
  KernelCache cache(*context);
  workshop.kernels.write("test.cu", "not a kernel");
  CHECK(thrown_by([&] { cache.get(axpy(0)); }).kind() == ErrorKind::compile_failed);
  CHECK(thrown_by([&] { cache.prepare({axpy(0), axpy(1)}); }).kind() == ErrorKind::compile_failed);
  workshop.kernels.write("test.cu", kAxpy);
  CHECK(cache.get(axpy(0)) != nullptr);
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("a driver that refuses the image is reported with both versions", "[.fake]") {
  const auto context = Context::open(0);
  const KernelFolder workshop;
  KernelCache cache(*context);
  fake().fail_next("cuModuleLoadDataEx", CUDA_ERROR_NO_BINARY_FOR_GPU, 0);
  const core::Error error = thrown_by([&] { cache.get(axpy(0)); });
  CHECK(error.kind() == ErrorKind::compile_failed);
  CHECK(contains(error.what(), "the driver (CUDA 13.0) refuses test.cu as compiled by NVRTC "));
  CHECK(cache.get(axpy(0)) != nullptr);
  fake().fail_next("cuModuleGetFunction", CUDA_ERROR_NOT_FOUND, 0);
  CHECK(thrown_by([&] { cache.get(axpy(7)); }).kind() == ErrorKind::cuda_error);
}

TEST_CASE("kernels run on the device", "[cuda][gpu]") {
  if (!have_device()) return;
  const auto context = Context::open(0);
  const KernelFolder workshop;
  KernelCache cache(*context);
  const ContextGuard guard(*context);
  cuda::StreamLease stream(*context);
  const int count = 10001;  // few enough blocks to be resident together on the smallest device
  auto x = context->pinned_pool().allocate(count * sizeof(float));
  std::vector<float> y(count, 1.0f), expected(count);
  for (int i = 0; i < count; ++i) x.as<float>()[i] = static_cast<float>(i % 1000);
  for (int i = 0; i < count; ++i) expected[i] = 1.0f + 2 * (0.5f * x.as<float>()[i] + 3.0f);
  const auto device_y = context->device_pool().allocate(count * sizeof(float));
  context->check(driver().cuMemcpyHtoDAsync(device_y.address(), y.data(), device_y.bytes(), stream.handle()),
                 "HtoD");
  const CUfunction function = cache.get(axpy(3));
  const cuda::Dim3 grid{(count + 255) / 256};
  // x is read from mapped pinned memory.
  const auto* device_x = reinterpret_cast<const float*>(x.device_address());
  cuda::launch(*context, function, grid, {256}, 0, stream.handle(), device_x, device_y.as<float>(), 0.5f,
               static_cast<long long>(count));
  cuda::launch_cooperative(*context, function, grid, {256}, 0, stream.handle(), device_x,
                           device_y.as<float>(), 0.5f, static_cast<long long>(count));
  context->check(driver().cuMemcpyDtoHAsync(y.data(), device_y.address(), device_y.bytes(), stream.handle()),
                 "DtoH");
  stream.synchronize();
  CHECK(y == expected);
}

TEST_CASE("a kernel uses opted-in shared memory on the device, also in a captured graph", "[cuda][gpu]") {
  if (!have_device()) return;
  const auto context = Context::open(0);
  const KernelFolder workshop;
  KernelCache cache(*context);
  const std::size_t shared = static_cast<std::size_t>(context->properties().max_shared_per_block);
  const int threads = 256, pad = static_cast<int>(shared / sizeof(float)) - threads;
  const CUfunction function = cache.get({"test.cu", "reverse", {"SHIFT=0"}}, shared);
  const ContextGuard guard(*context);
  cuda::StreamLease stream(*context);
  std::vector<float> x(threads), back(threads);
  for (int i = 0; i < threads; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i);
  const auto device_x = context->device_pool().allocate(threads * sizeof(float));
  context->check(driver().cuMemcpyHtoD(device_x.address(), x.data(), device_x.bytes()), "cuMemcpyHtoD");

  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  context->check(driver().cuStreamBeginCapture(stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                 "cuStreamBeginCapture");
  cuda::launch(*context, function, {1}, {threads}, shared, stream.handle(), device_x.as<float>(), pad);
  context->check(driver().cuStreamEndCapture(stream.handle(), &graph), "cuStreamEndCapture");
  context->check(driver().cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  for (int i = 0; i < 3; ++i)
    context->check(driver().cuGraphLaunch(executable, stream.handle()), "cuGraphLaunch");
  stream.synchronize();
  driver().cuGraphExecDestroy(executable);
  driver().cuGraphDestroy(graph);
  context->check(driver().cuMemcpyDtoH(back.data(), device_x.address(), device_x.bytes()), "cuMemcpyDtoH");
  for (int i = 0; i < threads; ++i)
    CHECK(back[static_cast<std::size_t>(i)] == static_cast<float>(threads - 1 - i));
}

TEST_CASE("an abandoned capture does not break later calls", "[cuda][gpu][refused]") {
  if (!have_device()) return;
  const auto context = Context::open(0);
  {
    cuda::StreamLease stream(*context);
    const ContextGuard guard(*context);
    context->check(driver().cuStreamBeginCapture(stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                   "cuStreamBeginCapture");
  }
  CHECK_FALSE(context->lost());
  for (int i = 0; i < 4; ++i) {
    cuda::StreamLease stream(*context);
    stream.synchronize();
  }
}

}  // namespace
}  // namespace exphil::test
