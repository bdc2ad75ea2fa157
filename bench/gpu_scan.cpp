// The selective scan on the GPU: checks against the double oracle, then kernel medians with cold caches and
// the floor beside each, then whole calls on host tensors.
//   make build/bench/gpu_scan && EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_scan [check] [time] [call]
//   [narrow] [pick]
// No argument: check, time and call. `narrow` times the ways to walk, `pick` the cuts of scans
// parallel in time that standard input lists (see time_picked).
//
// A kernel is timed by events around its launch alone. Input sets rotate, outputs are poisoned, and a fill of
// 256 MB before each run empties the L2. An event pair around nothing is in the first row. Floors: one
// exponential for each state and step at 4.16e12/s, and each tensor moved once at 4.3e12 B/s, whichever is
// longer.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "core/parallel.hpp"
#include "core/scan_reference.hpp"
#include "cuda/kernel_compiler.hpp"
#include "cuda/scan_chunked.hpp"
#include "cuda/scan_launcher.hpp"
#include "cuda/scan_runner.hpp"
#include "cuda/scan_slice.hpp"
#include "cuda/scan_wide.hpp"
#include "cuda/stream.hpp"
#include "test/c_src/support/numbers.hpp"

namespace {

using namespace exphil;
using core::Dtype;
using core::ScanOutputs;
using core::ScanProblem;
using cuda::driver;
using formulas::Discretization;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kFlushBytes = std::size_t{256} << 20;
const char* const kRules[] = {"zoh", "foh", "bilinear", "highorder", "poly", "rk4"};

// ---- problems with random tensors on the host
// ----------------------------------------------------------------

class HostCase {
 public:
  explicit HostCase(const ScanProblem& kind, std::uint64_t seed, bool everything = false)
      : random_(seed), problem(kind) {
    ScanProblem& p = problem;
    const Dtype projection = p.complex ? Dtype::c64 : p.dtype;
    const std::int64_t rows = p.batch * p.seq;
    p.x = add(rows * p.dim, p.dtype, -1, 1);
    p.dt = add(rows * p.dim, p.dtype, 0.001f, 0.1f);
    p.a = matrix();
    p.b = add(p.b_layout.constant ? p.dim * p.state : rows * p.b_layout.groups * p.state, projection, -1, 1);
    p.c = add(p.c_layout.constant ? p.dim * p.state : rows * p.c_layout.groups * p.state, projection, -1, 1);
    if (!everything) return;
    p.d = floats(add(p.dim, Dtype::f32, -1, 1));
    p.z = add(rows * p.dim, p.dtype, -2, 2);
    p.dt_bias = floats(add(p.dim, Dtype::f32, 0, 0.2f));
    p.options.dt_softplus = true;
    if (p.options.direction != core::ScanDirection::both) {
      p.initial_state = floats(add(p.batch * p.dim * p.state, p.complex ? Dtype::c64 : Dtype::f32, -1, 1));
    }
  }

 private:
  static const float* floats(const void* data) { return static_cast<const float*>(data); }
  const void* add(std::int64_t count, Dtype dtype, float low, float high) {
    const std::int64_t numbers = count * (dtype == Dtype::c64 ? 2 : 1);
    const std::size_t size = dtype == Dtype::f16 || dtype == Dtype::bf16 ? 2 : 4;
    Bytes bytes(static_cast<std::size_t>(numbers) * size);
    for (std::int64_t i = 0; i < numbers; ++i) {
      const float value = random_.uniform(low, high);
      const std::uint16_t half = dtype == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
      std::memcpy(&bytes[static_cast<std::size_t>(i) * size],
                  size == 4 ? static_cast<const void*>(&value) : &half, size);
    }
    tensors_.push_back(std::move(bytes));
    return tensors_.back().data();
  }
  // Decaying A; a full one is diagonally dominant.
  const float* matrix() {
    const ScanProblem& p = problem;
    std::vector<float> a;
    for (std::int64_t d = 0; d < p.dim; ++d) {
      for (std::int64_t n = 0; n < p.state * (p.full_matrix ? p.state : 1); ++n) {
        const bool off_diagonal = p.full_matrix && n / p.state != n % p.state;
        a.push_back(off_diagonal ? random_.uniform(-0.3f, 0.3f) : random_.uniform(-4.0f, -0.01f));
        if (p.complex) a.push_back(random_.uniform(-30.0f, 30.0f));
      }
    }
    Bytes bytes(a.size() * 4);
    std::memcpy(bytes.data(), a.data(), bytes.size());
    tensors_.push_back(std::move(bytes));
    return reinterpret_cast<const float*>(tensors_.back().data());
  }

