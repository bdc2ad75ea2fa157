// Times the host scan, and its gradient, against the plain scalar loop compiled with the same flags, in one
// run. Prints one row for each case: milliseconds of wall time with all threads (minimum and median), of
// processor time with one thread and of the loop (medians), and the ratio of the last two, which other load
// on the machine hardly affects; then the processor time of the gradient with one thread, and its ratio to
// the scan's.
//   make bench && build/bench/host_scan [runs]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/half.hpp"
#include "core/scan/reference.hpp"
#include "core/work/parallel.hpp"
#include "host/scan/gradient.hpp"
#include "host/scan/scan.hpp"
#include "host/simd/simd.hpp"

namespace {

using namespace exphil;
using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  std::int64_t batch, seq, dim, state;
  formulas::Discretization discretization = formulas::Discretization::zoh;
  core::Dtype dtype = core::Dtype::f32;
  bool all_options = false;  // d, z, dt_bias, softplus, final state
  bool ladder = false;       // A is -1, -2, ..., not 0.9 times that
};

struct Times {
  std::vector<double> wall, processor;  // milliseconds, sorted
  double median_wall() const { return wall[wall.size() / 2]; }
  double median_processor() const { return processor[processor.size() / 2]; }
};

Times measure(int runs, const std::function<void()>& body) {
  Times times;
  body();
  for (int run = 0; run < runs; ++run) {
    const auto begin = Clock::now();
    const std::clock_t ticks = std::clock();
    body();
    times.processor.push_back(1000.0 * static_cast<double>(std::clock() - ticks) / CLOCKS_PER_SEC);
    times.wall.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::sort(times.wall.begin(), times.wall.end());
  std::sort(times.processor.begin(), times.processor.end());
  return times;
}

// Values in the range of a trained Mamba layer, stored as `dtype`.
struct Tensor {
  std::vector<float> f32;
  std::vector<std::uint16_t> half;
  const void* data = nullptr;

  Tensor(std::int64_t count, float low, float high, core::Dtype dtype, std::mt19937* random) {
    std::uniform_real_distribution<float> value(low, high);
    f32.resize(static_cast<std::size_t>(count));
    for (float& v : f32) v = value(*random);
    data = f32.data();
    if (dtype == core::Dtype::f32) return;
    for (float v : f32)
      half.push_back(dtype == core::Dtype::f16 ? core::f32_to_f16(v) : core::f32_to_bf16(v));
    data = half.data();
  }
};

// Processor time of the gradient of every operand. dy is x.
double measure_gradient(const core::ScanCall& scan, int runs) {
  const core::ScanShape& shape = scan.shape;
  const std::size_t stream = static_cast<std::size_t>(shape.y_elements());
  const std::size_t rows = static_cast<std::size_t>(shape.batch * shape.seq * shape.state);
  std::vector<float> dx(stream), ddt(stream), dz(stream), db(rows), dc(rows);
  std::vector<float> da(static_cast<std::size_t>(shape.dim * shape.state)), dd(da.size()), d_bias(da.size());
  core::ScanGradOutputs outputs;
  outputs.x = dx.data(), outputs.dt = ddt.data(), outputs.b = db.data(), outputs.c = dc.data();
  outputs.a = da.data();
  if (shape.has(core::ScanOperand::z))
    outputs.z = dz.data(), outputs.d = dd.data(), outputs.dt_bias = d_bias.data();
  core::ScanGradProblem problem;
  problem.scan = scan, problem.dy = scan.operands[core::ScanOperand::x];
  return measure(runs, [&] { host::selective_scan_grad(problem, outputs); }).median_processor();
}

void run(const Case& c, int runs) {
  std::mt19937 random(7);
  const std::int64_t rows = c.batch * c.seq;
  const Tensor x(rows * c.dim, -1, 1, c.dtype, &random), dt(rows * c.dim, 0.001f, 0.1f, c.dtype, &random);
  const Tensor z(rows * c.dim, -2, 2, c.dtype, &random), b(rows * c.state, -1, 1, c.dtype, &random);
  const Tensor cc(rows * c.state, -1, 1, c.dtype, &random), d(c.dim, -1, 1, core::Dtype::f32, &random);
  std::vector<float> a(static_cast<std::size_t>(c.dim * c.state));
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = (c.ladder ? -1.0f : -0.9f) * static_cast<float>(1 + i % c.state);
  }
  using Id = core::ScanOperand;
  core::ScanCall call;
  core::ScanShape& shape = call.shape;
  shape.batch = c.batch, shape.seq = c.seq, shape.dim = c.dim, shape.state = c.state;
  shape.dtype = c.dtype;
  shape.options.discretization = c.discretization;
  call.set(Id::x, x.data), call.set(Id::dt, dt.data), call.set(Id::a, a.data());
  call.set(Id::b, b.data), call.set(Id::c, cc.data);
  std::vector<float> y(static_cast<std::size_t>(rows * c.dim)),
      last(static_cast<std::size_t>(c.batch) * a.size());
  call.set(Id::y, y.data());
  if (c.all_options) {
    call.set(Id::d, d.f32.data()), call.set(Id::z, z.data), call.set(Id::dt_bias, d.f32.data());
    shape.options.dt_softplus = true;
    call.set(Id::final_state, last.data());
  }
  const Times fast = measure(runs, [&] { host::selective_scan(call); });
  core::set_threads(1);
  const double single = measure(runs, [&] { host::selective_scan(call); }).median_processor();
  const double gradient = measure_gradient(call, std::max(3, runs / 3));
  core::set_threads(0);
  const double plain =
      measure(std::max(3, runs / 10), [&] { core::scan_reference_f32(call); }).median_processor();
  std::printf("%-26s %8.3f %8.3f %10.3f %10.2f %7.1fx %10.3f %7.2fx\n", c.name, fast.wall[0],
              fast.median_wall(), single, plain, plain / single, gradient, gradient / single);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 30;
  using D = formulas::Discretization;
  using T = core::Dtype;
  std::printf("target %s, %d threads, %d runs\n", host::simd_target(), core::threads(), runs);
  std::printf("%-26s %8s %8s %10s %10s %8s %10s %8s\n", "case", "least", "median", "1 thread", "plain loop",
              "ratio", "gradient", "of scan");
  const Case cases[] = {
      {"32x60x512x16 f32", 32, 60, 512, 16},
      {"32x60x512x16 f32, A -1, -2", 32, 60, 512, 16, D::zoh, T::f32, false, true},
      {"32x60x512x16 f32 options", 32, 60, 512, 16, D::zoh, T::f32, true},
      {"32x60x512x16 f16", 32, 60, 512, 16, D::zoh, T::f16},
      {"32x60x512x16 bf16", 32, 60, 512, 16, D::zoh, T::bf16},
      {"32x60x512x16 foh", 32, 60, 512, 16, D::foh},
      {"32x60x512x16 bilinear", 32, 60, 512, 16, D::bilinear},
      {"32x60x512x16 highorder", 32, 60, 512, 16, D::highorder},
      {"32x60x512x16 poly", 32, 60, 512, 16, D::poly},
      {"32x60x512x16 rk4", 32, 60, 512, 16, D::rk4},
      {"1x1024x256x16 f32", 1, 1024, 256, 16},
      {"8x1024x512x16 f32", 8, 1024, 512, 16},
      {"1x1x512x16 f32", 1, 1, 512, 16},
  };
  for (const Case& c : cases) run(c, runs);
  return 0;
}
