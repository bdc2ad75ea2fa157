// The gradient of the scan on CUDA: its kernels as the library runs them, on an emulated GPU
// (emulated_gpu.hpp) and on a real one, against the goldens and the oracle; what it plans; its bits in any
// company.
#include "cuda/scan/gradient_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/work/parallel.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/scan/backward.hpp"
#include "cuda/scan/kinds.hpp"
#include "cuda/scan/runner.hpp"
#include "support/catch.hpp"
#include "support/goldens.hpp"
#include "support/numbers.hpp"
#include "support/scan_grad_case.hpp"

namespace exphil::test {
namespace {

using core::Direction;
using core::Dtype;
using core::ScanGradProblem;
using core::ScanOperand;
using formulas::Discretization;

void run_on_device(const ScanGradProblem& problem, const core::ScanGradOutputs& outputs) {
  cuda::run_scan_grad(*cuda::Context::open(0), problem, outputs);
}

GradResults run(const ScanGradProblem& problem) {
  GradResults results(problem);
  run_on_device(problem, results.outputs());
  return results;
}

// At once: in all threads, each of which compiles kernels. Only a real device runs several calls at a time.
void check_all(const std::vector<ScanSpec>& specs, bool at_once) {
  std::vector<std::string> mismatches(specs.size());
  const auto run_specs = [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const ScanGradCase c(specs[i], specs[i].seed % 2 == 0);
      mismatches[i] = scan_grad_mismatch(c.problem(), run_on_device);
    }
  };
  const auto count = static_cast<std::int64_t>(specs.size());
  at_once ? core::parallel_for(count, 1, run_specs) : run_specs(0, count);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    INFO(specs[i].to_string());
    CHECK(mismatches[i] == "");
  }
}
void check_gradient(const ScanSpec& spec) {
  check_all({spec}, false);
}

ScanSpec of_size(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state,
                 std::uint64_t seed = 1) {
  ScanSpec spec;
  spec.batch = batch, spec.seq = seq, spec.dim = dim, spec.state = state, spec.seed = seed;
  return spec;
}
ScanSpec with_everything(ScanSpec spec) {
  spec.d = spec.z = spec.dt_bias = spec.initial_state = spec.options.dt_softplus = true;
  return spec;
}

void check_goldens(std::int64_t most_states) {
  int checked = 0;
  for (const std::string& name : golden_names()) {
    const Golden golden = load_golden(name);
    if (golden.gradients.empty()) continue;
    core::ScanGradInputs inputs;
    inputs.scan = golden.inputs;
    inputs.dy = {Dtype::f32, golden.inputs.x.shape, golden.dy.data(), golden.dy.size() * sizeof(float)};
    const ScanGradProblem problem = core::validate_scan_grad(inputs, golden.options);
    const core::ScanShape& p = problem.scan.shape;
    if (p.y_elements() * p.state > most_states) continue;
    const GradResults results = run(problem);
    for (const auto& [of, expected] : golden.gradients) {
      INFO(name << " " << of);
      CHECK(relative_error(results.values(of), expected) <= 2e-5);
    }
    ++checked;
  }
  CHECK(checked > 0);
}

// Options at random. `count` of them; each is kernels to compile.
void check_options(std::uint64_t count, std::uint64_t most_steps, bool at_once) {
  Random random(5);
  std::vector<ScanSpec> specs;
  for (std::uint64_t i = 0; i < count; ++i) {
    ScanSpec spec;
    spec.seed = i;
    spec.batch = 1 + static_cast<std::int64_t>(random.bits() % 3);
    spec.seq = 1 + static_cast<std::int64_t>(random.bits() % most_steps);
    const std::int64_t groups[] = {0, 1, 2, 4, 8, 24};
    spec.dim = 24;
    spec.b_groups = groups[random.bits() % 6], spec.c_groups = groups[random.bits() % 6];
    choose_options(random, static_cast<int>(i), &spec);
    specs.push_back(spec);
  }
  check_all(specs, at_once);
}

// With the states of the device's own scan.
void check_given_states(const ScanSpec& spec) {
  INFO(spec.to_string());
  const ScanGradCase c(spec);
  ScanGradProblem problem = c.problem();
  std::vector<float> states(static_cast<std::size_t>(problem.scan.shape.state_floats() * spec.seq));
  core::ScanCall forward = problem.scan;
  forward.shape.options.algorithm = core::ScanAlgorithm::sequential;
  forward.set(ScanOperand::states, states.data());
  std::vector<unsigned char> y(static_cast<std::size_t>(problem.scan.shape.y_elements()) * 4);
  forward.set(ScanOperand::y, y.data());
  cuda::run_scan(*cuda::Context::open(0), forward);
  problem.states = states.data();
  CHECK(scan_grad_mismatch(problem, run_on_device) == "");
}