  test::Random random_;
  std::vector<Bytes> tensors_;

 public:
  ScanProblem problem;
};

ScanProblem kind_of(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state,
                    Discretization rule = Discretization::zoh, Dtype dtype = Dtype::f32) {
  ScanProblem p;
  p.batch = batch, p.seq = seq, p.dim = dim, p.state = state;
  p.dtype = dtype;
  p.options.discretization = rule;
  return p;
}

std::string name_of(const ScanProblem& p) {
  const char* algorithms[] = {"auto", "sequential", "chunked"};
  return core::message(p.batch, "x", p.seq, "x", p.dim, "x", p.state, " ", core::dtype_name(p.dtype),
                       p.complex ? " complex" : "", p.full_matrix ? " matrix" : "", " ",
                       kRules[static_cast<int>(p.options.discretization)], " ",
                       algorithms[static_cast<int>(p.options.algorithm)], " b",
                       p.b_layout.constant ? 0 : p.b_layout.groups, " c",
                       p.c_layout.constant ? 0 : p.c_layout.groups, " direction ",
                       static_cast<int>(p.options.direction), p.z != nullptr ? " everything" : "");
}

// ---- checks
// --------------------------------------------------------------------------------------------------

struct Tally {
  int runs = 0, failures = 0;
  double worst[3] = {};  // f32, f16, bf16: largest error of y
};

std::vector<float> widened(const Bytes& data, Dtype dtype) {
  std::vector<float> out(data.size() / core::dtype_size(dtype));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half = 0;
    if (dtype == Dtype::f32) {
      std::memcpy(&out[i], &data[4 * i], 4);
    } else {
      std::memcpy(&half, &data[2 * i], 2);
      out[i] = dtype == Dtype::f16 ? core::f16_to_f32(half) : core::bf16_to_f32(half);
    }
  }
  return out;
}

void check(cuda::Context& context, const ScanProblem& p, bool with_states, Tally* tally) {
  const std::size_t count = static_cast<std::size_t>(p.y_elements());
  const std::size_t floats = static_cast<std::size_t>(p.state_floats());
  const bool both = p.options.direction == core::ScanDirection::both;
  Bytes y(count * core::dtype_size(p.dtype), 0xff), y_reverse(both ? y.size() : 0, 0xff);
  std::vector<float> last(both ? 0 : floats, NAN),
      states(with_states ? floats * static_cast<std::size_t>(p.seq) : 0, NAN);
  std::vector<double> want_y(count), want_reverse(y_reverse.size() / core::dtype_size(p.dtype)),
      want_last(last.size()), want_states(states.size());
  const auto at = [](auto& v) { return v.empty() ? nullptr : v.data(); };
  double worst = 0;
  ++tally->runs;
  try {
    ScanOutputs out;
    out.y = y.data(), out.y_reverse = at(y_reverse), out.final_state = at(last), out.states = at(states);
    cuda::run_scan(context, p, out);
    core::scan_reference(p, {want_y.data(), at(want_reverse), at(want_last), at(want_states)});
    const double limit = p.dtype == Dtype::f32 ? 1e-5 : p.dtype == Dtype::f16 ? 2e-3 : 1.5e-2;
    const double y_error = std::max(test::relative_error(widened(y, p.dtype), want_y),
                                    test::relative_error(widened(y_reverse, p.dtype), want_reverse));
    const double state_error =
        std::max(test::relative_error(last, want_last), test::relative_error(states, want_states));
    double& class_worst = tally->worst[p.dtype == Dtype::f32 ? 0 : p.dtype == Dtype::f16 ? 1 : 2];
    class_worst = std::max(class_worst, y_error);
    worst = std::max(y_error / limit, state_error / 1e-5);
    if (worst <= 1) return;
    std::printf("FAIL %s: y %.2e states %.2e\n", name_of(p).c_str(), y_error, state_error);
  } catch (const core::Error& error) {
    std::printf("FAIL %s: %.300s\n", name_of(p).c_str(), error.what());
  }
  ++tally->failures;
}

