// How weights are rounded, and the policy of rounded weights.
#include "core/precision.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.hpp"
#include "core/policy/reference.hpp"
#include "core/policy/rounding.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/mamba.hpp"
#include "support/numbers.hpp"
#include "support/policy.hpp"
#include "support/policy_forms.hpp"

namespace exphil::core {

namespace {

using Floats = std::vector<float>;

Floats rounded(Precision precision, std::int64_t columns, Floats matrix) {
  round_rows(precision, columns, "m", &matrix);
  return matrix;
}

constexpr Precision kAll[] = {Precision::f32, Precision::bf16, Precision::f16, Precision::int8,
                              Precision::tf32x3};

}  // namespace

TEST_CASE("precisions have names and sizes", "[precision]") {
  for (const Precision precision : kAll) {
    Precision parsed = Precision::f32;
    CHECK(parse_precision(precision_name(precision), &parsed));
    CHECK(parsed == precision);
  }
  Precision parsed = Precision::f16;
  CHECK_FALSE(parse_precision("int4", &parsed));
  CHECK(parsed == Precision::f16);
  CHECK(stored_bytes(Precision::f32) == 4);
  CHECK(stored_bytes(Precision::bf16) == 2);
  CHECK(stored_bytes(Precision::f16) == 2);
  CHECK(stored_bytes(Precision::int8) == 1);
}

TEST_CASE("weights that are stored together have the bits of each", "[precision]") {
  Floats row = test::Random(2).vector(23, -3, 3);
  row[1] = -0.0f, row[2] = 1e-41f, row[3] = 70000.0f, row[4] = -1e30f;
  for (const Precision precision : kAll) {
    for (const float scale : {0.0f, 0.015625f}) {
      const auto bytes = static_cast<std::size_t>(stored_bytes(precision));
      std::vector<unsigned char> together(row.size() * bytes);
      store_weights(precision, row.data(), static_cast<std::int64_t>(row.size()), scale, together.data());
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::uint32_t bits = stored_bits(precision, row[i], scale);
        CHECK(std::memcmp(&bits, together.data() + i * bytes, bytes) == 0);
      }
    }
  }
  // Halves of the scale go to the even neighbour, and what is beyond 127 to that.
  const Floats halves = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 127.5f, -1e30f};
  std::vector<std::int8_t> q(halves.size());
  store_weights(Precision::int8, halves.data(), static_cast<std::int64_t>(halves.size()), 1.0f, q.data());
  CHECK(q == std::vector<std::int8_t>{0, 2, 2, 0, -2, -2, 127, -127});
}

TEST_CASE("int8 is the nearest multiple of the row's scale, and q times the scale is exact", "[precision]") {
  test::Random random(1);
  for (const float size : {1.0f, 3e-20f, 1e30f}) {
    Floats row = random.vector(999, -size, size);
    const float scale = row_scale(Precision::int8, row.data(), 999), largest = [&] {
      float most = 0;
      for (const float v : row) most = std::max(most, std::abs(v));
      return most;
    }();
    CHECK(std::abs(static_cast<double>(scale) * 127 / static_cast<double>(largest) - 1) <= 0x1p-17);
    const Floats to = rounded(Precision::int8, 999, row);
    bool near = true, exact = true, limited = true;
    for (std::size_t k = 0; k < row.size(); ++k) {
      const double q = static_cast<double>(to[k]) / static_cast<double>(scale);
      exact = exact && q == std::round(q);  // f32 holds q * scale
      limited = limited && std::abs(q) <= 127;
      near = near && std::abs(static_cast<double>(to[k]) - static_cast<double>(row[k])) <=
                         0.502 * static_cast<double>(scale);
    }
    CHECK(near);
    CHECK(exact);
    CHECK(limited);
  }
}

