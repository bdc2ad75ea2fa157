// A scan and its gradient whose tensors are in the memory of several devices of an emulated machine, against
// the oracle. devices_test.cpp runs those of [.emulated_devices].
#include "cuda/scan/time_parts.hpp"

#include "cuda/cuda_test.hpp"
#include "cuda/scan/on_devices.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"
#include "support/scan_grad_case.hpp"

namespace exphil::test {
namespace {

using core::Direction;
using core::Dtype;
using core::ScanOperand;
using formulas::Discretization;

// Each part on a device of its own, or all on the first one, side by side.
enum class On { several, one };

// A call whose tensors are cut into parts.
class CutCall {
 public:
  CutCall(const core::ScanCall& call, const std::vector<std::int64_t>& steps, On on = On::several)
      : call_(call) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      contexts_.push_back(cuda::Context::open(on == On::one ? 0 : static_cast<int>(i)));
      add_part(begin, steps[i]);
      begin += steps[i];
    }
  }
  const std::vector<cuda::TimePart>& parts() const { return parts_; }

  // The results, where the call has them. Those without steps: of the first or last part, or of all.
  void copy_results() {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const cuda::ContextGuard guard(*contexts_[i]);
      const auto to = cuda::from_step(call_.shape, call_.operands, begin);
      for (const ScanOperand id : core::all_operands<ScanOperand>()) {
        const core::Operand operand = core::describe(shape_of(parts_[i].steps), id);
        const bool is_state = id == ScanOperand::final_state || id == ScanOperand::grad_initial_state;
        if (!operand.present || operand.flow != core::Flow::out || operand.bytes() == 0) continue;
        if (is_state && i != state_part(id)) continue;
        REQUIRE(cuda::driver().cuMemcpyDtoH(to[id], parts_[i].operands[id], operand.bytes()) == CUDA_SUCCESS);
      }
      begin += parts_[i].steps;
    }
  }

 private:
  core::ScanShape shape_of(std::int64_t steps) const {
    core::ScanShape shape = call_.shape;
    shape.seq = steps;
    return shape;
  }
  std::size_t state_part(ScanOperand id) const {
    const bool reverse = call_.shape.options.direction == Direction::reverse;
    const bool behind = id == ScanOperand::final_state || id == ScanOperand::d_final_state;
    return reverse != behind ? contexts_.size() - 1 : 0;
  }
  void add_part(std::int64_t begin, std::int64_t steps) {
    cuda::Context& context = *contexts_.back();
    const cuda::ContextGuard guard(context);
    cuda::TimePart part{&context, steps, {}};
    const auto from = cuda::from_step(call_.shape, call_.operands, begin);
    for (const ScanOperand id : core::all_operands<ScanOperand>()) {
      const core::Operand operand = core::describe(shape_of(steps), id);
      if (!operand.present) continue;
      memory_.push_back(context.device_pool().allocate(operand.bytes()));
      part.operands[id] = memory_.back().address();
      if (operand.flow == core::Flow::out || operand.bytes() == 0) continue;
      REQUIRE(cuda::driver().cuMemcpyHtoD(part.operands[id], from[id], operand.bytes()) == CUDA_SUCCESS);
    }
    parts_.push_back(std::move(part));
  }

  const core::ScanCall call_;
  std::vector<std::shared_ptr<cuda::Context>> contexts_;
  std::vector<cuda::DeviceBuffer> memory_;
  std::vector<cuda::TimePart> parts_;
};

const std::vector<std::int64_t> kCuts[] = {{300}, {150, 150}, {1, 299}, {70, 80, 83, 67}};

void check_scan(const ScanSpec& spec, const std::vector<std::int64_t>& steps, std::int64_t first_block,
                On on = On::several) {
  INFO(steps.size() << " parts of " << spec.to_string() << ", first block " << first_block);
  const ScanCase c(spec);
  const auto scan = [&](const core::ScanCall& call) {
    CutCall cut(call, steps, on);
    cuda::scan_time_parts(call.shape, cut.parts(), first_block);
    cut.copy_results();
  };
  check_close(c.call().shape, scan_into(scan, c.call(), true), expect(c.call(), true), true);
}

void check_gradient_in_parts(const ScanSpec& spec, const std::vector<std::int64_t>& steps, bool with_d_final,
                             On on = On::several) {
  INFO(steps.size() << " parts of " << spec.to_string());
  const ScanGradCase c(spec, with_d_final);
  CHECK(scan_grad_mismatch(c.problem(), [&](const auto& problem, const auto& outputs) {
          const core::ScanCall call = core::gradient_call(problem, outputs);
          CutCall cut(call, steps, on);
          cuda::scan_gradient_time_parts(call.shape, cut.parts());
          cut.copy_results();
        }) == "");
}

// Kinds of a sequence of so many steps.
ScanSpec kind_of_parts(std::int64_t seq, int kind) {
  ScanSpec spec = long_spec(1, seq);
  spec.options.direction = kind % 2 == 1 ? Direction::reverse : Direction::forward;
  spec.complex = kind == 2, spec.initial_state = kind != 2;
  if (kind == 1) spec.options.discretization = Discretization::bilinear, spec.b_groups = 0;
  if (kind == 3) spec.dtype = Dtype::bf16, spec.c_groups = 0;
  return spec;
}

TEST_CASE("the time of a scan in the memory of several devices", "[.emulated_devices]") {
  emulate_launches();
  for (const Direction direction : {Direction::forward, Direction::reverse}) {
    ScanSpec spec = long_spec(1, 300);
    spec.options.direction = direction, spec.complex = direction == Direction::reverse;
    for (const std::vector<std::int64_t>& steps : kCuts) {
      for (const std::int64_t first_block : {1, 16, 1000}) check_scan(spec, steps, first_block);
    }
  }
  check_scan(kind_of_parts(300, 0), {150, 150}, 16, On::one);
}