void check_all(cuda::Context& context) {
  Tally tally;
  const auto run = [&](ScanProblem kind, bool everything, bool states = false) {
    for (const auto algorithm : {core::ScanAlgorithm::sequential, core::ScanAlgorithm::chunked}) {
      kind.options.algorithm = algorithm;
      const HostCase c(kind, static_cast<std::uint64_t>(1 + tally.runs), everything);
      check(context, c.problem, states, &tally);
    }
  };
  for (int rule = 0; rule < 6; ++rule) {
    const auto discretization = static_cast<Discretization>(rule);
    for (const std::int64_t seq : {0, 1, 2, 31, 60, 127, 1000}) {
      run(kind_of(3, seq, 65, 16, discretization), seq % 2 == 1, seq == 31);
    }
    ScanProblem complex = kind_of(2, 100, 31, 16, discretization);
    complex.complex = true;
    run(complex, true, true);
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
      run(kind_of(2, 200, 64, 16, discretization, dtype), true);
  }
  for (const std::int64_t state : {1, 2, 3, 7, 17, 31, 32, 33, 64, 128, 256}) {
    run(kind_of(2, 130, 33, state), true, true);
    ScanProblem complex = kind_of(2, 70, 3, state);
    complex.complex = true;
    run(complex, false);
  }
  for (const std::int64_t dim : {1, 3, 31, 64, 1031}) run(kind_of(2, 97, dim, 16), false);
  run(kind_of(1, 4097, 64, 16), true);
  run(kind_of(1, 70001, 3, 16), false);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const int b_groups : {0, 1, 2}) {
      for (const int c_groups : {0, 1, 3}) {
        for (const auto direction :
             {core::ScanDirection::forward, core::ScanDirection::reverse, core::ScanDirection::both}) {
          ScanProblem kind = kind_of(2, 75, 42, 16, Discretization::zoh, dtype);
          kind.b_layout = {b_groups == 0, std::max(1, b_groups)};
          kind.c_layout = {c_groups == 0, std::max(1, c_groups)};
          kind.options.direction = direction;
          run(kind, true);
        }
      }
    }
  }
  for (const std::int64_t state : {1, 5, 16, 32}) {
    ScanProblem matrix = kind_of(2, 40, 7, state, Discretization::bilinear);
    matrix.full_matrix = true;
    run(matrix, true, true);
  }
  std::printf(
      "checks: %d runs, %d failures; worst error of y: f32 %.1e (1e-5), f16 %.1e (2e-3), bf16 %.1e "
      "(1.5e-2)\n",
      tally.runs, tally.failures, tally.worst[0], tally.worst[1], tally.worst[2]);
}

// ---- kernel times
// --------------------------------------------------------------------------------------------