// A sequence's own gradients have the same bits alone, in a batch, and beside a sequence that is NaN.
void check_company(const ScanSpec& spec) {
  INFO(spec.to_string());
  const ScanGradCase c(spec);
  const ScanGradProblem problem = c.problem();
  const GradResults expected = run(problem);
  CHECK(run(problem).bytes() == expected.bytes());
  const std::int64_t stream = spec.seq * spec.dim, rows = spec.seq * spec.state,
                     state = spec.dim * spec.state;
  const std::int64_t last = spec.batch - 1;
  ScanGradProblem alone = problem;
  alone.scan = slice_of(problem.scan, last, 1);
  alone.dy = static_cast<const float*>(problem.dy) + last * stream;
  alone.d_final_state = problem.d_final_state + last * state;
  const GradResults single = run(alone);
  static_cast<float*>(problem.scan.operands[ScanOperand::x])[7] = std::nanf("");
  const GradResults poisoned = run(problem);
  CHECK(std::isnan(poisoned.values("dt")[7]));
  const std::map<std::string, std::int64_t> sizes = {{"x", stream}, {"dt", stream}, {"z", stream},
                                                     {"b", rows},   {"c", rows},    {"initial_state", state}};
  for (const auto& [name, floats] : sizes) {
    INFO(name);
    const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
    const std::size_t at = static_cast<std::size_t>(last) * bytes;
    CHECK(std::memcmp(single.bytes().at(name).data(), expected.bytes().at(name).data() + at, bytes) == 0);
    CHECK(std::memcmp(poisoned.bytes().at(name).data() + bytes, expected.bytes().at(name).data() + bytes,
                      at) == 0);
  }
}

// ---- on the emulated grid ----

TEST_CASE("the gradient's kernels for lengths, widths and layouts", "[.emulated_gradient_sweep]") {
  emulate_launches();
  for (const std::int64_t seq : {0, 1, 15, 16, 17, 63, 64, 65, 150})
    check_gradient(with_everything(of_size(2, seq, 7, 16)));
  for (const std::int64_t dim : {1, 31, 33, 131}) check_gradient(of_size(1, 11, dim, 3, 2));
  ScanSpec spec = with_everything(of_size(2, 70, 12, 5, 2));
  spec.b_groups = 3, spec.c_groups = 2;
  check_gradient(spec);
  spec.b_groups = 0, spec.c_groups = 3, spec.complex = true;
  check_gradient(spec);
  for (const std::int64_t state : {1, 33, 130}) check_gradient(with_everything(of_size(1, 9, 3, state)));
  CHECK(emulated_launches("selective_scan_backward_local") > 0);
  CHECK(emulated_launches("selective_scan_backward_carry") > 0);
}

// Memory of the emulated device is the host's: any cut, and tensors of any alignment.
void check_cut(const ScanSpec& spec, const cuda::BackwardTuning& tuning, bool misaligned = false) {
  INFO(spec.to_string());
  const auto launch = [&](const ScanGradProblem& problem, const core::ScanGradOutputs& outputs) {
    const auto context = cuda::Context::open(0);
    const cuda::ContextGuard guard(*context);
    const core::ScanCall call = core::gradient_call(problem, outputs);
    core::ScanShape shape = core::with_alignment_of(call.shape, call.operands);
    if (misaligned) shape.add(ScanOperand::dy, 4);  // all that a kernel may rely on
    core::ScanOperands<CUdeviceptr> at;
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      at[id] = reinterpret_cast<CUdeviceptr>(call.operands[id]);
    }
    const std::size_t bytes = cuda::scan_gradient_scratch(shape, context->properties(), tuning);
    std::vector<unsigned char> scratch(bytes + 256 + 64, 0xff);
    const auto begin = (reinterpret_cast<CUdeviceptr>(scratch.data()) + 255) / 256 * 256;
    const cuda::StreamLease stream(*context);
    cuda::enqueue_scan_gradient(*context, stream.handle(), shape, at, begin, tuning);
    const auto* behind = reinterpret_cast<const unsigned char*>(begin + bytes);
    CHECK(std::all_of(behind, behind + 64, [](unsigned char byte) { return byte == 0xff; }));
  };
  CHECK(scan_grad_mismatch(ScanGradCase(spec).problem(), launch) == "");
}

