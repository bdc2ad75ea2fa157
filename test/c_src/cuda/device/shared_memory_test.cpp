// Calls whose inputs are in device memory already: uploads copy them on the device, results have the bits of
// a call on host tensors, and memory that cannot be read is an error. Over the fake driver, on the emulated
// GPU and on a real one.
#include "cuda/device/shared_memory.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/associative/scan.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/scan/gradient_runner.hpp"
#include "cuda/scan/run_case.hpp"
#include "support/scan_grad_case.hpp"

namespace exphil::test {
namespace {

using core::ErrorKind;
using core::ScanOperand;
using cuda::Context;
using cuda::ContextGuard;
using cuda::driver;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

// Copies of tensors in memory of the driver, 4 bytes behind what it allocated.
class DeviceCopies {
 public:
  explicit DeviceCopies(Context& context) : context_(context) {}
  ~DeviceCopies() {
    const ContextGuard guard(context_);
    for (const CUdeviceptr block : blocks_) driver().cuMemFree(block);
  }
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  const void* add(const std::string& name, const void* host, std::size_t bytes) {
    const ContextGuard guard(context_);
    CUdeviceptr block = 0;
    context_.check(driver().cuMemAlloc(&block, bytes + 4), "cuMemAlloc");
    blocks_.push_back(block);
    context_.check(driver().cuMemcpyHtoD(block + 4, host, bytes), "cuMemcpyHtoD");
    ranges_.push_back({name, reinterpret_cast<const void*>(block + 4), bytes});
    return ranges_.back().data;
  }
  const core::DeviceRanges& ranges() const { return ranges_; }

 private:
  Context& context_;
  std::vector<CUdeviceptr> blocks_;
  core::DeviceRanges ranges_;
};

// Three tensors, those of `shared` in device memory. Whether all bytes arrive, each end after its own.
bool upload_arrives(Context& context, std::size_t bytes, const std::vector<bool>& shared) {
  const ContextGuard guard(context);
  DeviceCopies copies(context);
  std::vector<std::vector<std::uint8_t>> host;
  std::vector<cuda::ImageSegment> segments;
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < shared.size(); ++i) {
    std::vector<std::uint8_t>& tensor = host.emplace_back(bytes);
    for (std::size_t k = 0; k < bytes; ++k) tensor[k] = static_cast<std::uint8_t>(k * 7 + k / 250 + 100 * i);
    const void* data = shared[i] ? copies.add("t", tensor.data(), bytes) : tensor.data();
    segments.push_back({data, i * (bytes + 60), bytes});
    ends.push_back(segments.back().at + bytes);
  }
  const cuda::DeviceBuffer image = context.device_pool().allocate(ends.back());
  std::memset(reinterpret_cast<void*>(image.address()), 0, ends.back());
  const auto arrived = [&](std::size_t i) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(image.address()) + segments[i].at;
    return std::memcmp(at, host[i].data(), bytes) == 0;
  };
  std::size_t next = 0;
  bool good = true;
  cuda::StreamLease stream(context);
  cuda::Upload upload(
      context, stream.handle(), image.address(), segments, ends,
      [&](std::size_t i) { good = good && i == next++ && arrived(i); }, copies.ranges());
  upload.run();
  stream.synchronize();
  for (std::size_t i = 0; i < shared.size(); ++i) good = good && arrived(i);
  return good && next == shared.size();
}

TEST_CASE("tensors on the device and on the host arrive in one image", "[.fake]") {
  const auto context = Context::open(0);
  for (const std::size_t bytes : {std::size_t{1}, kMegabyte / 2, 2 * kMegabyte + 3, 9 * kMegabyte}) {
    for (const auto& shared :
         std::vector<std::vector<bool>>{{true, false, false}, {false, true, false}, {true, false, true}}) {
      INFO(bytes << " bytes");
      CHECK(upload_arrives(*context, bytes, shared));
    }
  }
}

TEST_CASE("tensors on the device alone need no copy from the host", "[.fake]") {
  const auto context = Context::open(0);
  const auto copies = fake().calls("cuMemcpyHtoDAsync");
  const auto pinned = fake().pinned_bytes();
  CHECK(upload_arrives(*context, 3 * kMegabyte, {true, true, true}));
  CHECK(fake().calls("cuMemcpyHtoDAsync") == copies);
  CHECK(fake().pinned_bytes() == pinned);
}

// The error for this range in a call on device `device`.
core::Error error_for(const void* data, std::size_t bytes, int device = 0) {
  return thrown_by([&] {
    const auto context = Context::open(device);
    const ContextGuard guard(*context);
    cuda::require_shared_memory(*context, {{"dt", data, bytes}});
  });
}

TEST_CASE("memory that cannot be read on the device is an error that names the argument", "[.fake_two]") {
  const auto context = Context::open(0);
  std::vector<float> host(256);
  const void* freed = nullptr;
  {
    DeviceCopies copies(*context);
    const char* const data = static_cast<const char*>(copies.add("dt", host.data(), 1024));
    {
      const ContextGuard guard(*context);
      cuda::require_shared_memory(*context, copies.ranges());
      cuda::require_shared_memory(*context, {{"dt", data + 1000, 24}, {"b", nullptr, 0}});
    }
    const core::Error small = error_for(data + 1000, 25);
    CHECK(contains(small.what(), "dt needs 25 bytes of device memory, and its allocation has 24"));
    CHECK(contains(error_for(data, SIZE_MAX).what(), "dt needs 18446744073709551615 bytes"));
    const core::Error other = error_for(data, 1024, 1);
    CHECK(contains(other.what(), "dt is in the memory of device 0, and the call runs on device 1"));
    for (const core::Error* error : {&small, &other}) {
      CHECK(error->kind() == ErrorKind::invalid_argument);
      CHECK(error->argument() == "dt");
    }
    freed = data;
  }
  for (const void* data : {freed, static_cast<const void*>(host.data()), static_cast<const void*>(nullptr)}) {
    const core::Error error = error_for(data, 4);
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(contains(error.what(), "not (any more) memory of a CUDA device"));
  }
  CHECK_FALSE(context->lost());
}

