// The gradient of the selective scan on the GPU: medians of all its stages together with cold caches, the
// floor and the extra memory beside each. Its checks are the tests of tag [gpu][scan_grad].
//   make build/bench/gpu_scan_gradient && EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_scan_gradient [pick
//   [TYPE]]
// `pick` times cuts that standard input lists instead, of TYPE (f32, f16 or bf16; f32 where left out), one to
// a line:
//   SHAPE(0-4) CHANNELS SEGMENT WARPS TILES STEPS MIN_BLOCKS PER_LANE      (0: the plan's own choice)
//
// Timed by events around all launches of one gradient. Input sets rotate, the gradient of x is poisoned, and
// a fill of 256 MB before each run empties the L2. Floors: one exponential for each state and step
// at 4.16e12/s, and each tensor moved once at 4.3e12 B/s, whichever is longer.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/gpu_scan_cases.hpp"
#include "core/error.hpp"
#include "cuda/scan/backward.hpp"

namespace {

using namespace exphil;
using namespace exphil::bench;

struct Shape {
  std::int64_t batch, seq, dim, state;
  double must, aim;
};
const Shape kShapes[] = {{32, 60, 512, 16, 68, 30},
                         {1, 1024, 256, 16, 20, 15},
                         {8, 1024, 512, 16, 110, 90},
                         {8, 2048, 1536, 16, 600, 480},
                         {1, 65536, 1536, 16, 2600, 2100}};

ScanShape gradient_kind(const Shape& s, Dtype dtype, bool everything) {
  ScanShape p = kind_of(s.batch, s.seq, s.dim, s.state, Discretization::zoh, dtype);
  const auto add = [&](ScanOperand operand, ScanOperand gradient) { p.add(operand), p.add(gradient); };
  p.remove(ScanOperand::y);
  p.add(ScanOperand::dy);
  add(ScanOperand::x, ScanOperand::grad_x), add(ScanOperand::dt, ScanOperand::grad_dt);
  add(ScanOperand::a, ScanOperand::grad_a), add(ScanOperand::b, ScanOperand::grad_b);
  add(ScanOperand::c, ScanOperand::grad_c);
  if (everything) {
    add(ScanOperand::d, ScanOperand::grad_d), add(ScanOperand::z, ScanOperand::grad_z);
    add(ScanOperand::dt_bias, ScanOperand::grad_dt_bias);
    p.options.dt_softplus = true;
  }
  return p;
}

double floor_us(const ScanShape& p) {
  double moved = 0;
  for (const Operand& operand : core::describe_operands(p)) moved += static_cast<double>(operand.bytes());
  return std::max(static_cast<double>(p.y_elements() * p.state) / 4.16e6, moved / 4.3e6);
}

// Results and scratch of a gradient in device memory, beside the inputs of a DeviceCase.
class GradientCase {
 public:
  GradientCase(cuda::Context& context, const ScanShape& kind, const cuda::BackwardTuning& tuning)
      : inputs_(context, kind),
        scratch_bytes_(cuda::scan_gradient_scratch(kind, context.properties(), tuning)),
        scratch_(context.device_pool().allocate(scratch_bytes_)) {
    const auto table = core::describe_operands(kind);
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      if (!table[id].present || table[id].flow != core::Flow::out) continue;
      results_.push_back(context.device_pool().allocate(table[id].bytes()));
      results_at_[id] = results_.back().address();
    }
  }

  core::ScanOperands<CUdeviceptr> operands(int run) const {
    core::ScanOperands<CUdeviceptr> all = inputs_.operands(run);
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      if (results_at_[id] != 0) all[id] = results_at_[id];
    }
    return all;
  }
  CUdeviceptr dx() const { return results_at_[ScanOperand::grad_x]; }
  CUdeviceptr scratch() const { return scratch_.address(); }
  std::size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  DeviceCase inputs_;
  std::size_t scratch_bytes_;
  cuda::DeviceBuffer scratch_;
  std::vector<cuda::DeviceBuffer> results_;
  core::ScanOperands<CUdeviceptr> results_at_;
};

void time_case(cuda::Context& context, Timer& timer, const Shape& s, Dtype dtype, bool everything,
               const cuda::BackwardTuning& tuning = {}) {
  const ScanShape kind = gradient_kind(s, dtype, everything);
  const GradientCase c(context, kind, tuning);
  const double us = timer.median_us(
      s.seq > 10000 ? 11 : 51,
      [&](int run, CUstream stream) {
        cuda::enqueue_scan_gradient(context, stream, kind, c.operands(run), c.scratch(), tuning);
      },
      c.dx(), bytes_of(kind, ScanOperand::grad_x));
  const cuda::BackwardPlan plan = cuda::plan_scan_gradient(kind, context.properties(), tuning);
  std::string cut;
  for (const std::string& define : plan.stages.back().spec.defines) {
    for (const char* name :
         {"CHANNELS=", "SEGMENT=", "WARPS=", "CHANNEL_TILES=", "STEPS=", "MIN_BLOCKS=", "PER_LANE="}) {
      if (define.rfind(name, 0) == 0) cut += " " + define;
    }
  }
  const double states = static_cast<double>(kind.y_elements() * kind.state) * 4;
  std::printf(
      "%lldx%lldx%lldx%lld %s%s %9.2f us, floor %.1f must %.0f aim %.0f, %.1f MB extra (1/%.1f of the "
      "states),%s\n",
      static_cast<long long>(s.batch), static_cast<long long>(s.seq), static_cast<long long>(s.dim),
      static_cast<long long>(s.state), core::dtype_name(dtype), everything ? " everything" : "", us,
      floor_us(kind), s.must, s.aim, static_cast<double>(c.scratch_bytes()) / 1e6,
      states / static_cast<double>(c.scratch_bytes()), cut.c_str());
  std::fflush(stdout);
}

void time_all(cuda::Context& context, Timer& timer) {
  std::printf("event pair around nothing: %.2f us\n", timer.nothing_us());
  for (const Shape& s : kShapes) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
      time_case(context, timer, s, dtype, false);
    time_case(context, timer, s, Dtype::f32, true);
  }
}

void time_picked(cuda::Context& context, Timer& timer, const std::string& type) {
  const Dtype dtype = type == "f16" ? Dtype::f16 : type == "bf16" ? Dtype::bf16 : Dtype::f32;
  int shape = 0;
  cuda::BackwardTuning tuning;
  while (std::scanf("%d %d %d %d %d %d %d %d", &shape, &tuning.channels, &tuning.segment, &tuning.warps,
                    &tuning.tiles, &tuning.steps, &tuning.min_blocks, &tuning.per_lane) == 8) {
    if (shape < 0 || shape > 4) continue;
    try {
      time_case(context, timer, kShapes[shape], dtype, false, tuning);
    } catch (const core::Error& error) {
      std::printf("shape %d: %.200s\n", shape, error.what());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto context = cuda::Context::open(0);
    const cuda::ContextGuard guard(*context);
    std::printf("%s, %d multiprocessors\n", context->properties().name.c_str(),
                context->properties().multiprocessors);
    Timer timer(*context);
    if (argc > 1 && std::string(argv[1]) == "pick") {
      time_picked(*context, timer, argc > 2 ? argv[2] : "f32");
    } else {
      time_all(*context, timer);
    }
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
