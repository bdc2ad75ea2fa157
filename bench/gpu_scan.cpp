// The selective scan on the GPU: checks against the double oracle, then kernel medians with cold caches next
// to the floor, then complete calls on host tensors.
//   make build/bench/gpu_scan && EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_scan [check] [time] [call]
//   [check_walks] [narrow] [ladder] [pick]
// No argument: check, time and call. `check_walks` checks only sequential scans. `narrow` times the
// sequential kernels, `ladder` scans whose A is -1, -2, ... beside others, `pick` the plans of scans parallel
// in time that standard input lists (see time_picked).
//
// A kernel is timed by events around its launch. Input sets alternate, outputs are poisoned, and a fill of
// 256 MB before each run empties the L2. The first row gives an event pair around nothing. Floors: one
// exponential for each state and step at 4.16e12/s, or each tensor moved once at 4.3e12 B/s, whichever is
// longer.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/gpu_scan_cases.hpp"
#include "bench/gpu_scan_checks.hpp"
#include "core/error.hpp"
#include "core/work/parallel.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/jit/kernel_compiler.hpp"
#include "cuda/scan/forward.hpp"
#include "cuda/scan/runner.hpp"

namespace {

using namespace exphil;
using namespace exphil::bench;

double floor_us(const ScanShape& p) {
  double moved = 0;
  for (const Operand& operand : core::describe_operands(p)) moved += static_cast<double>(operand.bytes());
  return std::max(static_cast<double>(p.y_elements() * p.state) / 4.16e6, moved / 4.3e6);
}

struct Shape {
  std::int64_t batch, seq, dim, state;
  double must, aim;
};
const Shape kShapes[] = {{32, 60, 512, 16, 16, 9},
                         {1, 1024, 256, 16, 12, 8},
                         {8, 1024, 512, 16, 50, 29},
                         {8, 2048, 1536, 16, 220, 155},
                         {1, 65536, 1536, 16, 1000, 600}};

int runs_of(const Shape& s) {
  return s.seq > 10000 ? 11 : 51;
}

// Difference of y from the sequential scan's, for the problem's first input set.
double distance_from_walk(cuda::Context& context, const DeviceCase& c, const cuda::ScanTuning* tuning) {
  const auto y_of = [&](const ScanShape& p, const cuda::ScanTuning* how) {
    cuda::StreamLease stream(context);
    context.check(driver().cuMemsetD32Async(c.y(), 0x7fc00000u, c.y_bytes() / 4, stream.handle()),
                  "cuMemsetD32Async");
    cuda::enqueue_scan(context, stream.handle(), p, c.operands(0), how);
    stream.synchronize();
    Bytes bytes(c.y_bytes());
    context.check(driver().cuMemcpyDtoH(bytes.data(), c.y(), bytes.size()), "cuMemcpyDtoH");
    return widened(bytes, p.dtype);
  };
  ScanShape walked = c.shape();
  walked.options.algorithm = core::ScanAlgorithm::sequential;
  const std::vector<float> walk = y_of(walked, nullptr);
  return test::relative_error(y_of(c.shape(), tuning), std::vector<double>(walk.begin(), walk.end()));
}

void time_case(cuda::Context& context, Timer& timer, const Shape& s, Discretization rule, Dtype dtype,
               const cuda::ScanTuning* tuning = nullptr,
               core::ScanAlgorithm algorithm = core::ScanAlgorithm::automatic, bool complex = false,
               bool compare = false, bool ladder = false) {
  ScanShape kind = kind_of(s.batch, s.seq, s.dim, s.state, rule, dtype);
  kind.options.algorithm = algorithm;
  kind.complex = complex;
  const DeviceCase c(context, kind, ladder);
  const double us = timer.median_us(
      runs_of(s),
      [&](int run, CUstream stream) { cuda::enqueue_scan(context, stream, kind, c.operands(run), tuning); },
      c.y(), c.y_bytes());
  const cuda::KernelSpec spec = cuda::plan_scan(kind, context.properties(), tuning).spec;
  std::string cut;
  for (const std::string& define : spec.defines) {
    for (const char* name : {"LANES=", "STEPS=", "CHUNKS=", "STATES_PER_PASS=", "CHANNEL_WARPS=",
                             "TIME_WARPS=", "CLUSTER_BLOCKS=", "STAGES=", "MIN_BLOCKS="}) {
      if (define.rfind(name, 0) == 0) cut += " " + define;
    }
  }
  std::printf("%lldx%lldx%lldx%lld %s %s %9.2f us, floor %.1f must %.0f aim %.0f, %s%s\n",
              static_cast<long long>(s.batch), static_cast<long long>(s.seq), static_cast<long long>(s.dim),
              static_cast<long long>(s.state), core::dtype_name(dtype), kRules[static_cast<int>(rule)], us,
              floor_us(kind), s.must, s.aim, spec.entry.c_str(), cut.c_str());
  if (compare) std::printf("    %.1e from the sequential scan\n", distance_from_walk(context, c, tuning));
  std::fflush(stdout);
}

void time_all(cuda::Context& context, Timer& timer) {
  std::printf("event pair around nothing: %.2f us\n", timer.nothing_us());
  for (const Shape& s : kShapes) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      time_case(context, timer, s, Discretization::zoh, dtype);
    }
  }
  for (const int i : {0, 1, 2, 3}) {
    for (int rule = 1; rule < 6; ++rule)
      time_case(context, timer, kShapes[i], static_cast<Discretization>(rule), Dtype::f32);
  }
  for (const int i : {1, 2, 3}) {
    time_case(context, timer, kShapes[i], Discretization::zoh, Dtype::f32, nullptr,
              core::ScanAlgorithm::sequential);
  }
  time_case(context, timer, kShapes[0], Discretization::zoh, Dtype::f32, nullptr,
            core::ScanAlgorithm::chunked);
}

