// A scan over several devices of an emulated machine (emulated_gpu.hpp), whose driver refuses a stream of
// another device's context, against the oracle and against one device.
#include "cuda/scan/devices.hpp"

#include "cuda/emulated_gpu.hpp"
#include "cuda/scan/run_case.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::Direction;
using core::Dtype;
using formulas::Discretization;

Results scan_on(int devices, const core::ScanCall& call, bool with_states) {
  std::vector<std::shared_ptr<cuda::Context>> contexts;
  for (int i = 0; i < devices; ++i) contexts.push_back(cuda::Context::open(i));
  return scan_into([&](const core::ScanCall& filled) { cuda::run_scan_on(contexts, filled); }, call,
                   with_states);
}

ScanSpec long_spec(std::int64_t batch, std::int64_t seq) {
  ScanSpec spec;
  spec.batch = batch, spec.seq = seq, spec.dim = 6, spec.state = 4;
  spec.d = spec.z = spec.dt_bias = spec.initial_state = true;
  spec.options.dt_softplus = true;
  // Some of a state is left after a part.
  spec.options.dt_max = 0.02f;
  spec.options.algorithm = core::ScanAlgorithm::sequential;
  return spec;
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
  const int before = emulated_launches("selective_scan_wide") + emulated_launches("selective_scan");
  scan_on(4, c.call(), false);
  // One of the first and of the last, three of each between them.
  CHECK(emulated_launches("selective_scan_wide") + emulated_launches("selective_scan") - before == 8);
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