// Device tensors of one kind of problem: several sets where they are small, filled with random values.
class DeviceCase {
 public:
  DeviceCase(cuda::Context& context, const ScanProblem& kind) : context_(context), kind_(kind) {
    const cuda::ScanBytes bytes = cuda::scan_bytes(kind);
    const std::size_t set = 2 * bytes.x + bytes.a + bytes.b + bytes.c;
    const int sets = set > (std::size_t{64} << 20) ? 1 : 3;
    const std::size_t element = core::dtype_size(kind.dtype);
    for (int i = 0; i < sets; ++i) {
      ScanProblem p = kind;
      p.x = fill(bytes.x, element, -1, 1), p.dt = fill(bytes.x, element, 0.001f, 0.1f);
      p.a = static_cast<const float*>(fill(bytes.a, 4, -4, -0.01f));
      p.b = fill(bytes.b, element, -1, 1), p.c = fill(bytes.c, element, -1, 1);
      problems_.push_back(p);
    }
    buffers_.push_back(context.device_pool().allocate(bytes.x));
    out_.y = buffers_.back().as<void>();
    y_bytes_ = bytes.x;
  }
  const ScanProblem& problem(int run) const {
    return problems_[static_cast<std::size_t>(run) % problems_.size()];
  }
  const ScanOutputs& outputs() const { return out_; }
  std::size_t y_bytes() const { return y_bytes_; }
  CUdeviceptr y() const { return buffers_.back().address(); }

 private:
  const void* fill(std::size_t bytes, std::size_t element, float low, float high) {
    buffers_.push_back(context_.device_pool().allocate(bytes));
    const CUdeviceptr to = buffers_.back().address();
    const std::size_t block = std::min(bytes, std::size_t{4} << 20);
    Bytes values(block);
    for (std::size_t i = 0; i + element <= block; i += element) {
      const float value = random_.uniform(low, high);
      const std::uint16_t half =
          kind_.dtype == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
      std::memcpy(&values[i], element == 4 ? static_cast<const void*>(&value) : &half, element);
    }
    for (std::size_t at = 0; at < bytes; at += block) {
      context_.check(driver().cuMemcpyHtoD(to + at, values.data(), std::min(block, bytes - at)),
                     "cuMemcpyHtoD");
    }
    return reinterpret_cast<const void*>(to);
  }

  cuda::Context& context_;
  ScanProblem kind_;
  test::Random random_{7};
  std::vector<cuda::DeviceBuffer> buffers_;
  std::vector<ScanProblem> problems_;
  ScanOutputs out_;
  std::size_t y_bytes_ = 0;
};

class Timer {
 public:
  explicit Timer(cuda::Context& context)
      : context_(context),
        flush_(context.device_pool().allocate(kFlushBytes)),
        stream_(context),
        begin_(context, cuda::Event::Timing::on),
        end_(context, cuda::Event::Timing::on) {}

