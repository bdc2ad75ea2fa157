// Uses the launcher's own choice, so that the tests compile the kernels that run. See variants.hpp.
#include "cuda/scan/variants.hpp"

#include "core/scan/shape.hpp"
#include "cuda/scan/backward.hpp"
#include "cuda/scan/forward.hpp"

namespace exphil::cuda {
namespace {

using core::Dtype;
using core::ScanShape;
using formulas::Discretization;

ScanShape kind(std::int64_t seq, std::int64_t state, Discretization discretization, Dtype dtype = Dtype::f32,
               bool complex = false) {
  ScanShape p;
  p.batch = 2, p.seq = seq, p.dim = 64, p.state = state;
  p.dtype = dtype, p.complex = complex;
  p.options.discretization = discretization;
  return p;
}

void give_everything(ScanShape* p) {
  for (const core::ScanOperand id : {core::ScanOperand::d, core::ScanOperand::z, core::ScanOperand::dt_bias,
                                     core::ScanOperand::initial_state}) {
    p->add(id);
  }
  p->options.dt_softplus = true;
  p->options.dt_min = 0.001f;
}

// The stages of gradients: every rule, type and layout, with everything given and with nothing.
void add_gradients(const DeviceProperties& device, std::vector<KernelSpec>* all) {
  const auto add = [&](ScanShape p, bool given_states = false) {
    if (given_states) p.add(core::ScanOperand::given_states);
    const BackwardPlan plan = plan_scan_gradient(p, device);
    for (const BackwardStage& stage : plan.stages) all->push_back(stage.spec);
    if (plan.totals) all->push_back(plan.totals->spec);
  };
  all->push_back(row_sums_spec());
  for (int number = 0; number < 6; ++number) {
    const auto discretization = static_cast<Discretization>(number);
    ScanShape full = kind(1024, 16, discretization, number % 2 == 0 ? Dtype::f32 : Dtype::bf16);
    give_everything(&full);
    add(full), add(kind(60, 16, discretization), number % 2 != 0);
    add(kind(300, 7, discretization, Dtype::f32, true));
  }
  for (const std::int64_t state : {1, 2, 33, 256}) {
    add(kind(60, state, Discretization::zoh, Dtype::f16));
    add(kind(60, state, Discretization::foh, Dtype::f32, true));
  }
  ScanShape constant = kind(300, 16, Discretization::zoh, Dtype::bf16);
  constant.b_layout.constant = true;
  add(constant);
  constant.c_layout.constant = true;
  add(constant);
  ScanShape matrix = kind(60, 32, Discretization::bilinear, Dtype::bf16);
  matrix.full_matrix = true;
  add(matrix);
  matrix.state = 5, matrix.dtype = Dtype::f32, matrix.b_layout.constant = true;
  give_everything(&matrix);
  add(matrix, true);
}

}  // namespace

std::vector<KernelSpec> scan_kernel_variants() {
  DeviceProperties device;  // a small one: every variant must fit it
  device.multiprocessors = 40;
  device.max_shared_per_block = 64 * 1024;
  std::vector<KernelSpec> all;
  const auto add = [&](ScanShape p, bool states = false) {
    if (states) p.add(core::ScanOperand::states);
    all.push_back(plan_scan(p, device).spec);
    const GeneralTuning general;  // where the wide kernel was chosen
    if (all.back().file == "scan/wide.cu") all.push_back(plan_scan(p, device, &general).spec);
  };
  for (int number = 0; number < 6; ++number) {
    const auto discretization = static_cast<Discretization>(number);
    ScanShape plain = kind(1024, 16, discretization), full = kind(60, 16, discretization);
    give_everything(&full);
    add(plain), add(full);
    full.dim = full.seq = 1024;
    full.dtype = number % 2 == 0 ? Dtype::f32 : Dtype::bf16;
    add(full, number % 2 != 0);
    add(kind(number % 2 == 0 ? 60 : 1024, 7, discretization, Dtype::f32, true));
  }
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    ScanShape full = kind(1024, 16, Discretization::zoh, dtype);
    give_everything(&full);
    add(full), add(kind(60, 3, Discretization::zoh, dtype));
    full.seq = 60;
    add(full, dtype == Dtype::bf16), add(kind(60, 16, Discretization::zoh, dtype));
  }
  for (const std::int64_t state : {1, 2, 33, 256}) {
    add(kind(1024, state, Discretization::zoh));
    add(kind(60, state, Discretization::foh, Dtype::f32, state == 256));
  }
  for (const std::int64_t state : {4, 128})
    add(kind(60, state, Discretization::zoh, Dtype::bf16), state == 4);
  ScanShape constant = kind(1024, 16, Discretization::zoh, Dtype::bf16);
  constant.b_layout.constant = true;
  add(constant);
  constant.c_layout.constant = true, constant.complex = true, constant.dtype = Dtype::f32;
  add(constant, true);
  ScanShape matrix = kind(60, 32, Discretization::bilinear, Dtype::bf16);
  matrix.full_matrix = true;
  add(matrix);
  matrix.state = 5, matrix.dtype = Dtype::f32, matrix.b_layout.constant = true;
  give_everything(&matrix);
  add(matrix);
  device.compute_major = 9;  // clusters
  add(kind(1 << 16, 16, Discretization::zoh, Dtype::bf16));
  add(kind(1 << 16, 5, Discretization::foh, Dtype::f32, true), true);
  device.multiprocessors = 132, device.max_shared_per_block = 227 * 1024;  // clusters of eight
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    add(kind(1024, 16, Discretization::zoh, dtype));
    ScanShape full = kind(1024, dtype == Dtype::f32 ? 64 : 8, Discretization::bilinear, dtype);
    give_everything(&full);
    add(full, true);
  }
  add_gradients(device, &all);
  device.compute_major = 7, device.max_shared_per_block = 64 * 1024;
  add_gradients(device, &all);
  return all;
}

}  // namespace exphil::cuda
