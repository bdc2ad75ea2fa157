// The general, wide and matrix scan kernels as the library runs them, on an emulated GPU (emulated_gpu.hpp):
// arguments, slices, staging and the kernels' logic, against the goldens and the oracle. The scans that are
// parallel in time run on a GPU only (gpu_test.cpp): clusters and named barriers are not emulated.
#include "cuda/emulated_gpu.hpp"
#include "cuda/scan/run_case.hpp"
#include "support/catch.hpp"
#include "support/goldens.hpp"

namespace exphil::test {
namespace {

using core::Direction;
using core::Dtype;
using core::ScanAlgorithm;
using formulas::Discretization;

void check_emulated(ScanSpec spec, bool with_states = false) {
  spec.options.algorithm = ScanAlgorithm::sequential;
  const ScanCase c(spec);
  INFO(spec.to_string());
  check_close(c.call().shape, scan_on_device(c.call(), with_states), expect(c.call(), with_states),
              with_states);
}

// A Mamba layer's scan, with every operand.
ScanSpec full(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state) {
  ScanSpec spec;
  spec.batch = batch, spec.seq = seq, spec.dim = dim, spec.state = state;
  spec.d = spec.z = spec.dt_bias = spec.initial_state = true;
  spec.options.dt_softplus = true;
  return spec;
}

TEST_CASE("the wide kernel for lengths and widths around its tiles", "[.emulated_scan]") {
  emulate_launches();
  for (const std::int64_t seq : {1, 19, 20, 21, 61}) check_emulated(full(2, seq, 34, 16));
  for (const std::int64_t dim : {2, 62, 64, 66, 134}) check_emulated(full(1, 23, dim, 16));
  ScanSpec spec = full(3, 13, 12, 16);
  spec.b_groups = 3, spec.c_groups = 2;  // spans of two channels
  check_emulated(spec);
  spec = full(2, 23, 34, 16);
  spec.options.direction = Direction::both, spec.initial_state = false;
  check_emulated(spec);
  check_emulated(full(2, 23, 6, 4), true);
  CHECK(emulated_launches("selective_scan_wide") == 13);
}

TEST_CASE("the general kernel for lengths, widths and layouts", "[.emulated_scan]") {
  emulate_launches();
  for (const std::int64_t seq : {1, 15, 16, 17, 37}) check_emulated(full(2, seq, 7, 3));
  for (const std::int64_t dim : {1, 31, 33, 131}) check_emulated(full(1, 11, dim, 3));
  ScanSpec spec = full(2, 19, 12, 3);
  spec.b_groups = 3, spec.c_groups = 2;
  check_emulated(spec);
  spec = full(2, 19, 12, 5);
  spec.complex = true, spec.b_groups = 0, spec.c_groups = 3;
  spec.options.direction = Direction::reverse, spec.options.discretization = Discretization::bilinear;
  check_emulated(spec, true);
  spec = full(2, 19, 9, 16);  // an odd number of channels
  spec.dtype = Dtype::f16, spec.c_groups = 0;
  spec.options.dt_min = 0.01f, spec.options.dt_max = 0.5f, spec.options.discretization = Discretization::foh;
  check_emulated(spec);
  CHECK(emulated_launches("selective_scan") == 12);
}

TEST_CASE("the matrix kernel for lengths, widths and layouts", "[.emulated_scan]") {
  emulate_launches();
  for (const std::int64_t dim : {1, 4, 5}) {
    ScanSpec spec = full(2, 9, dim, 5);
    spec.full_matrix = true, spec.options.discretization = Discretization::bilinear;
    check_emulated(spec, true);
  }
  ScanSpec spec = full(2, 7, 6, 8);
  spec.full_matrix = true, spec.b_groups = 0, spec.c_groups = 2, spec.dtype = Dtype::bf16;
  spec.options.discretization = Discretization::bilinear, spec.options.direction = Direction::both;
  spec.initial_state = false;
  check_emulated(spec);
  CHECK(emulated_launches("selective_scan_matrix") == 4);
}

TEST_CASE("a batch in slices: every one has its own tensors", "[.emulated_scan]") {
  emulate_launches();
  const int before = emulated_launches("selective_scan_wide");
  ScanSpec spec = full(5, 33, 1032, 16);
  spec.b_groups = 2;
  check_emulated(spec);
  CHECK(emulated_launches("selective_scan_wide") >= before + 2);
}

TEST_CASE("every fifth golden", "[.emulated_scan]") {
  emulate_launches();
  int number = 0, checked = 0;
  for (const std::string& name : golden_names()) {
    if (number++ % 5 != 0) continue;  // each is a kernel to compile
    Golden golden = load_golden(name);
    golden.options.algorithm = ScanAlgorithm::sequential;
    const core::ScanCall call = golden.call();
    const core::ScanShape& p = call.shape;
    if (p.batch * p.seq * p.dim * p.state > 20000) continue;  // takes seconds here
    INFO(name);
    ScanExpected want;
    want.y = golden.y, want.final_state = golden.final_state, want.states = golden.states;
    check_close(p, scan_on_device(call, !want.states.empty()), want, !want.states.empty());
    ++checked;
  }
  CHECK(checked > 0);
}

TEST_CASE("scan kernels run without a GPU", "[cuda][scan][emulated]") {
  require_passed(run_over_emulated("[.emulated_scan]"));
}

}  // namespace
}  // namespace exphil::test
