// Chooses the kernel, lays out the scratch, fills the arguments and launches the stages.
#include "cuda/scan/backward.hpp"

#include <algorithm>
#include <initializer_list>

#include "core/error.hpp"
#include "cuda/device/places.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {
namespace {

using core::Operand;
using core::ScanOperand;
using core::ScanShape;
using DeviceOperands = core::ScanOperands<CUdeviceptr>;

std::int64_t floats_of(const ScanShape& p) {
  return p.complex ? 2 : 1;
}

// Rows of a sequence's sums over time.
std::int64_t sum_rows(const BackwardPlan& plan) {
  return plan.sums_in_checkpoints ? plan.segments : 1;
}

// Bytes of `count` floats; throws limit_exceeded where the scratch could not be counted.
std::size_t float_bytes(std::initializer_list<std::int64_t> counts) {
  std::int64_t product = 4;
  for (const std::int64_t count : counts) {
    if (__builtin_mul_overflow(product, count, &product)) {
      core::fail(core::ErrorKind::limit_exceeded, "x",
                 "the gradient of a scan of this size needs more than 2^63 bytes");
    }
  }
  return static_cast<std::size_t>(product);
}

// Where the scratch of BackwardArguments lies. The decays are not needed any more when sums are written.
struct Scratch {
  std::size_t checkpoints = 0, adjoints = 0, decays = 0, a_sums = 0, b_sums = 0, c_sums = 0, d_sums = 0,
              bias_sums = 0, bytes = 0;

  Scratch(const ScanShape& p, const BackwardPlan& plan) {
    const std::int64_t rows = sum_rows(plan) * p.batch, floats = p.state * floats_of(p);
    const std::size_t segments = float_bytes({p.batch, plan.segments, p.dim, floats});
    const auto projection = [&](const core::ProjectionLayout& layout) {
      return layout.constant ? float_bytes({rows, p.dim, floats})
                             : float_bytes({p.batch, plan.cut.blocks(), p.seq, floats});
    };
    Places places;
    checkpoints = places.take(segments);
    a_sums =
        plan.sums_in_checkpoints ? checkpoints : places.take(float_bytes({rows, p.dim, p.state, p.state}));
    d_sums = places.take(p.has(ScanOperand::grad_d) ? float_bytes({rows, p.dim}) : 0);
    bias_sums = places.take(p.has(ScanOperand::grad_dt_bias) ? float_bytes({rows, p.dim}) : 0);
    const bool carried = plan.sums_in_checkpoints && plan.segments > 1;
    adjoints = places.take(carried ? segments : 0);
    decays = b_sums = places.take(projection(p.b_layout));
    c_sums = places.take(projection(p.c_layout));
    bytes = std::max(places.bytes(), decays + (carried ? segments : 0));
  }
};

scan::BackwardArguments backward_arguments(const ScanShape& p, const BackwardPlan& plan,
                                           const DeviceOperands& on_device, CUdeviceptr base) {
  const Scratch at(p, plan);
  scan::BackwardArguments a{};
  a.scan = scan_arguments(p, on_device, plan.cut);
  const auto address = [&](ScanOperand id) { return p.has(id) ? on_device[id] : 0; };
  const auto floats = [&](std::size_t place) { return as_pointer<float>(base + place); };
  a.dy = as_pointer<void>(address(ScanOperand::dy));
  a.d_final_state = as_pointer<float>(address(ScanOperand::d_final_state));
  a.given_states = as_pointer<float>(address(ScanOperand::given_states));
  a.dx = as_pointer<void>(address(ScanOperand::grad_x));
  a.ddt = as_pointer<void>(address(ScanOperand::grad_dt));
  a.dz = as_pointer<void>(address(ScanOperand::grad_z));
  a.d_initial_state = as_pointer<float>(address(ScanOperand::grad_initial_state));
  a.checkpoints = floats(at.checkpoints), a.adjoints = floats(at.adjoints), a.decays = floats(at.decays);
  a.a_sums = floats(at.a_sums), a.b_sums = floats(at.b_sums), a.c_sums = floats(at.c_sums);
  a.d_sums = p.has(ScanOperand::grad_d) ? floats(at.d_sums) : nullptr;
  a.bias_sums = p.has(ScanOperand::grad_dt_bias) ? floats(at.bias_sums) : nullptr;
  a.segments = plan.segments, a.batch = p.batch;
  return a;
}

// The sums of rows that the call asks for.
struct RowSums {
  scan::RowSumArguments arguments{};
  unsigned count = 0;
  std::int64_t blocks = 1;

  RowSums(const ScanShape& p, const BackwardPlan& plan, const scan::BackwardArguments& a,
          const DeviceOperands& to)
      : p_(p), plan_(plan), to_(to) {
    add_shared(ScanOperand::grad_a, a.a_sums);
    add_shared(ScanOperand::grad_d, a.d_sums);
    add_shared(ScanOperand::grad_dt_bias, a.bias_sums);
    add_projection(ScanOperand::grad_b, a.b_sums, p.b_layout);
    add_projection(ScanOperand::grad_c, a.c_sums, p.c_layout);
  }