TEST_CASE("the gradient where a lane has two channels and a block several tiles", "[.emulated_gradient]") {
  emulate_launches();
  cuda::BackwardTuning tuning;
  tuning.channels = 2, tuning.tiles = 2, tuning.segment = 32, tuning.warps = 2;
  ScanSpec spec = with_everything(of_size(2, 70, 88, 16));
  check_cut(spec, tuning);
  check_cut(spec, tuning, true);
  spec.options.direction = Direction::reverse, spec.b_groups = 2, spec.dtype = Dtype::f16;
  check_cut(spec, tuning);
  spec.state = 3, spec.dim = 258, spec.c_groups = 0, spec.b_groups = 1;
  check_cut(spec, tuning);
  tuning.segment = 64, tuning.per_lane = 2, tuning.steps = 4;
  check_cut(spec, tuning);
  check_cut(with_everything(of_size(1, 130, 40, 16)), tuning);
}

TEST_CASE("the gradient with a full matrix for lengths, widths and layouts", "[.emulated_gradient_sweep]") {
  emulate_launches();
  for (const std::int64_t seq : {0, 1, 31, 32, 33, 70}) {
    ScanSpec spec = with_everything(of_size(2, seq, 6, 5));
    spec.full_matrix = true, spec.options.discretization = Discretization::bilinear;
    spec.b_groups = 0, spec.c_groups = 3;
    check_gradient(spec);
  }
  CHECK(emulated_launches("selective_scan_backward_matrix") == 6);
}

TEST_CASE("the gradient with any options", "[.emulated_gradient_sweep]") {
  emulate_launches();
  check_options(24, 80, false);
}

TEST_CASE("the gradient's goldens that are small", "[.emulated_gradient_sweep]") {
  emulate_launches();
  check_goldens(20000);
}

// {1, 70001, 3} with the decays A of its six states.
std::string long_mismatch(const std::vector<float>& decays) {
  const ScanGradCase c(of_size(1, 70001, 3, 2));
  float* a = const_cast<float*>(static_cast<const float*>(c.inputs().scan.a.data));
  std::copy(decays.begin(), decays.end(), a);
  return scan_grad_mismatch(c.problem(), run_on_device);
}
const std::vector<float> kLongMemory = {-1e-3f, -3e-4f, -200.0f, -1e-3f, -0.01f, -50.0f};

TEST_CASE("the gradient where states remember tens of thousands of steps", "[.emulated_gradient]") {
  emulate_launches();
  CHECK(long_mismatch(kLongMemory) == "");
}

TEST_CASE("the gradient from given states", "[.emulated_gradient]") {
  emulate_launches();
  ScanSpec spec = of_size(2, 70, 6, 3);
  check_given_states(spec);
  spec.options.direction = Direction::reverse, spec.initial_state = true;
  check_given_states(spec);
  spec.full_matrix = true, spec.options.discretization = Discretization::bilinear;
  check_given_states(spec);
}

TEST_CASE("the gradient of a sequence in any company", "[.emulated_gradient]") {
  emulate_launches();
  ScanSpec spec = with_everything(of_size(3, 70, 9, 16));
  check_company(spec);
}

TEST_CASE("the gradient's kernels run without a GPU", "[cuda][scan_grad][emulated]") {
  require_passed(run_over_emulated("[.emulated_gradient]"));
}

// Minutes of compiling kernels for the CPU: with `make test_variants`.
TEST_CASE("all of the gradient's kernels run without a GPU", "[cuda][scan_grad][emulated][.variants]") {
  require_passed(run_over_emulated("[.emulated_gradient_sweep]"));
}

// ---- on the fake driver ----

TEST_CASE("a gradient's device addresses are checked", "[.gradient_addresses]") {
  const auto context = cuda::Context::open(0);
  const cuda::ContextGuard guard(*context);
  core::ScanShape p = kind(1, 4, 4, 4);
  p.remove(ScanOperand::y);
  p.add(ScanOperand::dy), p.add(ScanOperand::grad_x);
  core::ScanOperands<CUdeviceptr> at;
  for (const ScanOperand id : core::all_operands<ScanOperand>()) at[id] = 256;
  at[ScanOperand::dy] = 0;
  const core::Error error = thrown_by([&] { cuda::enqueue_scan_gradient(*context, nullptr, p, at, 1024); });
  CHECK(error.kind() == core::ErrorKind::invalid_argument);
  CHECK(error.argument() == "dy");
}