  double median_us(int runs, const std::function<void(int, CUstream)>& body, CUdeviceptr poison,
                   std::size_t bytes) {
    std::vector<double> times;
    const CUstream stream = stream_.handle();
    for (int run = -2; run < runs; ++run) {
      context_.check(driver().cuMemsetD32Async(poison, 0x7fc00000u, bytes / 4, stream), "cuMemsetD32Async");
      context_.check(
          driver().cuMemsetD32Async(flush_.address(), static_cast<unsigned>(run), kFlushBytes / 4, stream),
          "cuMemsetD32Async");
      begin_.record(stream);
      body(run + 2, stream);
      end_.record(stream);
      end_.synchronize();
      if (run >= 0) times.push_back(1e3 * static_cast<double>(end_.milliseconds_since(begin_)));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  double nothing_us() {
    return median_us(
        51, [](int, CUstream) {}, flush_.address(), 4);
  }

 private:
  cuda::Context& context_;
  cuda::DeviceBuffer flush_;
  cuda::StreamLease stream_;
  cuda::Event begin_, end_;
};

double floor_us(const ScanProblem& p) {
  const cuda::ScanBytes bytes = cuda::scan_bytes(p);
  const double moved = static_cast<double>(3 * bytes.x + bytes.b + bytes.c + bytes.a);
  return std::max(static_cast<double>(p.y_elements() * p.state) / 4.16e6, moved / 4.3e6);
}

struct Shape {
  std::int64_t batch, seq, dim, state;
  double must, aim;
};
const Shape kShapes[] = {{32, 60, 512, 16, 16, 8},
                         {1, 1024, 256, 16, 12, 6},
                         {8, 1024, 512, 16, 50, 26},
                         {8, 2048, 1536, 16, 220, 125},
                         {1, 65536, 1536, 16, 1000, 560}};

int runs_of(const Shape& s) {
  return s.seq > 10000 ? 11 : 51;
}

void time_case(cuda::Context& context, Timer& timer, const Shape& s, Discretization rule, Dtype dtype,
               const cuda::ScanTuning& tuning = {},
               core::ScanAlgorithm algorithm = core::ScanAlgorithm::automatic, bool complex = false) {
  ScanProblem kind = kind_of(s.batch, s.seq, s.dim, s.state, rule, dtype);
  kind.options.algorithm = algorithm;
  kind.complex = complex;
  const DeviceCase c(context, kind);
  const bool chunked = !cuda::scans_sequentially(kind);
  const bool wide = !chunked && tuning.wide != 0 && cuda::scans_wide(c.problem(0), c.outputs(), true);
  const cuda::ScanPlan plan = chunked ? cuda::plan_chunked(kind, context.properties(), tuning)
                              : wide  ? cuda::plan_wide(kind, context.properties(), tuning)
                                      : cuda::plan_scan(kind, context.properties(), tuning);
  const double us = timer.median_us(
      runs_of(s),
      [&](int run, CUstream stream) {
        cuda::launch_scan(context, stream, c.problem(run), c.outputs(), tuning);
      },
      c.y(), c.y_bytes());
  std::printf(
      "%6lldx%5lldx%4lldx%lld %-4s %-9s %-10s %-4s steps %2d chunks %2d together %d slice %d split %d groups "
      "%d times "
      "%2d "
      "blocks "
      "%d %9.2f us"
      "  floor %6.1f must %6.1f aim %6.1f\n",
      static_cast<long long>(s.batch), static_cast<long long>(s.seq), static_cast<long long>(s.dim),
      static_cast<long long>(s.state), core::dtype_name(dtype), kRules[static_cast<int>(rule)],
      plan.sequential ? "sequential" : "chunked", wide ? "wide" : "", plan.steps, plan.chunks, plan.together,
      plan.slice, plan.split, plan.groups, plan.times, plan.min_blocks, us, floor_us(kind), s.must, s.aim);
  std::fflush(stdout);
}

void time_all(cuda::Context& context, Timer& timer) {
  std::printf("event pair around nothing: %.2f us\n", timer.nothing_us());
  for (const Shape& s : kShapes) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      time_case(context, timer, s, Discretization::zoh, dtype);
    }
  }
  for (const int i : {0, 2}) {
    for (int rule = 1; rule < 6; ++rule)
      time_case(context, timer, kShapes[i], static_cast<Discretization>(rule), Dtype::f32);
  }
  for (const int i : {1, 2, 3}) {
    time_case(context, timer, kShapes[i], Discretization::zoh, Dtype::f32, {},
              core::ScanAlgorithm::sequential);
  }
  time_case(context, timer, kShapes[0], Discretization::zoh, Dtype::f32, {}, core::ScanAlgorithm::chunked);
}

