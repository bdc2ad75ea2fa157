// The matrix products of a policy's gradient on each unit that computes them, against sums in double: all
// sorts, pieces and what comes after a sum, over more than a tile, with edges of any size.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/places.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/gradient_kernels.hpp"
#include "support/catch.hpp"
#include "support/policy.hpp"

namespace exphil::test {
namespace {

using cuda::Matrix;
using cuda::ProductUnit;

// A matrix on the device and what it had at first.
struct Held {
  Matrix on;
  std::vector<float> values;
  double at(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(values[static_cast<std::size_t>(row * on.stride + column)]);
  }
};

class Bench {
 public:
  explicit Bench(ProductUnit unit)
      : context_(cuda::Context::open(0)),
        guard_(*context_),
        stream_(*context_),
        kernels_(*context_, make_policy(PolicySpec())->network(), unit) {}

  // Random values; before and after them there is nothing that a sum could do without.
  Held matrix(std::int64_t rows, std::int64_t columns, bool aligned) {
    Held made{aligned ? Matrix::aligned(nullptr, rows, columns) : Matrix(nullptr, rows, columns), {}};
    const auto floats = static_cast<std::size_t>(rows * made.on.stride);
    made.values.resize(floats);
    std::uniform_real_distribution<float> any(-1.0f, 1.0f);
    for (float& value : made.values) value = any(random_);
    buffers_.push_back(context_->device_pool().allocate((floats + 2 * kBefore) * sizeof(float)));
    std::vector<float> around(floats + 2 * kBefore, NAN);
    std::copy(made.values.begin(), made.values.end(), around.begin() + kBefore);
    upload(buffers_.back().address(), around);
    made.on.data = cuda::as_pointer<float>(buffers_.back().address()) + kBefore;
    return made;
  }

  void run(const cuda::Products& products) { kernels_.run(stream_.handle(), products); }

  std::vector<float> read(const Matrix& matrix) {
    stream_.synchronize();
    std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.stride));
    context_->check(cuda::driver().cuMemcpyDtoH(values.data(), reinterpret_cast<CUdeviceptr>(matrix.data),
                                                values.size() * sizeof(float)),
                    "download");
    return values;
  }

 private:
  static constexpr std::size_t kBefore = 64;

  void upload(CUdeviceptr to, const std::vector<float>& values) {
    context_->check(cuda::driver().cuMemcpyHtoD(to, values.data(), values.size() * sizeof(float)), "upload");
  }

  const std::shared_ptr<cuda::Context> context_;
  const cuda::ContextGuard guard_;
  cuda::StreamLease stream_;
  const cuda::GradientKernels kernels_;
  std::vector<cuda::DeviceBuffer> buffers_;
  std::mt19937 random_{7};
};

// Sums of so many products of values below 1, each with f32's error.
void check_near(double value, double expected, std::int64_t depth) {
  const double error = std::abs(value - expected);
  if (!(error <= 4e-7 * std::sqrt(static_cast<double>(depth)) * 4)) CHECK(value == expected);
}

struct Size {
  std::int64_t rows;
  std::vector<std::int64_t> depths;  // of the pieces
  std::int64_t outs;
  bool aligned;
};

void check_forward(ProductUnit unit, const Size& size) {
  Bench bench(unit);
  std::int64_t depth = 0;
  std::vector<Held> x;
  for (const std::int64_t piece : size.depths) {
    x.push_back(bench.matrix(size.rows, piece, size.aligned));
    depth += piece;
  }
  const Held weight = bench.matrix(size.outs, depth, size.aligned), bias = bench.matrix(1, size.outs, false);
  const Held y = bench.matrix(size.rows, size.outs, size.aligned);
  std::vector<Matrix> pieces;
  for (const Held& piece : x) pieces.push_back(piece.on);
  cuda::Products products;
  products.forward(pieces, weight.on, bias.on.data, y.on).after = policy::kRelu;
  bench.run(products);
  const std::vector<float> found = bench.read(y.on);
  for (std::int64_t row = 0; row < size.rows; ++row) {
    for (std::int64_t out = 0; out < size.outs; ++out) {
      double sum = bias.at(0, out);
      std::int64_t column = 0;
      for (const Held& piece : x) {
        for (std::int64_t k = 0; k < piece.on.columns; ++k, ++column) {
          sum += piece.at(row, k) * weight.at(out, column);
        }
      }
      const double value = static_cast<double>(found[static_cast<std::size_t>(row * y.on.stride + out)]);
      check_near(value, std::max(sum, 0.0), depth);
    }
  }
}