TEST_CASE("a gradient without an address of dy is refused", "[cuda][scan_grad]") {
  require_passed(run_over_emulated("[.gradient_addresses]"));
}

// ---- plans ----

TEST_CASE("the gradient's extra memory is at most a sixteenth of all states", "[cuda][scan_grad]") {
  const core::ScanShape p = [] {
    core::ScanShape shape = kind(8, 2048, 1536, 16);
    for (const ScanOperand id : {ScanOperand::dy, ScanOperand::grad_x, ScanOperand::grad_dt,
                                 ScanOperand::grad_a, ScanOperand::grad_b, ScanOperand::grad_c}) {
      shape.add(id);
    }
    shape.remove(ScanOperand::y);
    return shape;
  }();
  const std::size_t states = static_cast<std::size_t>(p.batch * p.seq * p.dim * p.state) * 4;
  for (const int multiprocessors : {40, 132}) {
    CHECK(cuda::scan_gradient_scratch(p, device(multiprocessors, 227, 9)) * 16 <= states);
  }
}

TEST_CASE("the gradient's cut of a sequence does not depend on the batch", "[cuda][scan_grad]") {
  for (const std::int64_t seq : {60, 300, 1024, 70001}) {
    for (const std::int64_t dim : {3, 200, 1536}) {
      const auto h200 = device(132, 227, 9);
      const cuda::BackwardPlan one = cuda::plan_scan_gradient(kind(1, seq, dim, 16), h200);
      const cuda::BackwardPlan many = cuda::plan_scan_gradient(kind(64, seq, dim, 16), h200);
      CHECK(one.segments == many.segments);
      CHECK(one.cut.blocks() == many.cut.blocks());
      CHECK(one.stages.back().spec == many.stages.back().spec);
    }
  }
}

// ---- on a GPU ----

TEST_CASE("the device's gradient agrees with every golden", "[cuda][gpu][scan_grad]") {
  if (!have_device()) return;
  check_goldens(std::int64_t{1} << 62);
}

TEST_CASE("the device's gradient with any options", "[cuda][gpu][scan_grad]") {
  if (!have_device()) return;
  check_options(120, 300, true);
}

TEST_CASE("the device's gradient at every length, width and state", "[cuda][gpu][scan_grad]") {
  if (!have_device()) return;
  std::vector<ScanSpec> specs;
  for (const std::int64_t seq : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 1000}) {
    specs.push_back(with_everything(of_size(1, seq, 19, 16, 2)));
  }
  for (const std::int64_t dim : {1, 3, 31, 32, 33, 127, 128, 129, 521}) {
    specs.push_back(with_everything(of_size(2, 70, dim, 16)));
    ScanSpec spec = of_size(2, 21, dim, 4);
    spec.b_groups = dim, spec.c_groups = 0, spec.dtype = Dtype::bf16;
    specs.push_back(spec);
  }
  for (const std::int64_t state : {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 128, 256}) {
    ScanSpec spec = of_size(2, 70, 18, state);
    spec.z = spec.d = true;
    specs.push_back(spec);
    spec.complex = true;
    specs.push_back(spec);
    if (state > core::kMaxFullMatrixState) continue;
    spec.complex = false, spec.full_matrix = true;
    spec.options.discretization = Discretization::bilinear;
    specs.push_back(spec);
  }
  check_all(specs, true);
}

TEST_CASE("the device's gradient of a long sequence with decays near 1 and near 0",
          "[cuda][gpu][scan_grad]") {
  if (!have_device()) return;
  CHECK(long_mismatch({-0.1f, -0.3f, -200.0f, -0.1f, -1.0f, -50.0f}) == "");
}

TEST_CASE("the device's gradient where states remember tens of thousands of steps",
          "[cuda][gpu][scan_grad]") {
  if (!have_device()) return;
  CHECK(long_mismatch(kLongMemory) == "");
}

TEST_CASE("the device's gradient from given states", "[cuda][gpu][scan_grad]") {
  if (!have_device()) return;
  ScanSpec spec = of_size(2, 200, 40, 16);
  check_given_states(spec);
  spec.options.direction = Direction::reverse, spec.initial_state = true;
  check_given_states(spec);
  spec.full_matrix = true, spec.options.discretization = Discretization::bilinear;
  check_given_states(spec);
}

TEST_CASE("the device's gradient of a sequence in any company", "[cuda][gpu][scan_grad]") {
  if (!have_device()) return;
  for (const std::int64_t seq : {60, 300, 1024}) check_company(with_everything(of_size(5, seq, 200, 16)));
}

}  // namespace
}  // namespace exphil::test