// Cuts from standard input, a line each: shape (1 to 5), dtype (0 to 2), rule, then steps, chunks, width,
// groups, times, blocks and split of the tuning. Kernels are compiled on every core before.
void time_picked(cuda::Context& context, Timer& timer) {
  struct Pick {
    int shape, dtype, rule;
    cuda::ScanTuning tuning;
  };
  std::vector<Pick> picks;
  Pick k;
  while (std::scanf("%d %d %d %d %d %d %d %d %d %d %d", &k.shape, &k.dtype, &k.rule, &k.tuning.steps,
                    &k.tuning.chunks, &k.tuning.together, &k.tuning.slice, &k.tuning.groups, &k.tuning.times,
                    &k.tuning.min_blocks, &k.tuning.split) == 11) {
    picks.push_back(k);
  }
  const Dtype dtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};
  std::vector<std::thread> threads;
  std::atomic<std::size_t> next{0};
  for (int i = 0; i < core::threads(); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at; (at = next++) < picks.size();) {
        const Pick& pick = picks[at];
        const Shape& s = kShapes[pick.shape - 1];
        ScanProblem kind = kind_of(s.batch, s.seq, s.dim, s.state,
                                   static_cast<Discretization>(pick.rule % 10), dtypes[pick.dtype]);
        kind.options.algorithm = core::ScanAlgorithm::chunked;
        kind.complex = pick.rule >= 10;
        try {
          cuda::cached_image(cuda::scan_launches(context.properties(), kind, {}, pick.tuning).front().spec,
                             context.properties().architecture());
        } catch (const core::Error& error) {
          std::printf("%.300s\n", error.what());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Pick& pick : picks) {
    try {
      time_case(context, timer, kShapes[pick.shape - 1], static_cast<Discretization>(pick.rule % 10),
                dtypes[pick.dtype], pick.tuning, core::ScanAlgorithm::chunked, pick.rule >= 10);
    } catch (const core::Error& error) {
      std::printf("%.200s\n", error.what());
    }
  }
}

// ---- whole calls
// ---------------------------------------------------------------------------------------------

void time_calls(cuda::Context& context) {
  for (const Shape& s : {kShapes[0], kShapes[2]}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const HostCase c(kind_of(s.batch, s.seq, s.dim, s.state, Discretization::zoh, dtype), 3);
      const std::size_t bytes = cuda::scan_bytes(c.problem).x;
      const cuda::PinnedBuffer pinned = context.pinned_pool().allocate(bytes);
      Bytes pageable(bytes);
      for (void* to : {pinned.data(), static_cast<void*>(pageable.data())}) {
        std::vector<double> times;
        for (int run = -5; run < 101; ++run) {
          ScanOutputs out;
          out.y = to;
          const auto begin = std::chrono::steady_clock::now();
          cuda::run_scan(context, c.problem, out);
          const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
          if (run >= 0) times.push_back(took.count());
        }
        std::sort(times.begin(), times.end());
        std::printf(
            "call %lldx%lldx%lldx%lld %s into %s memory: p50 %.0f us, p90 %.0f, p99 %.0f; PCIe floor %.0f\n",
            static_cast<long long>(s.batch), static_cast<long long>(s.seq), static_cast<long long>(s.dim),
            static_cast<long long>(s.state), core::dtype_name(dtype),
            to == pinned.data() ? "pinned" : "pageable", times[50], times[90], times[99],
            static_cast<double>(3 * bytes) / 53e3);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) words = {"check", "time", "call"};
  const auto asked = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  try {
    const std::shared_ptr<cuda::Context> context = cuda::Context::open(0);
    const cuda::ContextGuard guard(*context);
    std::printf("%s, %d multiprocessors, %d threads\n", context->properties().name.c_str(),
                context->properties().multiprocessors, core::threads());
    if (asked("check")) check_all(*context);
    Timer timer(*context);
    if (asked("time")) time_all(*context, timer);
    if (asked("call")) time_calls(*context);
    if (asked("narrow")) {  // walks: the general kernel, and the wide one in blocks of 1 to 8 warps
      cuda::ScanTuning tuning;
      for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        tuning.wide = 0;
        time_case(*context, timer, kShapes[0], Discretization::zoh, dtype, tuning);
        tuning.wide = -1;
        for (tuning.groups = 1; tuning.groups <= 8; tuning.groups *= 2) {
          time_case(*context, timer, kShapes[0], Discretization::zoh, dtype, tuning);
        }
        tuning.groups = 0;
      }
    }
    if (asked("pick")) time_picked(*context, timer);
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