GradResults gradient_of(const ScanGradCase& c, const std::vector<std::int64_t>& steps) {
  GradResults results(c.problem());
  const core::ScanCall call = core::gradient_call(c.problem(), results.outputs());
  CutCall cut(call, steps, On::one);
  cuda::scan_gradient_time_parts(call.shape, cut.parts());
  cut.copy_results();
  return results;
}

// Against the gradient of the whole: of states as slow as long_spec()'s over thousands of steps that is up to
// 1e-4 off float64 itself, and the host's 1.2e-4.
void check_like_whole(const ScanSpec& spec, const std::vector<std::int64_t>& steps, bool with_d_final) {
  const ScanGradCase c(spec, with_d_final);
  const GradResults whole = gradient_of(c, {spec.seq}), parts = gradient_of(c, steps);
  for (const auto& [name, no_values] : named(core::ScanGradValues<double>{})) {
    INFO(name << ", " << steps.size() << " parts of " << spec.to_string());
    CHECK(relative_error(parts.values(name), whole.values(name)) <= 1e-5);
  }
}

// In parts of a thousand steps and more, side by side on one device.
void check_long_parts() {
  for (int kind = 0; kind < 4; ++kind) {
    ScanSpec spec = kind_of_parts(2500, kind);
    spec.dim = 70, spec.state = 16;
    const std::vector<std::int64_t> cuts[] = {{1300, 1200}, {900, 65, 1535}};
    if (spec.dtype == Dtype::f32) {
      for (const std::vector<std::int64_t>& steps : cuts) check_like_whole(spec, steps, kind != 1);
    }
    // States that keep less, against float64.
    spec.options.dt_max = 0.2f;
    for (const std::vector<std::int64_t>& steps : cuts) {
      if (spec.dtype == Dtype::f32) check_scan(spec, steps, 64, On::one);
      check_gradient_in_parts(spec, steps, kind != 1, On::one);
    }
  }
}

TEST_CASE("the time of a scan and of its gradient in parts on the GPU", "[cuda][gpu][scan][devices]") {
  if (have_device()) check_long_parts();
}

TEST_CASE("the time of a scan and of its gradient in long parts", "[.emulated_devices]") {
  emulate_launches();
  check_long_parts();
}

TEST_CASE("steps that no longer depend on the state are scanned once", "[.emulated_devices]") {
  emulate_launches();
  ScanSpec spec = long_spec(1, 2000);
  // Half of a state is left after each step or less: nothing of it after the first 64.
  spec.options.dt_min = spec.options.dt_max = 100.0f;
  const ScanCase c(spec);
  int launched = 0;
  const auto scan = [&](const core::ScanCall& call) {
    CutCall cut(call, {1000, 1000});
    const int before = scans_launched();
    cuda::scan_time_parts(call.shape, cut.parts(), 64);
    launched = scans_launched() - before;
    cut.copy_results();
  };
  check_close(c.call().shape, scan_into(scan, c.call(), false), expect(c.call(), false), false);
  // The first part; then blocks of 64, 64, 128, 256 and 488 steps, and the first of them again. Where the
  // first part has ended before the second begins: one scan.
  CHECK((launched == 2 || launched == 1 + 5 + 1));
}

TEST_CASE("parts that are no parts of a scan are refused", "[.emulated_devices]") {
  emulate_launches();
  const ScanCase c(long_spec(1, 300));
  CutCall cut(c.call(), {150, 150});
  core::ScanShape shape = c.call().shape;
  shape.seq = 301;
  CHECK(thrown_by([&] { cuda::scan_time_parts(shape, cut.parts()); }).kind() ==
        core::ErrorKind::invalid_argument);
  // Of a gradient each has several segments.
  const ScanGradCase grad(long_spec(1, 300));
  GradResults results(grad.problem());
  const core::ScanCall call = core::gradient_call(grad.problem(), results.outputs());
  for (const std::vector<std::int64_t>& steps :
       {std::vector<std::int64_t>{64, 236}, {100, 64, 136}, {236, 64}}) {
    // The parts that could be computed do not wait for the one that is refused.
    CutCall parts(call, steps);
    CHECK(thrown_by([&] { cuda::scan_gradient_time_parts(call.shape, parts.parts()); }).kind() ==
          core::ErrorKind::invalid_argument);
  }
}

TEST_CASE("the time of a gradient in the memory of several devices", "[.emulated_devices]") {
  emulate_launches();
  for (int kind = 0; kind < 4; ++kind) {
    for (const std::vector<std::int64_t>& steps : {kCuts[0], kCuts[1], kCuts[3]}) {
      check_gradient_in_parts(kind_of_parts(300, kind), steps, kind != 1);
    }
  }
  check_gradient_in_parts(kind_of_parts(300, 0), {150, 150}, true, On::one);
}

TEST_CASE("cuts of time over several devices", "[cuda][scan][devices]") {
  for (const std::int64_t seq :
       {std::int64_t{64}, std::int64_t{1001}, std::int64_t{1} << 20, std::int64_t{1} << 61}) {
    for (const std::size_t count : {1, 2, 3, 8}) {
      INFO(seq << " steps, " << count << " parts");
      CHECK(cuda::time_cut(seq, 0, count) == 0);
      CHECK(cuda::time_cut(seq, count, count) == seq);
      const auto steps = [&](std::size_t part) {
        return cuda::time_cut(seq, part + 1, count) - cuda::time_cut(seq, part, count);
      };
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(steps(i) > 0);
        CHECK(std::abs(steps(i) - steps(0)) <= 1);
      }
    }
  }
}

}  // namespace
}  // namespace exphil::test
