#include "host/simd/matmul.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include "host/simd/aligned.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::host {

namespace {

using core::Precision;

constexpr Precision kPrecisions[] = {Precision::f32, Precision::bf16, Precision::f16, Precision::int8};

struct Product {
  std::int64_t outs, depth;
  std::vector<float> weights, bias;
  AlignedBuffer memory;
  PackedMatrix packed;

  Product(std::int64_t outs_, std::int64_t depth_, bool with_bias, Precision precision = Precision::f32)
      : outs(outs_), depth(depth_), memory(packed_floats(outs_, depth_, precision)) {
    test::Random random(static_cast<std::uint64_t>(outs * 1000 + depth));
    weights = random.vector(static_cast<std::size_t>(outs * depth), -1, 1);
    core::round_rows(precision, depth, "weights", &weights);
    if (with_bias) bias = random.vector(static_cast<std::size_t>(outs), -1, 1);
    packed =
        pack_matrix(weights.data(), with_bias ? bias.data() : nullptr, outs, depth, memory.data(), precision);
  }

  std::vector<float> run(const std::vector<float>& x, std::int64_t rows) const {
    std::vector<float> y(static_cast<std::size_t>(rows * padded(outs)), std::nanf(""));
    multiply(packed, x.data(), depth, rows, {y.data(), padded(outs)}, Epilogue::store, 0, panels(outs));
    return y;
  }

  double exact(const float* x, std::int64_t out) const {
    double sum = bias.empty() ? 0 : static_cast<double>(bias[static_cast<std::size_t>(out)]);
    for (std::int64_t k = 0; k < depth; ++k) {
      sum +=
          static_cast<double>(x[k]) * static_cast<double>(weights[static_cast<std::size_t>(out * depth + k)]);
    }
    return sum;
  }
};

}  // namespace

TEST_CASE("products agree with double and pad with zeros", "[host][matmul]") {
  const Precision precision = GENERATE(from_range(std::begin(kPrecisions), std::end(kPrecisions)));
  test::for_each_target([precision] {
    for (const std::int64_t outs : {1, 15, 16, 17, 48, 64, 100}) {
      for (const std::int64_t depth : {1, 2, 3, 16, 61}) {
        for (const std::int64_t rows : {1, 2, 5, 6, 7, 13}) {
          INFO(simd_target() << " " << core::precision_name(precision) << " outs " << outs << " depth "
                             << depth << " rows " << rows);
          const Product product(outs, depth, outs % 2 == 1, precision);
          const std::vector<float> x = test::Random(3).vector(static_cast<std::size_t>(rows * depth), -1, 1);
          const std::vector<float> y = product.run(x, rows);
          double worst = 0;
          bool zero_padding = true;
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t out = 0; out < padded(outs); ++out) {
              const float got = y[static_cast<std::size_t>(r * padded(outs) + out)];
              if (out >= outs) {
                zero_padding = zero_padding && got == 0.0f;
              } else {
                worst = std::max(worst, std::abs(got - product.exact(x.data() + r * depth, out)));
              }
            }
          }
          CHECK(worst < 4e-6);  // 61 products of size 1, summed in f32
          CHECK(zero_padding);
        }
      }
    }
  });
}

TEST_CASE("a row has the same bits in every batch and every split", "[host][matmul]") {
  const Precision precision = GENERATE(from_range(std::begin(kPrecisions), std::end(kPrecisions)));
  test::for_each_target([precision] {
    INFO(simd_target() << " " << core::precision_name(precision));
    const Product product(100, 61, true, precision);
    const std::int64_t step = padded(product.outs), rows = 29;
    const std::vector<float> x = test::Random(5).vector(static_cast<std::size_t>(rows * 61), -1, 1);
    const std::vector<float> batched = product.run(x, rows);
    for (std::int64_t first = 0; first < rows; ++first) {
      for (std::int64_t count = 1; first + count <= rows; count += 3) {
        const std::vector<float> part(x.begin() + first * 61, x.begin() + (first + count) * 61);
        const std::vector<float> y = product.run(part, count);
        REQUIRE(std::memcmp(y.data(), batched.data() + first * step, y.size() * sizeof(float)) == 0);
      }
    }
    std::vector<float> cut(batched.size());
    for (std::int64_t panel = 0; panel < panels(100); panel += 3) {
      multiply(product.packed, x.data(), 61, rows, {cut.data(), step}, Epilogue::store, panel,
               std::min<std::int64_t>(panel + 3, panels(100)));
    }
    CHECK(std::memcmp(cut.data(), batched.data(), cut.size() * sizeof(float)) == 0);
  });
}

TEST_CASE("weights take the memory of their precision", "[host][matmul]") {
  CHECK(packed_floats(100, 64) == 112 * 64 + 112);
  CHECK(packed_floats(100, 64, Precision::bf16) == 112 * 32 + 112);
  CHECK(packed_floats(100, 64, Precision::f16) == 112 * 32 + 112);
  CHECK(packed_floats(100, 64, Precision::int8) == 112 * 16 + 2 * 112);
}

TEST_CASE("a residual is added once", "[host][matmul]") {
  test::for_each_target([] {
    const Product product(20, 8, true);
    const std::vector<float> x = test::Random(6).vector(3 * 8, -1, 1);
    const std::vector<float> plain = product.run(x, 3);
    std::vector<float> y(plain.size(), 0.5f);
    multiply(product.packed, x.data(), 8, 3, {y.data(), padded(20)}, Epilogue::add, 0, panels(20));
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] == 0.5f + plain[i]);
  });
}

}  // namespace exphil::host
