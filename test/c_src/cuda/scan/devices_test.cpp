// A scan and its gradient over several devices of an emulated machine (emulated_gpu.hpp), whose driver
// refuses a stream of another device's context, against the oracle and against one device.
#include "cuda/scan/devices.hpp"

#include "cuda/emulated_gpu.hpp"
#include "cuda/scan/on_devices.hpp"
#include "support/catch.hpp"
#include "support/scan_grad_case.hpp"

namespace exphil::test {
namespace {

using core::Direction;
using core::Dtype;
using formulas::Discretization;

Results scan_on(int devices, const core::ScanCall& call, bool with_states) {
  return scan_into([&](const core::ScanCall& filled) { cuda::run_scan_on(opened(devices), filled); }, call,
                   with_states);
}

void check(const ScanSpec& spec, bool same_bits, bool with_states = false) {
  const ScanCase c(spec);
  const ScanExpected right = expect(c.call(), with_states);
  const Results one = scan_on(1, c.call(), with_states);
  for (const int devices : {2, 3, 4}) {
    INFO(devices << " devices: " << spec.to_string());
    const Results several = scan_on(devices, c.call(), with_states);
    check_close(c.call().shape, several, right, with_states);
    if (same_bits) CHECK(several.same_bits(one));
  }
}

TEST_CASE("sequences over several devices have the bits of one", "[.emulated_devices]") {
  emulate_launches();
  for (const std::int64_t batch : {5, 8}) check(long_spec(batch, 70), true, batch == 5);
  ScanSpec spec = long_spec(4, 130);
  spec.options.direction = Direction::both, spec.initial_state = false;
  check(spec, true);
  // Too short to be split, and of kinds whose time is not.
  check(long_spec(1, 127), true);
  spec = long_spec(1, 256);
  spec.options.direction = Direction::both, spec.initial_state = false;
  check(spec, true);
  spec = long_spec(1, 256);
  spec.full_matrix = true, spec.options.discretization = Discretization::bilinear;
  check(spec, true);
}

TEST_CASE("the time of a long sequence is split over several devices", "[.emulated_devices]") {
  emulate_launches();
  check(long_spec(1, 301), false, true);
  check(long_spec(2, 260), false);
  for (const Discretization rule : {Discretization::zoh, Discretization::foh, Discretization::bilinear}) {
    ScanSpec spec = long_spec(1, 300);
    spec.options.discretization = rule, spec.b_groups = 0, spec.c_groups = 3;
    check(spec, false);
  }
  ScanSpec spec = long_spec(1, 290);
  spec.options.direction = Direction::reverse;
  check(spec, false, true);
  spec.complex = true, spec.initial_state = false;
  check(spec, false);
  spec = long_spec(1, 280);
  spec.dtype = Dtype::f16;
  check(spec, false);
}

// The work of each device, by what it launches: none computes all.
TEST_CASE("each device scans a part of a long sequence", "[.emulated_devices]") {
  emulate_launches();
  const ScanCase c(long_spec(1, 400));
  const int before = scans_launched();
  scan_on(4, c.call(), false);
  // One of the first; of each other one from zero and one from its state, or only that where the state is
  // known when it begins.
  CHECK(scans_launched() - before >= 4);
  CHECK(scans_launched() - before <= 7);
}

TEST_CASE("gradients of host tensors over several devices", "[.emulated_devices]") {
  emulate_launches();
  const auto check_gradient = [](const ScanSpec& spec) {
    const ScanGradCase c(spec);
    for (const int devices : {1, 2, 3, 4}) {
      INFO(devices << " devices: " << spec.to_string());
      CHECK(scan_grad_mismatch(c.problem(), [&](const auto& problem, const auto& outputs) {
              cuda::run_scan_grad_on(opened(devices), problem, outputs);
            }) == "");
    }
  };
  for (const std::int64_t batch : {1, 3, 5}) check_gradient(long_spec(batch, 130));
  check_gradient(long_spec(1, 1030)), check_gradient(long_spec(2, 530));
  ScanSpec spec = long_spec(1, 800);
  spec.options.direction = Direction::reverse, spec.complex = true;
  check_gradient(spec);
  spec = long_spec(2, 70);
  spec.full_matrix = true, spec.options.discretization = Discretization::bilinear;
  check_gradient(spec);
}

TEST_CASE("a device that is lost fails the scan, and no part waits for its state",
          "[.emulated_devices_lost]") {
  emulate_launches();
  const ScanCase c(long_spec(1, 400));
  scan_on(4, c.call(), false);
  fake().lose(1);
  for (int i = 0; i < 3; ++i) {
    CHECK(thrown_by([&] { scan_on(4, c.call(), false); }).kind() == core::ErrorKind::device_lost);
  }
  CHECK(fake().context_depth() == 0);
  scan_on(1, c.call(), false);
}

TEST_CASE("scans over several devices without a GPU", "[cuda][scan][devices][emulated]") {
  for (const char* tag : {"[.emulated_devices]", "[.emulated_devices_lost]"}) {
    CAPTURE(tag);
    require_emulated(tag, {{"FAKE_CUDA_DEVICES", "4"}});
  }
}

}  // namespace
}  // namespace exphil::test