// Plans from standard input, one per line: shape (1 to 5), dtype (0 to 2), rule, then the fields of
// ChunkedTuning in order, then 1 for the short kernel, which uses channel_warps and min_blocks, or 0 for the
// chunked one. Compiles the kernels on every core first.
void time_picked(cuda::Context& context, Timer& timer) {
  struct Pick {
    int shape, dtype, rule, is_short;
    cuda::ChunkedTuning chunked;
    cuda::ShortTuning shorter;
    const cuda::ScanTuning* tuning() const {
      return is_short != 0 ? static_cast<const cuda::ScanTuning*>(&shorter) : &chunked;
    }
  };
  std::vector<Pick> picks;
  Pick k;
  cuda::ChunkedTuning& c = k.chunked;
  while (std::scanf("%d %d %d %d %d %d %d %d %d %d %d", &k.shape, &k.dtype, &k.rule, &c.steps, &c.chunks,
                    &c.states_per_pass, &c.channel_warps, &c.time_warps, &c.cluster_blocks, &c.min_blocks,
                    &k.is_short) == 11) {
    k.shorter.channel_warps = c.channel_warps, k.shorter.min_blocks = c.min_blocks;
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
        ScanShape kind = kind_of(s.batch, s.seq, s.dim, s.state, static_cast<Discretization>(pick.rule % 10),
                                 dtypes[pick.dtype]);
        kind.options.algorithm = core::ScanAlgorithm::chunked;
        kind.complex = pick.rule >= 10;
        try {
          cuda::cached_image(cuda::plan_scan(kind, context.properties(), pick.tuning()).spec,
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
                dtypes[pick.dtype], pick.tuning(), core::ScanAlgorithm::chunked, pick.rule >= 10, true);
    } catch (const core::Error& error) {
      std::printf("%.200s\n", error.what());
    }
  }
}

void time_calls(cuda::Context& context) {
  for (const Shape& s : {kShapes[0], kShapes[2]}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      HostCase c(kind_of(s.batch, s.seq, s.dim, s.state, Discretization::zoh, dtype), 3);
      const std::size_t bytes = bytes_of(c.call.shape, ScanOperand::x);
      const cuda::PinnedBuffer pinned = context.pinned_pool().allocate(bytes);
      Bytes pageable(bytes);
      for (void* to : {pinned.data(), static_cast<void*>(pageable.data())}) {
        std::vector<double> times;
        for (int run = -5; run < 101; ++run) {
          c.call.set(ScanOperand::y, to);
          const auto begin = std::chrono::steady_clock::now();
          cuda::run_scan(context, c.call);
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
    if (asked("check_walks")) check_all(*context, true);
    Timer timer(*context);
    if (asked("time")) time_all(*context, timer);
    if (asked("call")) time_calls(*context);
    if (asked("ladder")) {
      for (const Shape& s : kShapes) {
        for (const bool ladder : {false, true}) {
          std::printf(ladder ? "A -1, -2, ...: " : "A any:         ");
          time_case(*context, timer, s, Discretization::zoh, Dtype::f32, nullptr,
                    core::ScanAlgorithm::automatic, false, true, ladder);
        }
      }
    }
    if (asked("narrow")) {  // sequential: the general kernel, and the wide one in blocks of 1 to 8 warps
      const cuda::GeneralTuning general;
      cuda::WideTuning wide;
      for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        time_case(*context, timer, kShapes[0], Discretization::zoh, dtype, &general);
        for (wide.warps = 1; wide.warps <= 8; wide.warps *= 2) {
          time_case(*context, timer, kShapes[0], Discretization::zoh, dtype, &wide);
        }
      }
    }
    if (asked("pick")) time_picked(*context, timer);
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