 private:
  // Of what every sequence adds to.
  void add_shared(ScanOperand id, const float* from, int element = 0) {
    const Operand result = core::describe(p_, id);
    if (!result.present || result.bytes() == 0) return;
    const std::int64_t columns =
        result.axes.shape().elements(result.name) * (result.dtype == core::Dtype::c64 ? 2 : 1);
    add({from, as_pointer<void>(to_[id]), 1, sum_rows(plan_) * p_.batch, columns, 1, columns,
         scan::kMostStrands, element});
  }
  void add_projection(ScanOperand id, const float* from, const core::ProjectionLayout& layout) {
    const int element = p_.complex ? 0 : element_number(p_.dtype);
    if (layout.constant) return add_shared(id, from, element);
    if (!p_.has(id)) return;
    const std::int64_t width = p_.state * floats_of(p_);
    add({from, as_pointer<void>(to_[id]), p_.batch * layout.groups, plan_.cut.blocks() / layout.groups,
         p_.seq * width, layout.groups, width, 1, element});
  }
  void add(const scan::RowSum& sum) {
    const std::int64_t results = sum.outer * sum.columns, across = scan::kRowSumThreads / sum.strands;
    arguments.sums[count++] = sum;
    blocks = std::max(blocks, std::min<std::int64_t>((results + across - 1) / across, 1 << 16));
  }

  const ScanShape& p_;
  const BackwardPlan& plan_;
  const DeviceOperands& to_;
};

constexpr std::size_t kRowSumShared = scan::kRowSumThreads * sizeof(float);

// One gradient, or a half of one.
class Launches {
 public:
  Launches(Context& context, CUstream stream, const ScanShape& shape, const DeviceOperands& on_device,
           CUdeviceptr scratch, const BackwardTuning& tuning = {})
      : context_(context), stream_(stream), shape_(shape), on_device_(on_device) {
    require_addresses(shape, on_device);
    plan = plan_scan_gradient(shape, context.properties(), tuning);
    arguments = backward_arguments(shape, plan, on_device, scratch);
  }

  BackwardPlan plan;
  scan::BackwardArguments arguments{};

  void stages(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (shape_.batch == 0) break;  // sums of nothing are zero
      stage(plan.stages[i], arguments);
    }
  }
  void sums() {
    const RowSums sums(shape_, plan, arguments, on_device_);
    if (sums.count == 0) return;
    stage({row_sums_spec(),
           {static_cast<unsigned>(sums.blocks), sums.count, 1},
           {scan::kRowSumThreads, 1, 1},
           kRowSumShared},
          sums.arguments);
  }
  // The first waits for what the caller has queued; each other begins while the one before it ends.
  template <class Arguments>
  void stage(const BackwardStage& stage, const Arguments& all) {
    const CUfunction function = context_.kernels().get(stage.spec, stage.shared_bytes);
    launch(first_ ? Begin::after : Begin::beside, context_, function, stage.grid, stage.block,
           stage.shared_bytes, stream_, all);
    first_ = false;
  }

 private:
  Context& context_;
  const CUstream stream_;
  const ScanShape& shape_;
  const DeviceOperands& on_device_;
  bool first_ = true;
};

}  // namespace

unsigned gradient_blocks(std::int64_t blocks) {
  return grid_blocks(blocks, "x", "the gradient of so many sequences");
}

BackwardPlan plan_scan_gradient(const ScanShape& p, const DeviceProperties& device,
                                const BackwardTuning& tuning) {
  for (const BackwardKernel* kernel : kBackward) {
    if (kernel->takes(p, device)) return kernel->plan(p, device, tuning);
  }
  core::fail(core::ErrorKind::unsupported, "", "no kernel takes the gradient of this scan on this device");
}

KernelSpec row_sums_spec() {
  return {"scan/row_sums.cu", "scan_row_sums", {}};
}

std::size_t scan_gradient_scratch(const ScanShape& p, const DeviceProperties& device,
                                  const BackwardTuning& tuning) {
  if (p.dim == 0) return 0;
  return Scratch(p, plan_scan_gradient(p, device, tuning)).bytes;
}

void enqueue_scan_gradient(Context& context, CUstream stream, const ScanShape& p,
                           const DeviceOperands& on_device, CUdeviceptr scratch,
                           const BackwardTuning& tuning) {
  if (p.dim == 0) return;
  Launches launches(context, stream, p, on_device, scratch, tuning);
  launches.stages(0, launches.plan.stages.size());
  launches.sums();
}

void enqueue_gradient_totals(Context& context, CUstream stream, const ScanShape& p,
                             const DeviceOperands& on_device, CUdeviceptr scratch,
                             const GradientTotals& totals) {
  Launches launches(context, stream, p, on_device, scratch);
  launches.stages(0, 1);
  launches.stage(
      launches.plan.totals.value(),
      scan::BackwardTotalsArguments{launches.arguments, as_pointer<float>(totals.decay),
                                    as_pointer<float>(totals.end), as_pointer<float>(totals.start)});
}

void enqueue_gradient_after_totals(Context& context, CUstream stream, const ScanShape& p,
                                   const DeviceOperands& on_device, CUdeviceptr scratch) {
  Launches launches(context, stream, p, on_device, scratch);
  launches.stages(1, launches.plan.stages.size());
  launches.sums();
}

void prepare_scan_gradient(Context& context, const ScanShape& p, const BackwardTuning& tuning) {
  if (p.dim == 0) return;
  for (const BackwardStage& stage : plan_scan_gradient(p, context.properties(), tuning).stages) {
    context.kernels().get(stage.spec, stage.shared_bytes);
  }
  context.kernels().get(row_sums_spec(), kRowSumShared);
}

}  // namespace exphil::cuda