TEST_CASE("rounding twice changes nothing, and stored bits give the rounded value", "[precision]") {
  test::Random random(2);
  for (const Precision precision : kAll) {
    INFO(precision_name(precision));
    for (const std::int64_t columns : {1, 2, 7, 64}) {
      const Floats matrix = random.vector(static_cast<std::size_t>(columns * 20), -2, 2);
      const Floats once = rounded(precision, columns, matrix);
      CHECK(rounded(precision, columns, once) == once);
      bool same = true;
      for (std::int64_t row = 0; row < 20; ++row) {
        const float *before = matrix.data() + row * columns, *after = once.data() + row * columns;
        const float scale = row_scale(precision, after, columns);
        same = same && scale == row_scale(precision, before, columns);
        for (std::int64_t k = 0; k < columns; ++k) {
          same = same && stored_bits(precision, before[k], scale) == stored_bits(precision, after[k], scale);
          same = same && stored_value(precision, stored_bits(precision, after[k], scale), scale) == after[k];
        }
      }
      CHECK(same);
    }
  }
  CHECK(rounded(Precision::f32, 2, {0.1f, 1e-42f}) == Floats{0.1f, 1e-42f});
  CHECK(rounded(Precision::bf16, 1, {0.1f}) == Floats{bf16_to_f32(f32_to_bf16(0.1f))});
  CHECK(rounded(Precision::f16, 1, {0.1f}) == Floats{f16_to_f32(f32_to_f16(0.1f))});
}

TEST_CASE("rows of zeros and of tiny values are zeros in int8", "[precision]") {
  CHECK(rounded(Precision::int8, 2, {0, 0, 1e-35f, -1e-38f, -127, 0}) == Floats{0, 0, 0, 0, -127, 0});
}

TEST_CASE("what a precision cannot hold is refused by the matrix's name", "[precision]") {
  const auto error = [](Precision precision, float value) {
    return test::error_of([&] { rounded(precision, 2, {1, value}); });
  };
  const float inf = std::numeric_limits<float>::infinity();
  const test::CaughtError large = error(Precision::f16, 70000);
  CHECK(large.kind == ErrorKind::limit_exceeded);
  CHECK(large.argument == ":precision");
  CHECK(large.says("m has the weight 70000"));
  CHECK(large.says("65504"));
  CHECK_FALSE(error(Precision::f16, 65504).thrown);
  CHECK_FALSE(error(Precision::bf16, 70000).thrown);
  CHECK(error(Precision::int8, inf).kind == ErrorKind::limit_exceeded);
  CHECK(error(Precision::int8, std::nanf("")).says("finite"));
  CHECK_FALSE(error(Precision::f16, inf).thrown);  // check_finite: false lets it pass
  CHECK_FALSE(error(Precision::f32, inf).thrown);
}

TEST_CASE("a policy of rounded weights is near the original, in every form", "[precision][policy]") {
  for (const test::PolicyForm& form : test::policy_forms({})) {
    const PolicyConfig& c = form.weights->config;
    const Floats frames = test::Random(4).vector(static_cast<std::size_t>(8 * c.d_input), -1, 1);
    std::vector<double> exact(static_cast<std::size_t>(8 * c.d_output)), out = exact;
    policy_reference_window(*form.weights, frames.data(), 8, exact.data());
    for (const Precision precision : kAll) {
      INFO(form.name << " " << precision_name(precision));
      const PolicyWeights w = rounded_weights(*form.weights, precision);
      CHECK(w.config.precision == precision);
      policy_reference_window(w, frames.data(), 8, out.data());
      const double error = test::relative_error(out.data(), exact.data(), out.size());
      const bool f32 = precision == Precision::f32;
      CHECK((w.fingerprint == form.weights->fingerprint) == f32);
      CHECK(error <= (f32 ? 0 : precision == Precision::f16 ? 2e-3 : 3e-2));
      CHECK((error > 0) != f32);
      // Rounding again changes no number.
      std::vector<double> again(out.size());
      policy_reference_window(rounded_weights(w, precision), frames.data(), 8, again.data());
      CHECK(again == out);
    }
  }
}

TEST_CASE("a matrix that does not fit is named", "[precision][policy]") {
  PolicyWeights w = *test::make_policy({});
  const WeightId dt_proj = test::form_of(w.config).ids.layers[1].dt_proj;
  w.values[static_cast<std::size_t>(dt_proj)][3] = 1e6f;
  const test::CaughtError error = test::error_of([&] { rounded_weights(w, Precision::f16); });
  CHECK(error.says("layer 1's dt_proj has the weight 1e+06"));
}

}  // namespace exphil::core