// ---- with kernels
// --------------------------------------------------------------------------------------------

core::ScanOperands<std::size_t> bytes_of_inputs(const core::ScanShape& shape) {
  core::ScanOperands<std::size_t> bytes;
  const auto table = core::describe_operands(shape);
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (table[id].present && table[id].flow == core::Flow::in) bytes[id] = table[id].bytes();
  }
  return bytes;
}

// The same call with every operand, or every other one, in device memory.
core::ScanCall shared_call(core::ScanCall call, DeviceCopies& copies, bool every) {
  const auto bytes = bytes_of_inputs(call.shape);
  int number = 0;
  for (const ScanOperand id : core::all_operands<ScanOperand>()) {
    if (bytes[id] == 0 || call.operands[id] == nullptr || (!every && ++number % 2 == 0)) continue;
    call.operands[id] = const_cast<void*>(copies.add("operand", call.operands[id], bytes[id]));
  }
  call.on_device = copies.ranges();
  return call;
}

ScanSpec full_spec(std::int64_t batch, std::int64_t seq, std::int64_t dim) {
  ScanSpec spec;
  spec.batch = batch, spec.seq = seq, spec.dim = dim, spec.state = 16;
  spec.d = spec.z = spec.dt_bias = spec.initial_state = true;
  spec.options.dt_softplus = true;
  return spec;
}

void check_scan(const ScanSpec& spec) {
  INFO(spec.to_string());
  const ScanCase c(spec);
  const Results expected = scan_on_device(c.call());
  for (const bool every : {true, false}) {
    DeviceCopies copies(*Context::open(0));
    CHECK(scan_on_device(shared_call(c.call(), copies, every)).same_bits(expected));
  }
}

void check_gradient(const ScanSpec& spec) {
  INFO(spec.to_string());
  const ScanGradCase c(spec);
  const core::ScanGradProblem problem = c.problem();
  const auto run = [](const core::ScanGradProblem& given) {
    GradResults results(given);
    cuda::run_scan_grad(*Context::open(0), given, results.outputs());
    return results;
  };
  DeviceCopies copies(*Context::open(0));
  core::ScanGradProblem shared = problem;
  const core::ScanShape& p = problem.scan.shape;
  shared.dy =
      copies.add("dy", problem.dy, static_cast<std::size_t>(p.y_elements()) * core::dtype_size(p.dtype));
  shared.scan = shared_call(problem.scan, copies, false);
  CHECK(run(shared).bytes() == run(problem).bytes());
}

void check_associative() {
  core::AssociativeProblem problem;
  problem.op = core::AssociativeOp::linear_recurrence;
  problem.outer = 3, problem.length = 77, problem.inner = 5;
  std::vector<float> a(3 * 77 * 5), b(a.size()), expected(a.size()), y(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = 0.5f + 0.001f * static_cast<float>(i % 300), b[i] = static_cast<float>(i % 7) - 3;
  }
  problem.a = a.data(), problem.x = b.data();
  cuda::run_associative(*Context::open(0), problem, {expected.data(), nullptr});
  DeviceCopies copies(*Context::open(0));
  problem.a = copies.add("a", a.data(), 4 * a.size());
  problem.x = copies.add("b", b.data(), 4 * b.size());
  problem.on_device = copies.ranges();
  cuda::run_associative(*Context::open(0), problem, {y.data(), nullptr});
  CHECK(Results::same(y, expected));
  CHECK(y[1154] != 0);
}

TEST_CASE("inputs on the emulated device give the bits of inputs on the host", "[.emulated_shared]") {
  emulate_launches();
  ScanSpec small = full_spec(2, 19, 34), sliced = full_spec(5, 33, 1032);
  small.options.algorithm = sliced.options.algorithm = core::ScanAlgorithm::sequential;
  check_scan(small);
  check_scan(sliced);
  check_gradient(full_spec(2, 19, 34));
}

TEST_CASE("calls read inputs in device memory without a GPU", "[cuda][shared][emulated]") {
  require_emulated("[.emulated_shared]");
}

TEST_CASE("inputs on the device give the bits of inputs on the host", "[cuda][gpu][scan][shared]") {
  if (!have_device()) return;
  check_scan(full_spec(2, 19, 34));
  check_scan(full_spec(32, 60, 512));  // in slices
  check_scan(full_spec(2, 1024, 256));
  check_gradient(full_spec(4, 200, 128));
  check_associative();
  const auto context = Context::open(0);
  std::vector<float> host(4);
  CHECK(error_for(host.data(), 16).kind() == ErrorKind::invalid_argument);
  CHECK_FALSE(context->lost());
}

TEST_CASE("memory of others over a driver with two devices", "[cuda][shared]") {
  if (!have_nvrtc()) return;
  require_passed(run_over_fake("[fake_two]", {{"FAKE_CUDA_DEVICES", "2"}}));
}

}  // namespace
}  // namespace exphil::test
