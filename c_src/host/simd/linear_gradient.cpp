#include "host/simd/linear_gradient.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/simd/rows.hpp"

namespace exphil::host {

ProductScratch::ProductScratch(std::int64_t most_outs, std::int64_t most_depth)
    : memory_(most_outs * kChunk + padded(most_depth) * (kChunk + 1)) {
  columns = memory_.data();
  panels = columns + most_outs * kChunk;
  zeros = panels + padded(most_depth) * kChunk;
}

LinearGradient::LinearGradient(const float* weights, std::int64_t outs, std::int64_t depth)
    : outs_(outs),
      depth_(depth),
      packed_(packed_floats(depth, outs)),
      sums_(outs * padded(depth)),
      bias_(padded(outs)) {
  float* to = packed_.data();
  core::parallel_for(host::panels(depth), 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      const std::int64_t first = panel * kPanel, lanes = std::min(kPanel, depth - first);
      for (std::int64_t out = 0; out < outs; ++out) {
        std::copy_n(weights + out * depth + first, lanes, to + (panel * outs + out) * kPanel);
      }
    }
  });
  transposed_ = {depth, outs, to, to + padded(depth) * outs};  // the bias stays zero
}

void LinearGradient::back(MatrixRows dy, std::int64_t rows, MatrixRows dx, Epilogue epilogue) const {
  core::parallel_for(rows, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
    multiply(transposed_, dy.data + begin * dy.step, dy.step, end - begin,
             {dx.data + begin * dx.step, dx.step}, epilogue, 0, host::panels(depth_));
  });
}

void LinearGradient::add_back(MatrixRows dy, std::int64_t rows, MatrixRows dx) const {
  multiply(transposed_, dy.data, dy.step, rows, dx, Epilogue::add, 0, host::panels(depth_));
}

void LinearGradient::add(MatrixRows dy, MatrixRows x, std::int64_t rows, ProductScratch& scratch) {
  for (std::int64_t first = 0; first < rows; first += ProductScratch::kChunk) {
    const std::int64_t count = std::min(ProductScratch::kChunk, rows - first);
    const float *dy_rows = dy.data + first * dy.step, *x_rows = x.data + first * x.step;
    // x is the matrix of the product, with the rows as its depth.
    core::parallel_for(host::panels(depth_), 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t panel = begin; panel < end; ++panel) {
        const std::int64_t lanes = std::min(kPanel, depth_ - panel * kPanel);
        float* to = scratch.panels + panel * count * kPanel;
        for (std::int64_t row = 0; row < count; ++row, to += kPanel) {
          std::copy_n(x_rows + row * x.step + panel * kPanel, lanes, to);
          std::fill(to + lanes, to + kPanel, 0.0f);
        }
      }
    });
    const PackedMatrix matrix{depth_, count, scratch.panels, scratch.zeros};
    core::parallel_for(outs_, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
      float* columns = scratch.columns + begin * count;
      transpose(dy_rows + begin, dy.step, count, end - begin, columns, count);
      multiply(matrix, columns, count, end - begin, {sums_.data() + begin * padded(depth_), padded(depth_)},
               Epilogue::add, 0, host::panels(depth_));
    });
    add_rows(dy_rows, count, dy.step, bias_.data(), 0, host::panels(outs_));
  }
}

void LinearGradient::write(float* weights, float* bias) const {
  for (std::int64_t out = 0; out < outs_; ++out) {
    std::copy_n(sums_.data() + out * padded(depth_), depth_, weights + out * depth_);
  }
  if (bias != nullptr) std::copy_n(bias_.data(), outs_, bias);
}

}  // namespace exphil::host
