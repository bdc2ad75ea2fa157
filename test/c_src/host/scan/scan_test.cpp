// The host scan against the float64 goldens and the scalar oracle, on every SIMD target.
#include "host/scan/scan.hpp"

#include <cmath>
#include <cstring>

#include "core/work/parallel.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/goldens.hpp"
#include "support/numbers.hpp"
#include "support/scan_case.hpp"

namespace exphil {

namespace {

using core::Direction;
using core::Dtype;
using core::ScanCall;
using core::ScanOperand;
using formulas::Discretization;
using test::relative_error;
using test::ScanCase;
using test::ScanSpec;

// The results of a scan. Guards after each array detect writes beyond its end; NaN in it marks elements that
// were never written.
struct Results {
  static constexpr std::size_t kGuard = 64;
  std::vector<unsigned char> y, y_reverse;
  std::vector<float> final_state, states;

  static std::vector<unsigned char> bytes(std::size_t count) {
    return std::vector<unsigned char>(count + kGuard, 0xff);
  }
  bool guards_intact() const {
    const auto intact = [](const std::vector<unsigned char>& v) {
      for (std::size_t i = v.size() < kGuard ? 0 : v.size() - kGuard; i < v.size(); ++i) {
        if (v[i] != 0xff) return false;
      }
      return true;
    };
    return intact(y) && intact(y_reverse);
  }
  bool operator==(const Results& other) const {
    return y == other.y && y_reverse == other.y_reverse && same(final_state, other.final_state) &&
           same(states, other.states);
  }
  static bool same(const std::vector<float>& p, const std::vector<float>& q) {
    return p.size() == q.size() &&
           (p.empty() || std::memcmp(p.data(), q.data(), p.size() * sizeof(float)) == 0);
  }
};

Results run(ScanCall call, bool with_states) {
  const core::ScanShape& shape = call.shape;
  const std::size_t y = static_cast<std::size_t>(shape.y_elements()) * core::dtype_size(shape.dtype);
  const std::size_t state = static_cast<std::size_t>(shape.state_floats());
  const bool both = shape.options.direction == Direction::both;
  Results results;
  results.y = Results::bytes(y);
  call.set(ScanOperand::y, results.y.data());
  if (both) {
    results.y_reverse = Results::bytes(y);
    call.set(ScanOperand::y_reverse, results.y_reverse.data());
  } else {
    results.final_state.assign(state, std::nanf(""));
    call.set(ScanOperand::final_state, results.final_state.data());
    if (with_states) {
      results.states.assign(state * static_cast<std::size_t>(shape.seq), std::nanf(""));
      call.set(ScanOperand::states, results.states.data());
    }
  }
  host::selective_scan(call);
  return results;
}

double tolerance(Dtype dtype) {
  return dtype == Dtype::f32 ? 1e-5 : dtype == Dtype::f16 ? 2e-3 : 1.5e-2;
}

void check(const ScanSpec& spec, bool with_states = false) {
  INFO(host::simd_target() << ": " << spec.to_string());
  const ScanCase scan(spec);
  const ScanCall call = scan.call();
  const bool both = spec.options.direction == Direction::both;
  const test::ScanExpected expected = test::expect(call, with_states && !both);
  const Results results = run(call, with_states);
  CHECK(results.guards_intact());
  const std::size_t count = expected.y.size();
  CHECK(relative_error(test::widen_result(results.y.data(), spec.dtype, count), expected.y) <=
        tolerance(spec.dtype));
  if (both) {
    CHECK(relative_error(test::widen_result(results.y_reverse.data(), spec.dtype, count),
                         expected.y_reverse) <= tolerance(spec.dtype));
  } else {
    CHECK(relative_error(results.final_state, expected.final_state) <= 1e-5);
    if (with_states) CHECK(relative_error(results.states, expected.states) <= 1e-5);
  }
}

constexpr std::int64_t kStates[] = {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 128, 256};
constexpr std::int64_t kSeqs[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 60, 127, 1000};
constexpr std::int64_t kDims[] = {1, 3, 15, 16, 17, 31, 64, 65, 1031};

// A {dim, state, state} needs bilinear, an initial state needs one direction, c64 needs f32.
bool legal(const ScanSpec& spec) {
  if (spec.complex && spec.dtype != Dtype::f32) return false;
  if (spec.initial_state && spec.options.direction == Direction::both) return false;
  return !spec.full_matrix || (!spec.complex && spec.options.discretization == Discretization::bilinear);
}

// The switches of a scan, so that every pair of them can be turned on.
constexpr int kSwitches = 18;
void turn_on(int which, ScanSpec* spec) {
  switch (which) {
    case 0:
      spec->d = true;
      break;
    case 1:
      spec->z = true;
      break;
    case 2:
      spec->dt_bias = true;
      break;
    case 3:
      spec->initial_state = true;
      break;
    case 4:
      spec->options.dt_softplus = true;
      break;
    case 5:
      spec->options.dt_min = 0.05f, spec->options.dt_max = 0.2f;
      break;
    case 6:
      spec->options.direction = Direction::reverse;
      break;
    case 7:
      spec->options.direction = Direction::both;
      break;
    case 8:
      spec->b_groups = 0;
      break;
    case 9:
      spec->c_groups = 0;
      break;
    case 10:
      spec->b_groups = 2;
      break;
    case 11:
      spec->c_groups = 4;
      break;
    case 12:
      spec->complex = true;
      break;
    case 13:
      spec->dtype = Dtype::f16;
      break;
    case 14:
      spec->dtype = Dtype::bf16;
      break;
    case 15:
      spec->full_matrix = true;
      break;
    case 16:
      spec->options.algorithm = core::ScanAlgorithm::chunked;
      break;
    default:
      spec->structured_a = true;
      break;
  }
}

}  // namespace

TEST_CASE("the host scan agrees with every golden on every SIMD target", "[host][scan]") {
  const std::vector<std::string> names = test::golden_names();
  if (names.empty()) return;
  CHECK(names.size() == 40);
  test::for_each_target([&] {
    for (const std::string& name : names) {
      INFO(host::simd_target() << ": " << name);
      const test::Golden golden = test::load_golden(name);
      const Results results = run(golden.call(), true);
      CHECK(relative_error(test::widen_result(results.y.data(), Dtype::f32, golden.y.size()), golden.y) <=
            1e-5);
      CHECK(relative_error(results.final_state, golden.final_state) <= 1e-5);
      if (!golden.states.empty()) CHECK(relative_error(results.states, golden.states) <= 1e-5);
    }
  });
}

TEST_CASE("every pair of options, with every discretization", "[host][scan]") {
  test::for_each_target([] {
    for (int rule = 0; rule < 6; ++rule) {
      for (int i = 0; i < kSwitches; ++i) {
        for (int j = i; j < kSwitches; ++j) {
          ScanSpec spec;
          spec.batch = 2, spec.seq = 18, spec.dim = 20, spec.state = 3;
          spec.seed = static_cast<std::uint64_t>(1000 * rule + 50 * i + j);
          spec.options.discretization = static_cast<Discretization>(rule);
          turn_on(i, &spec);
          turn_on(j, &spec);
          if (legal(spec)) check(spec, true);
        }
      }
    }
  });
}

TEST_CASE("every state size", "[host][scan]") {
  test::for_each_target([] {
    for (const std::int64_t state : kStates) {
      ScanSpec spec;
      spec.seq = 18, spec.dim = 18, spec.state = state;
      spec.d = spec.initial_state = true;
      check(spec, true);
      spec.complex = true;
      check(spec);
      spec.complex = false, spec.dtype = Dtype::bf16, spec.b_groups = 3;
      check(spec);
      if (state > core::kMaxFullMatrixState) continue;
      spec.dtype = Dtype::f32, spec.full_matrix = true;
      spec.options.discretization = Discretization::bilinear;
      check(spec);
    }
  });
}

TEST_CASE("every length and every width", "[host][scan]") {
  test::for_each_target([] {
    for (const std::int64_t seq : kSeqs) {
      ScanSpec spec;
      spec.batch = 1, spec.seq = seq, spec.dim = 19, spec.state = 4;
      spec.z = spec.initial_state = true;
      check(spec, true);
      spec.options.direction = Direction::reverse, spec.dtype = Dtype::f16;
      check(spec, true);
    }
    for (const std::int64_t dim : kDims) {
      ScanSpec spec;
      spec.seq = 5, spec.dim = dim, spec.state = 4;
      spec.z = spec.d = spec.dt_bias = true;
      spec.options.dt_softplus = true;
      check(spec, true);
      spec.b_groups = dim, spec.c_groups = 0;  // a group for each channel
      check(spec);
      spec.dtype = Dtype::bf16;
      check(spec);
    }
  });
}

TEST_CASE("A of -1, -2, ... takes the powers of one exponential", "[host][scan]") {
  test::for_each_target([] {
    ScanSpec spec;
    spec.ladder_a = spec.initial_state = true;
    for (const std::int64_t state : {1, 2, 3, 16, 17, 64, 256}) {
      spec.seq = 70, spec.dim = 33, spec.state = state;
      check(spec, true);
    }
    spec.dim = 3, spec.state = 16, spec.seq = 70001, spec.dtype = Dtype::f32;
    check(spec);
    spec.seq = 60, spec.b_groups = 3, spec.c_groups = 0, spec.dtype = Dtype::bf16, spec.d = true;
    check(spec);
    spec.options.dt_max = 40.0f, spec.options.dt_min = 30.0f;  // e^-dt' to the 16th is below the least float
    check(spec);
  });
}

// Which channels share the lanes of a panel decides who takes powers: 16 of them.
TEST_CASE("a channel with another A changes no bit of channels that are far from it", "[host][scan]") {
  ScanSpec spec;
  spec.ladder_a = true, spec.dim = 40, spec.state = 16, spec.seq = 21, spec.batch = 1;
  const ScanCase all(spec), other(spec);
  const_cast<float*>(static_cast<const float*>(other.inputs().a.data))[33 * 16 + 5] = -7.0f;
  test::for_each_target([&] {
    const Results expected = run(all.call(), false), results = run(other.call(), false);
    const auto same = [&](std::size_t channel) {
      for (std::size_t row = 0; row < 21; ++row) {
        const std::size_t at = (row * 40 + channel) * sizeof(float);
        if (std::memcmp(&results.y[at], &expected.y[at], sizeof(float)) != 0) return false;
      }
      return true;
    };
    for (std::size_t channel = 0; channel < 32; ++channel) CHECK(same(channel));
    CHECK_FALSE(same(33));
  });
}

TEST_CASE("a full matrix that needs pivoting", "[host][scan]") {
  // I - dt A/2 has a zero diagonal: it cannot be solved without a row exchange.
  const float a[] = {2.0f, 4.0f, -4.0f, 2.0f}, x[] = {1.0f, -2.0f}, dt[] = {1.0f, 1.0f};
  const float b[] = {1.0f, 0.5f, -1.0f, 2.0f}, c[] = {1.0f, 1.0f, 0.5f, -1.0f};
  core::ScanInputs inputs;
  inputs.x = {Dtype::f32, {1, 2, 1}, x, sizeof x};
  inputs.dt = {Dtype::f32, {1, 2, 1}, dt, sizeof dt};
  inputs.a = {Dtype::f32, {1, 2, 2}, a, sizeof a};
  inputs.b = {Dtype::f32, {1, 2, 2}, b, sizeof b};
  inputs.c = {Dtype::f32, {1, 2, 2}, c, sizeof c};
  core::ScanOptions options;
  options.discretization = Discretization::bilinear;
  const ScanCall call = core::validate_scan(inputs, options);
  const test::ScanExpected expected = test::expect(call);
  test::for_each_target([&] {
    INFO(host::simd_target());
    const Results results = run(call, false);
    CHECK(relative_error(test::widen_result(results.y.data(), Dtype::f32, 2), expected.y) < 1e-6);
    CHECK(relative_error(results.final_state, expected.final_state) < 1e-6);
  });
}

TEST_CASE("the same bits for any thread count, algorithm and batch", "[host][scan]") {
  ScanSpec spec;
  spec.batch = 5, spec.seq = 40, spec.dim = 200, spec.state = 16;
  spec.d = spec.z = spec.initial_state = true;
  spec.complex = GENERATE(false, true);
  const ScanCase scan(spec);
  ScanCall call = scan.call();
  const Results expected = run(call, true);
  core::set_threads(1);
  CHECK(run(call, true) == expected);
  core::set_threads(2);
  CHECK(run(call, true) == expected);
  core::set_threads(0);
  call.shape.options.algorithm = core::ScanAlgorithm::chunked;
  CHECK(run(call, true) == expected);
  // The third sequence alone.
  const std::int64_t stream = spec.seq * spec.dim;
  const Results single = run(test::slice_of(call, 2, 1), true);
  const std::size_t bytes = static_cast<std::size_t>(stream) * sizeof(float);
  CHECK(std::memcmp(single.y.data(), expected.y.data() + 2 * bytes, bytes) == 0);
  CHECK(std::memcmp(single.states.data(), expected.states.data() + 2 * single.states.size(),
                    single.states.size() * sizeof(float)) == 0);
}

TEST_CASE("a sequence in two pieces gives the bits of one call", "[host][scan]") {
  ScanSpec spec;
  spec.batch = 1, spec.seq = 37, spec.dim = 21, spec.state = 5;
  spec.d = spec.z = true;
  spec.options.discretization = static_cast<Discretization>(GENERATE(0, 1, 2, 3, 4, 5));
  const ScanCase scan(spec);
  const ScanCall full = scan.call();
  const Results expected = run(full, true);
  for (std::int64_t cut = 0; cut <= spec.seq; ++cut) {
    ScanCall first = full, second = full;
    first.shape.seq = cut, second.shape.seq = spec.seq - cut;
    const auto skip = [&](ScanOperand id, std::int64_t row) {
      second.operands[id] = static_cast<float*>(full.operands[id]) + cut * row;
    };
    skip(ScanOperand::x, spec.dim), skip(ScanOperand::dt, spec.dim), skip(ScanOperand::z, spec.dim);
    skip(ScanOperand::b, spec.state), skip(ScanOperand::c, spec.state);
    const Results head = run(first, true);
    second.set(ScanOperand::initial_state, head.final_state.data());
    const Results tail = run(second, true);
    std::vector<unsigned char> y(head.y.begin(), head.y.end() - Results::kGuard);
    y.insert(y.end(), tail.y.begin(), tail.y.end());
    CHECK(y == expected.y);
    CHECK(Results::same(tail.final_state, expected.final_state));
  }
}

TEST_CASE("NaN reaches its own channel and no other; dt of zero keeps the state", "[host][scan]") {
  ScanSpec spec;
  spec.batch = 1, spec.seq = 3, spec.dim = 20, spec.state = 2;
  spec.initial_state = true;
  spec.options.dt_max = 5.0f;
  const ScanCase scan(spec);
  std::vector<float> dt(60, 0.0f);
  dt[4] = std::nanf("");
  core::ScanInputs inputs = scan.inputs();
  inputs.dt.data = dt.data();
  const ScanCall call = core::validate_scan(inputs, spec.options);
  const auto* initial = static_cast<const float*>(call.operands[ScanOperand::initial_state]);
  test::for_each_target([&] {
    INFO(host::simd_target());
    const Results results = run(call, false);
    const auto* y = reinterpret_cast<const float*>(results.y.data());
    for (int channel = 0; channel < 20; ++channel) {
      CHECK(std::isnan(y[40 + channel]) == (channel == 4));
      if (channel == 4) continue;
      CHECK(results.final_state[2 * channel] == initial[2 * channel]);
      CHECK(results.final_state[2 * channel + 1] == initial[2 * channel + 1]);
    }
  });
}

TEST_CASE("unwanted outputs are not written", "[host][scan]") {
  ScanSpec spec;
  const ScanCase scan(spec);
  const Results expected = run(scan.call(), false);
  ScanCall call = scan.call();
  std::vector<float> state(static_cast<std::size_t>(call.shape.state_floats()));
  call.set(ScanOperand::final_state, state.data());
  host::selective_scan(call);
  CHECK(Results::same(state, expected.final_state));
  host::selective_scan(scan.call());
}

}  // namespace exphil
