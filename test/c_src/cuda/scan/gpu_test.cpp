// The selective scan on a real device through run_scan: goldens, sweeps against the oracle, and the same bits
// in any batch.
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "core/half.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/scan/run_case.hpp"
#include "support/catch.hpp"
#include "support/goldens.hpp"
#include "support/numbers.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {
namespace {

using core::Direction;
using core::Dtype;
using core::ScanAlgorithm;
using core::ScanCall;
using core::ScanOperand;
using formulas::Discretization;

// Both algorithms against the oracle.
void check_spec(ScanSpec spec, bool with_states = false) {
  for (const auto algorithm : {ScanAlgorithm::sequential, ScanAlgorithm::chunked}) {
    spec.options.algorithm = algorithm;
    if (spec.full_matrix && algorithm == ScanAlgorithm::chunked) continue;
    const ScanCase c(spec);
    INFO(spec.to_string() << " algorithm " << static_cast<int>(algorithm));
    check_close(c.call().shape, scan_on_device(c.call(), with_states), expect(c.call(), with_states),
                with_states);
  }
}

// y and the final state have the same bits with and without the output of every state.
void check_states_change_nothing(const ScanSpec& spec) {
  const ScanCase c(spec);
  Results with = scan_on_device(c.call(), true);
  with.states.clear();
  INFO(spec.to_string());
  CHECK(with.same_bits(scan_on_device(c.call())));
}

TEST_CASE("the device's scan agrees with every golden", "[cuda][gpu][scan]") {
  if (!have_device()) return;
  for (const std::string& name : golden_names()) {
    for (const auto algorithm :
         {ScanAlgorithm::automatic, ScanAlgorithm::sequential, ScanAlgorithm::chunked}) {
      Golden golden = load_golden(name);
      golden.options.algorithm = algorithm;
      const ScanCall call = golden.call();
      if (call.shape.full_matrix && algorithm == ScanAlgorithm::chunked) continue;
      INFO(name << " algorithm " << static_cast<int>(algorithm));
      ScanExpected want;
      want.y = golden.y, want.final_state = golden.final_state, want.states = golden.states;
      check_close(call.shape, scan_on_device(call, !want.states.empty()), want, !want.states.empty());
    }
  }
}

// {batch, seq, dim, state} with A of -1, -2, ..., but for one channel where `but` is not negative.
ScanCase ladder_case(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state,
                     int but = -1) {
  ScanSpec spec;
  spec.batch = batch, spec.seq = seq, spec.dim = dim, spec.state = state;
  spec.ladder_a = spec.initial_state = true;
  spec.options.algorithm = ScanAlgorithm::chunked;
  ScanCase c(spec);
  if (but >= 0) {
    float* a = const_cast<float*>(static_cast<const float*>(c.inputs().a.data));
    a[but * state + state - 1] *= 1.5f;
  }
  return c;
}

TEST_CASE("the device's scan with A of -1, -2, ... takes the powers of one exponential",
          "[cuda][gpu][scan]") {
  if (!have_device()) return;
  for (const std::int64_t state : {1, 2, 3, 15, 16, 17, 64, 256}) {
    const ScanCase c = ladder_case(2, 150, 40, state);
    INFO(c.spec().to_string());
    check_close(c.call().shape, scan_on_device(c.call(), true), expect(c.call(), true), true);
  }
  for (const std::int64_t dim : {3, 520}) {
    const ScanCase c = ladder_case(1, dim == 3 ? 70001 : 1000, dim, 16);
    check_close(c.call().shape, scan_on_device(c.call()), expect(c.call()), false);
  }
}

TEST_CASE("on a device a channel with another A changes no bit of channels that are far from it",
          "[cuda][gpu][scan]") {
  if (!have_device()) return;
  const ScanCase all = ladder_case(2, 150, 40, 16), but = ladder_case(2, 150, 40, 16, 33);
  check_close(but.call().shape, scan_on_device(but.call()), expect(but.call()), false);
  const Results of_all = scan_on_device(all.call()), of_but = scan_on_device(but.call());
  constexpr std::size_t kRow = 40 * sizeof(float), kFar = 32 * sizeof(float);
  for (std::size_t row = 0; row < of_all.y.size(); row += kRow) {
    REQUIRE(std::memcmp(&of_all.y[row], &of_but.y[row], kFar) == 0);
  }
}

TEST_CASE("the device's scan for every state, length and width", "[cuda][gpu][scan]") {
  if (!have_device()) return;
  for (const std::int64_t state : {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 128, 256}) {
    ScanSpec spec;
    spec.state = state, spec.seq = 70, spec.dim = 33;
    check_spec(spec, true);
    spec.complex = true, spec.initial_state = true;
    check_spec(spec);
  }
  for (const std::int64_t seq : {0, 1, 2, 31, 32, 33, 60, 127, 1000, 4097, 70001}) {
    ScanSpec spec;
    spec.seq = seq, spec.state = 16, spec.dim = 3, spec.d = true, spec.initial_state = seq % 2 == 0;
    check_spec(spec);
  }
  for (const std::int64_t dim : {1, 3, 31, 64, 65, 1031}) {
    ScanSpec spec;
    spec.dim = dim, spec.state = 16, spec.seq = 97, spec.z = true;
    check_spec(spec);
  }
}

TEST_CASE("the device's scan for every type, rule, layout and direction", "[cuda][gpu][scan]") {
  if (!have_device()) return;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (int rule = 0; rule < 6; ++rule) {
      ScanSpec spec;
      spec.dtype = dtype, spec.seq = 140, spec.dim = 24, spec.state = 16;
      spec.d = spec.z = spec.dt_bias = spec.initial_state = spec.options.dt_softplus = true;
      spec.options.discretization = static_cast<Discretization>(rule);
      check_spec(spec);
      spec.complex = dtype == Dtype::f32;
      spec.d = spec.z = spec.options.dt_softplus = false;
      spec.options.dt_min = 0.01f, spec.options.dt_max = 0.2f;
      check_spec(spec);
    }
    for (const int b_groups : {0, 1, 2}) {
      for (const int c_groups : {0, 1, 3}) {
        for (const auto direction : {Direction::forward, Direction::reverse, Direction::both}) {
          ScanSpec spec;
          spec.dtype = dtype, spec.seq = 75, spec.dim = 42, spec.state = 6;
          spec.b_groups = b_groups, spec.c_groups = c_groups, spec.options.direction = direction;
          check_spec(spec);
        }
      }
    }
  }
  for (const std::int64_t state : {1, 5, 16, 32}) {
    ScanSpec spec;
    spec.full_matrix = true, spec.state = state, spec.seq = 40, spec.dim = 7,
    spec.z = spec.initial_state = true;
    spec.options.discretization = Discretization::bilinear;
    check_spec(spec, true);
  }
}

