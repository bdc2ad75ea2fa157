// Associative scans on the GPU: checks against the double oracle, then kernel medians with cold caches next
// to the floor (each tensor read and written once at the copy rate measured here). Prints one table.
//   make build/bench/gpu_associative && EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_associative [runs]
//   ... gpu_associative tune [runs]      every items x warps for the recorded shapes
//   ... gpu_associative gradient [runs]  gradients beside their forward: the ratio of the times for each byte
//   that
//                                        is read or written at least. Complete calls, the cleared flags
//                                        included
// The kernel is timed by events around its launch; the hand-over's flags are cleared before. Three input sets
// alternate, and a fill of 256 MB between runs empties the L2. The first row gives the time of an event pair.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/associative/reference.hpp"
#include "core/error.hpp"
#include "core/half.hpp"
#include "cuda/associative/recurrence_gradient.hpp"
#include "cuda/associative/scan.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/launch.hpp"

namespace {

using namespace exphil;
using core::AssociativeOp;
using core::AssociativeProblem;
using core::Dtype;
using cuda::driver;

constexpr int kSets = 3;
constexpr std::size_t kFlushBytes = std::size_t{256} << 20;

struct Case {
  AssociativeOp op;
  Dtype dtype;
  std::int64_t outer, length, inner;
  bool compensated = false;
  core::Direction direction = core::Direction::forward;
};

AssociativeProblem problem_of(const Case& c) {
  AssociativeProblem p;
  p.op = c.op;
  p.dtype = c.dtype;
  p.outer = c.outer;
  p.length = c.length;
  p.inner = c.inner;
  p.compensated = c.compensated;
  p.direction = c.direction;
  return p;
}

std::string name_of(const Case& c) {
  return core::message(core::associative_op_name(c.op), " ", core::dtype_name(c.dtype), " ", c.outer, "x",
                       c.length, "x", c.inner, c.compensated ? " compensated" : "",
                       c.direction == core::Direction::both ? " both" : "");
}

// Device memory and events of one benchmark, on one stream.
class Device {
 public:
  explicit Device(cuda::Context& context)
      : context_(context), flush_(context.device_pool().allocate(kFlushBytes)), stream_(context) {
    check(driver().cuEventCreate(&begin_, CU_EVENT_DEFAULT));
    check(driver().cuEventCreate(&end_, CU_EVENT_DEFAULT));
  }
  cuda::Context& context() { return context_; }
  CUstream stream() { return stream_.handle(); }
  void check(CUresult result) { context_.check(result, "benchmark"); }