void check_input(ProductUnit unit, const Size& size, policy::AfterProduct after) {
  Bench bench(unit);
  cuda::Products products;
  const Held dx = bench.matrix(size.rows, size.outs, size.aligned),
             other = bench.matrix(size.rows, size.outs, size.aligned);
  policy::ProductJob& job = products.back(dx.on);
  job.after = after, job.other = other.on.data, job.other_row = other.on.stride;
  std::vector<Held> dy, weights;
  std::int64_t depth = 0;
  for (const std::int64_t piece : size.depths) {
    dy.push_back(bench.matrix(size.rows, piece, size.aligned));
    weights.push_back(bench.matrix(piece, size.outs, size.aligned));
    cuda::Products::through(job, dy.back().on, weights.back().on);
    depth += piece;
  }
  bench.run(products);
  const std::vector<float> found = bench.read(dx.on);
  for (std::int64_t row = 0; row < size.rows; ++row) {
    for (std::int64_t column = 0; column < size.outs; ++column) {
      double sum = after == policy::kAdd ? other.at(row, column) : 0.0;
      for (std::size_t p = 0; p < dy.size(); ++p) {
        for (std::int64_t k = 0; k < dy[p].on.columns; ++k)
          sum += dy[p].at(row, k) * weights[p].at(k, column);
      }
      if (after == policy::kMask && other.at(row, column) <= 0.0) sum = 0.0;
      check_near(static_cast<double>(found[static_cast<std::size_t>(row * dx.on.stride + column)]), sum,
                 depth);
    }
  }
}

// With the sums of rows, by parts.
void check_weight(ProductUnit unit, const Size& size) {
  Bench bench(unit);
  const std::int64_t depth = size.depths[0], parts = cuda::parts_of_rows(size.rows);
  const Held dy = bench.matrix(size.rows, size.outs, size.aligned),
             x = bench.matrix(size.rows, depth, size.aligned),
             sums = bench.matrix(parts * size.outs, depth, false),
             biases = bench.matrix(parts, size.outs, false);
  cuda::Products products;
  products.weight(dy.on, x.on, depth, sums.on.data, biases.on.data);
  bench.run(products);
  const std::vector<float> weights = bench.read(sums.on), rows = bench.read(biases.on);
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t first = part * cuda::part_rows(size.rows),
                       last = std::min(first + cuda::part_rows(size.rows), size.rows);
    for (std::int64_t out = 0; out < size.outs; ++out) {
      double bias = 0.0;
      for (std::int64_t row = first; row < last; ++row) bias += dy.at(row, out);
      check_near(static_cast<double>(rows[static_cast<std::size_t>(part * size.outs + out)]), bias,
                 last - first);
      for (std::int64_t k = 0; k < depth; ++k) {
        double sum = 0.0;
        for (std::int64_t row = first; row < last; ++row) sum += dy.at(row, out) * x.at(row, k);
        const auto at = static_cast<std::size_t>((part * size.outs + out) * depth + k);
        check_near(static_cast<double>(weights[at]), sum, last - first);
      }
    }
  }
}

const Size kShallow[] = {
    {70, {33}, 67, false}, {130, {48}, 64, true}, {3, {1}, 5, false}, {64, {7, 9, 20}, 70, true}};
const Size kDeep[] = {{67, {530}, 70, true}, {65, {201, 3, 340}, 66, false}, {64, {256, 256}, 64, true}};

void check_products(ProductUnit unit) {
  for (const auto& sizes : {std::vector<Size>(std::begin(kShallow), std::end(kShallow)),
                            std::vector<Size>(std::begin(kDeep), std::end(kDeep))}) {
    for (const Size& size : sizes) {
      CAPTURE(size.rows, size.depths, size.outs, size.aligned);
      check_forward(unit, size);
      for (const policy::AfterProduct after : {policy::kStore, policy::kAdd, policy::kMask}) {
        CAPTURE(after);
        check_input(unit, size, after);
      }
    }
  }
  for (const Size& size : {Size{300, {33}, 70, false}, Size{17, {64}, 64, true}, Size{530, {5}, 3, true}}) {
    CAPTURE(size.rows, size.outs);
    check_weight(unit, size);
  }
}

// Of the units that the device has: each has those before it.
void check_units() {
  const ProductUnit best = cuda::best_product_unit(cuda::Context::open(0)->properties());
  for (const ProductUnit unit : {ProductUnit::plain, ProductUnit::tensor_cores, ProductUnit::warpgroups}) {
    if (unit > best) continue;
    CAPTURE(static_cast<int>(unit));
    check_products(unit);
  }
}

TEST_CASE("products of gradients on an emulated GPU", "[.emulated_gradient_products]") {
  emulate_launches();
  check_units();
  for (const char* entry :
       {"policy_gradient_product", "policy_gradient_product_tensor", "policy_gradient_product_wide"}) {
    CHECK(emulated_launches(entry) > 0);
  }
}

TEST_CASE("the products of gradients run without a GPU", "[cuda][policy][gradient][emulated]") {
  require_emulated("[.emulated_gradient_products]", {{"FAKE_CUDA_CAPABILITY", "90"}});
}

TEST_CASE("the products of gradients on a GPU", "[cuda][gpu][policy][gradient]") {
  if (have_device()) check_units();
}

}  // namespace
}  // namespace exphil::test