TEST_CASE("the wide kernel for every state, type and end of a tile", "[cuda][gpu][scan]") {
  if (!have_device()) return;
  for (const std::int64_t state : {4, 8, 16, 32, 64, 128}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      ScanSpec spec;
      spec.state = state, spec.dtype = dtype, spec.dim = 70, spec.seq = 61;
      spec.d = spec.z = spec.dt_bias = spec.initial_state = spec.options.dt_softplus = true;
      check_spec(spec, true);
      spec.dim = 72, spec.b_groups = 2, spec.c_groups = 3, spec.options.direction = Direction::both;
      spec.initial_state = false;
      check_spec(spec);
    }
  }
  for (const std::int64_t seq : {1, 7, 8, 9, 19, 20, 21, 40, 41, 59, 63}) {
    ScanSpec spec;
    spec.state = 16, spec.dim = 64, spec.seq = seq, spec.dt_bias = spec.options.dt_softplus = true;
    spec.options.direction = seq % 2 == 0 ? Direction::forward : Direction::reverse;
    check_spec(spec);
    check_states_change_nothing(spec);
  }
}

TEST_CASE("the short kernel for every state, type and end", "[cuda][gpu][scan]") {
  if (!have_device()) return;
  for (const std::int64_t state : {8, 16, 24, 64}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      ScanSpec spec;
      spec.state = state, spec.dtype = dtype, spec.dim = 70, spec.seq = 300;
      spec.d = spec.z = spec.dt_bias = spec.initial_state = spec.options.dt_softplus = true;
      check_spec(spec, true);
      spec.dim = 72, spec.b_groups = 2, spec.c_groups = 3, spec.options.direction = Direction::both;
      spec.initial_state = false;
      check_spec(spec);
    }
  }
  for (const std::int64_t seq : {0, 1, 15, 16, 17, 127, 128, 129, 896, 897, 1023, 1024}) {
    ScanSpec spec;
    spec.state = 16, spec.dim = 33, spec.seq = seq, spec.dt_bias = spec.options.dt_softplus = true;
    spec.initial_state = true;
    spec.options.algorithm = core::ScanAlgorithm::chunked;
    spec.options.discretization =
        seq % 2 == 0 ? formulas::Discretization::zoh : formulas::Discretization::bilinear;
    spec.options.direction = seq % 3 == 0 ? Direction::forward : Direction::reverse;
    check_spec(spec);
    check_states_change_nothing(spec);
  }
}