  // Median microseconds of `body`, which receives the run's number.
  double median_us(int runs, const std::function<void(int)>& before, const std::function<void(int)>& body) {
    std::vector<double> times;
    for (int run = -2; run < runs; ++run) {
      check(
          driver().cuMemsetD32Async(flush_.address(), static_cast<unsigned>(run), kFlushBytes / 4, stream()));
      before(run + 2);
      check(driver().cuEventRecord(begin_, stream()));
      body(run + 2);
      check(driver().cuEventRecord(end_, stream()));
      check(driver().cuEventSynchronize(end_));
      float milliseconds = 0;
      check(driver().cuEventElapsedTime(&milliseconds, begin_, end_));
      if (run >= 0) times.push_back(1000.0 * milliseconds);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  cuda::Context& context_;
  cuda::DeviceBuffer flush_;
  cuda::StreamLease stream_;
  CUevent begin_ = nullptr, end_ = nullptr;
};

// `bytes` of random elements; halves are written in pairs into a float's place.
std::vector<float> random_elements(Dtype dtype, std::size_t bytes, float low, float high, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(bytes / 4);
  for (float& value : values) {
    value = uniform(generator);
    if (dtype != Dtype::f16 && dtype != Dtype::bf16) continue;
    const std::uint16_t half = dtype == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
    value = core::f32_from_bits(half * 0x10001u);
  }
  return values;
}

// A case's tensors on the device, several sets of them.
struct Tensors {
  std::vector<cuda::DeviceBuffer> a, x, y;
  cuda::DeviceBuffer scratch;
};

Tensors upload(Device& device, const AssociativeProblem& p, const std::vector<float>& a,
               const std::vector<float>& x, std::size_t scratch_bytes) {
  Tensors tensors;
  cuda::DevicePool& pool = device.context().device_pool();
  for (int set = 0; set < kSets; ++set) {
    tensors.x.push_back(pool.allocate(p.bytes()));
    tensors.a.push_back(pool.allocate(p.op == AssociativeOp::linear_recurrence ? p.bytes() : 0));
    tensors.y.push_back(pool.allocate(p.bytes() * 2));
    device.check(driver().cuMemcpyHtoD(tensors.x.back().address(), x.data(), p.bytes()));
    if (p.op == AssociativeOp::linear_recurrence) {
      device.check(driver().cuMemcpyHtoD(tensors.a.back().address(), a.data(), p.bytes()));
    }
  }
  tensors.scratch = pool.allocate(scratch_bytes);
  return tensors;
}

struct Timing {
  double kernel_us = 0, error = 0;
  std::int64_t tile = 0;
};

// Largest error over the largest reference, of direction 0 or 1, on the host.
double error_of(const AssociativeProblem& p, bool reverse, const std::vector<float>& out) {
  const std::vector<double> expected = core::associative_reference(p, reverse);
  double worst = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(out[i] - expected[i]);
    worst = error <= worst ? worst : error;  // keeps NaN
    size = std::max(size, std::abs(expected[i]));
  }
  return worst / size;
}

Timing run_case(Device& device, const Case& c, const cuda::AssociativeTuning& tuning, int runs, bool check) {
  AssociativeProblem p = problem_of(c);
  const std::size_t floats = p.bytes() / 4;
  const std::vector<float> x = random_elements(c.dtype, p.bytes(), -1.0f, 1.0f, 1);
  const std::vector<float> a = random_elements(c.dtype, p.bytes(), 0.0f, 1.0f, 2);
  const cuda::AssociativePlan plan = cuda::plan_associative(p, tuning);
  Tensors t = upload(device, p, a, x, plan.scratch_bytes() + 256);
  const auto launch = [&](int run) {
    const std::size_t set = static_cast<std::size_t>(run % kSets);
    void* y = t.y[set].as<void>();
    void* second = static_cast<char*>(y) + p.bytes();
    const bool both = c.direction == core::Direction::both;
    cuda::launch_associative(device.context(), plan,
                             {t.a[set].as<void>(), t.x[set].as<void>(), nullptr, y, both ? second : y},
                             t.scratch.address(), device.stream());
  };
  const auto clear = [&](int) {
    cuda::clear_associative(device.context(), plan, t.scratch.address(), device.stream());
  };
  Timing timing;
  timing.tile = plan.arguments.tile;
  timing.kernel_us = device.median_us(runs, clear, launch);
  if (!check || p.dtype == Dtype::f16 || p.dtype == Dtype::bf16) return timing;
  p.x = x.data();
  p.a = a.data();
  device.check(driver().cuMemsetD8Async(t.y[0].address(), 0xff, p.bytes() * 2, device.stream()));
  clear(0);
  launch(0);
  std::vector<float> out(floats * 2);
  device.check(driver().cuStreamSynchronize(device.stream()));
  device.check(driver().cuMemcpyDtoH(out.data(), t.y[0].address(), p.bytes() * 2));
  timing.error = error_of(p, false, out);
  if (c.direction == core::Direction::both) {
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(floats));
    timing.error = std::max(timing.error, error_of(p, true, out));
  }
  return timing;
}

double tensors_moved(const Case& c) {
  const double reads = c.op == AssociativeOp::linear_recurrence ? 2 : 1;
  return c.direction == core::Direction::both ? reads + 2 : reads + 1;
}

// Bytes a second of a large device-to-device copy, read and written.
double copy_rate(Device& device, int runs) {
  const std::size_t bytes = std::size_t{1} << 30;
  cuda::DeviceBuffer from = device.context().device_pool().allocate(bytes);
  cuda::DeviceBuffer to = device.context().device_pool().allocate(bytes);
  const double us = device.median_us(
      runs, [](int) {},
      [&](int) {
        device.check(driver().cuMemcpyDtoDAsync(to.address(), from.address(), bytes, device.stream()));
      });
  return 2.0 * static_cast<double>(bytes) / (us * 1e-6);
}

double copy_us(Device& device, std::size_t bytes, int runs) {
  cuda::DeviceBuffer buffers[2 * kSets];
  for (cuda::DeviceBuffer& buffer : buffers) buffer = device.context().device_pool().allocate(bytes);
  return device.median_us(
      runs, [](int) {},
      [&](int run) {
        const int set = run % kSets;
        device.check(driver().cuMemcpyDtoDAsync(buffers[2 * set].address(), buffers[2 * set + 1].address(),
                                                bytes, device.stream()));
      });
}

std::vector<Case> recorded_cases() {
  std::vector<Case> cases;
  for (const std::int64_t length : {512, 1024, 2048, 4096, 8192}) {
    cases.push_back({AssociativeOp::cumsum, Dtype::f32, 4, length, 512});
  }
  for (const std::int64_t length : {512, 1024, 2048, 4096, 8192}) {
    cases.push_back({AssociativeOp::linear_recurrence, Dtype::f32, 4, length, 512});
  }
  for (const AssociativeOp op : {AssociativeOp::cumprod, AssociativeOp::cummax, AssociativeOp::cummin}) {
    cases.push_back({op, Dtype::f32, 4, 8192, 512});
  }
  cases.push_back({AssociativeOp::cumsum, Dtype::f32, 4, 8192, 512, true});
  cases.push_back({AssociativeOp::cumsum, Dtype::f32, 4, 8192, 512, false, core::Direction::both});
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::c64}) {
    cases.push_back({AssociativeOp::cumsum, dtype, 4, 8192, 512});
    cases.push_back({AssociativeOp::linear_recurrence, dtype, 4, 8192, 512});
  }
  cases.push_back({AssociativeOp::cumsum, Dtype::f32, 1, 1000000, 1});
  cases.push_back({AssociativeOp::cumsum, Dtype::f32, 1, 1000000, 1, true});
  cases.push_back({AssociativeOp::linear_recurrence, Dtype::f32, 1, 1000000, 1});
  cases.push_back({AssociativeOp::cumsum, Dtype::f32, 1, 100000000, 1});
  cases.push_back({AssociativeOp::cumsum, Dtype::f32, 4096, 4096, 1});
  cases.push_back({AssociativeOp::linear_recurrence, Dtype::f32, 4096, 4096, 1});
  cases.push_back({AssociativeOp::cumsum, Dtype::f32, 1, 1000000, 3});
  cases.push_back({AssociativeOp::cumsum, Dtype::f32, 4, 65536, 512});
  cases.push_back({AssociativeOp::linear_recurrence, Dtype::f32, 4, 65536, 512});
  cases.push_back({AssociativeOp::linear_recurrence, Dtype::f32, 32, 60, 512});
  return cases;
}