TEST_CASE("the device gives the same bits again, in any batch and from any thread", "[cuda][gpu][scan]") {
  if (!have_device()) return;
  for (const std::int64_t seq : {40, 60, 300, 1024}) {
    ScanSpec spec;
    spec.batch = 40, spec.seq = seq, spec.dim = 200, spec.state = 16, spec.z = true;
    const ScanCase c(spec);
    const ScanCall p = c.call();
    const Results full = scan_on_device(p);
    CHECK(scan_on_device(p).same_bits(full));
    const std::size_t row = static_cast<std::size_t>(seq * spec.dim) * 4;
    for (const std::int64_t first : {0, 17, 39}) {
      const Results alone = scan_on_device(slice_of(p, first, 1));
      INFO("seq " << seq << " sequence " << first);
      CHECK(std::memcmp(alone.y.data(), full.y.data() + static_cast<std::size_t>(first) * row, row) == 0);
    }
    std::vector<int> same(4);
    std::vector<std::thread> threads;
    for (int& result : same)
      threads.emplace_back([&] { result = scan_on_device(p).same_bits(full) ? 1 : 0; });
    for (std::thread& thread : threads) thread.join();
    CHECK(same == std::vector<int>(4, 1));
  }
}

TEST_CASE("a scan of more than 2^31 elements has correct last elements", "[cuda][gpu][scan][large]") {
  if (!have_device()) return;
  // 2^31 + 2^20 elements of bf16: 4.3 GB each for x, dt and y. The sequence that crosses the limit is
  // compared.
  ScanCall call;
  core::ScanShape& p = call.shape;
  p.batch = 2049, p.seq = 1024, p.dim = 1024, p.state = 2, p.dtype = Dtype::bf16;
  const std::size_t row = static_cast<std::size_t>(p.seq * p.dim),
                    count = row * static_cast<std::size_t>(p.batch);
  Random random(5);
  std::vector<std::uint16_t> block(row);
  for (auto& value : block) value = core::f32_to_bf16(random.uniform(0.001f, 0.1f));
  std::vector<std::uint16_t> x(count), y(count);
  for (std::size_t i = 0; i < count; i += row) std::memcpy(&x[i], block.data(), row * 2);
  std::vector<std::uint16_t> projections(static_cast<std::size_t>(p.batch * p.seq * p.state));
  for (auto& value : projections) value = core::f32_to_bf16(random.uniform(-1.0f, 1.0f));
  const std::vector<float> a(static_cast<std::size_t>(p.dim * p.state), -1.0f);
  call.set(ScanOperand::x, x.data()), call.set(ScanOperand::dt, x.data()), call.set(ScanOperand::a, a.data());
  call.set(ScanOperand::b, projections.data()), call.set(ScanOperand::c, projections.data());
  call.set(ScanOperand::y, y.data());
  cuda::run_scan(*cuda::Context::open(0), call);
  const ScanExpected want = expect(slice_of(call, p.batch - 1, 1));
  CHECK(relative_error(widen_result(y.data() + (count - row), Dtype::bf16, row), want.y) <= 1.5e-2);
}

}  // namespace
}  // namespace exphil::test