void print_table(Device& device, int runs, double rate) {
  std::printf("%-42s %6s %9s %9s %7s %9s %9s\n", "case", "tile", "us", "floor", "ratio", "copy us", "error");
  for (const Case& c : recorded_cases()) {
    const AssociativeProblem p = problem_of(c);
    const double bytes = static_cast<double>(p.bytes());
    const bool check = p.elements() <= 20000000;
    const Timing timing = run_case(device, c, {}, runs, check);
    const double floor_us = tensors_moved(c) * bytes / rate * 1e6;
    std::printf("%-42s %6lld %9.2f %9.2f %7.2f %9.2f %9.1e\n", name_of(c).c_str(),
                static_cast<long long>(timing.tile), timing.kernel_us, floor_us, timing.kernel_us / floor_us,
                copy_us(device, p.bytes(), runs), timing.error);
    std::fflush(stdout);
  }
}

// Microseconds of a complete forward, in the direction of the case.
double forward_us(Device& device, const Case& c, int runs) {
  const AssociativeProblem p = problem_of(c);
  const cuda::AssociativePlan plan = cuda::plan_associative(p);
  const std::vector<float> x = random_elements(c.dtype, p.bytes(), -1.0f, 1.0f, 1);
  const std::vector<float> a = random_elements(c.dtype, p.bytes(), 0.0f, 1.0f, 2);
  Tensors t = upload(device, p, a, x, plan.scratch_bytes() + 256);
  return device.median_us(
      runs, [](int) {},
      [&](int run) {
        const std::size_t set = static_cast<std::size_t>(run % kSets);
        void* y = t.y[set].as<void>();
        cuda::clear_associative(device.context(), plan, t.scratch.address(), device.stream());
        cuda::launch_associative(device.context(), plan,
                                 {t.a[set].as<void>(), t.x[set].as<void>(), nullptr, y, y},
                                 t.scratch.address(), device.stream());
      });
}

// The gradient of a recurrence from its results, which here are random.
double recurrence_gradient_us(Device& device, const Case& c, int runs) {
  core::RecurrenceGradProblem problem;
  problem.scan = problem_of(c);
  const AssociativeProblem& p = problem.scan;
  const cuda::RecurrenceGradPlan plan = cuda::plan_recurrence_grad(problem);
  cuda::prepare_recurrence_grad(device.context(), plan);
  const std::vector<float> x = random_elements(c.dtype, p.bytes(), -1.0f, 1.0f, 1);
  const std::vector<float> a = random_elements(c.dtype, p.bytes(), 0.0f, 1.0f, 2);
  Tensors t = upload(device, p, a, x, plan.scratch), h = upload(device, p, a, x, 256);
  return device.median_us(
      runs, [](int) {},
      [&](int run) {
        const std::size_t set = static_cast<std::size_t>(run % kSets);
        core::RecurrenceGradProblem one = problem;
        one.scan.a = t.a[set].as<void>(), one.h = h.x[set].as<void>(), one.dh = t.x[set].as<void>();
        char* out = t.y[set].as<char>();
        cuda::enqueue_recurrence_grad(device.context(), plan, one, {out, out + p.bytes(), nullptr},
                                      t.scratch.address(), device.stream());
      });
}

void print_gradients(Device& device, int runs) {
  std::printf("%-42s %9s %9s %9s\n", "case", "us", "gradient", "by bytes");
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::int64_t length : {512, 4096, 8192}) {
      for (const AssociativeOp op : {AssociativeOp::cumsum, AssociativeOp::linear_recurrence}) {
        Case c{op, dtype, 4, length, 512};
        const double forward = forward_us(device, c, runs);
        const bool is_sum = op == AssociativeOp::cumsum;
        Case back = c;
        back.direction = core::Direction::reverse;
        const double gradient =
            is_sum ? forward_us(device, back, runs) : recurrence_gradient_us(device, c, runs);
        const double tensors = is_sum ? 2.0 : 5.0;  // of the gradient: dy, dx; or a, h, dh, da, db
        std::printf("%-42s %9.2f %9.2f %9.2f\n", name_of(c).c_str(), forward, gradient,
                    gradient / tensors / (forward / tensors_moved(c)));
        std::fflush(stdout);
      }
    }
  }
}

void tune(Device& device, int runs) {
  const auto sweep = [&](const Case& c, const std::vector<int>& items, const std::vector<int>& warps) {
    for (const int i : items) {
      std::printf("%-34s items %2d  us by warps:", name_of(c).c_str(), i);
      for (const int w : warps) {
        const Timing timing = run_case(device, c, {i, w}, runs, false);
        std::printf("  %d: %8.2f", w, timing.kernel_us);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  };
  for (const std::int64_t length : {512, 4096, 8192}) {
    sweep({AssociativeOp::cumsum, Dtype::f32, 4, length, 512}, {8, 16}, {8, 16});
    sweep({AssociativeOp::linear_recurrence, Dtype::f32, 4, length, 512}, {8, 16}, {8, 16});
  }
  for (const std::int64_t length : {1000000, 30000000}) {
    sweep({AssociativeOp::cumsum, Dtype::f32, 1, length, 1}, {8, 16, 32}, {4, 8});
    sweep({AssociativeOp::linear_recurrence, Dtype::f32, 1, length, 1}, {8, 16}, {4, 8});
  }
  sweep({AssociativeOp::cumsum, Dtype::f32, 4096, 4096, 1}, {8, 16, 32}, {4, 8});
  sweep({AssociativeOp::linear_recurrence, Dtype::f32, 4096, 4096, 1}, {8, 16}, {4, 8});
  sweep({AssociativeOp::cumsum, Dtype::f32, 4, 65536, 512}, {8, 16}, {8, 16});
  sweep({AssociativeOp::linear_recurrence, Dtype::f32, 4, 65536, 512}, {8, 16}, {8, 16});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const bool tuning = mode == "tune", gradients = mode == "gradient";
  const char* count = argc > 1 + (tuning || gradients ? 1 : 0) ? argv[argc - 1] : nullptr;
  const int runs = count != nullptr ? std::max(1, std::atoi(count)) : 31;
  try {
    const std::shared_ptr<cuda::Context> context = cuda::Context::open(0);
    const cuda::ContextGuard guard(*context);
    Device device(*context);
    const double nothing = device.median_us(
        runs, [](int) {}, [](int) {});
    const double rate = copy_rate(device, runs);
    std::printf("%s; copy %.2f TB/s read and written; empty event pair %.2f us; medians of %d\n",
                context->properties().name.c_str(), rate / 1e12, nothing, runs);
    if (tuning) {
      tune(device, runs);
    } else if (gradients) {
      print_gradients(device, runs);
    } else {
      print_table(device, runs, rate);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
