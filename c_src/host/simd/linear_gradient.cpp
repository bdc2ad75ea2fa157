#include "host/simd/linear_gradient.hpp"

#include <algorithm>

#include "core/work/background.hpp"
#include "core/work/parallel.hpp"
#include "host/simd/rows.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

// A thread takes at most this part of a weight at a time: what it packs of dy and x is in its L2, and serves
// many products. Below the least parts packing would take a tenth of the time.
constexpr std::int64_t kMostOuts = 256, kMostPanels = 16, kLeastOuts = 96, kLeastPanels = 6;
// Rows of dy and x that are packed at a time. Two panels of them stay in L1 while all columns pass. A column
// is one line longer, so that the columns do not share a few sets of L1.
constexpr std::int64_t kRows = 128, kColumn = kRows + kPanel;

// {columns of dy, panels of x, zeros}
constexpr std::int64_t kScratchFloats = kMostOuts * kColumn + kMostPanels * kPanel * (kRows + 1);

std::int64_t begin_of(std::int64_t index, std::int64_t count, std::int64_t all) {
  return index * all / count;
}

// How many nearly equal parts the outputs and the panels of the inputs are cut into: two for each thread,
// where that leaves enough of them.
struct Parts {
  Parts(std::int64_t outs, std::int64_t panels)
      : down((outs + kMostOuts - 1) / kMostOuts), across((panels + kMostPanels - 1) / kMostPanels) {
    while (down * across < 2 * core::threads()) {
      const bool tall = outs / down >= 2 * kLeastOuts, wide = panels / across >= 2 * kLeastPanels;
      if (!tall && !wide) return;
      (tall && (!wide || outs / down >= panels / across * kPanel) ? down : across) *= 2;
    }
  }
  std::int64_t down, across;
};

}  // namespace

// Outputs [first_out, last_out) and panels [first_panel, last_panel) of the inputs.
struct LinearGradient::Tile {
  std::int64_t first_out, last_out, first_panel, last_panel;
};

LinearGradient::LinearGradient(const float* weights, std::int64_t outs, std::int64_t depth, bool has_bias)
    : outs_(outs),
      depth_(depth),
      packed_(packed_floats(depth, outs)),
      sums_(outs * padded(depth)),
      bias_(has_bias ? padded(outs) : 0) {
  float *const to = packed_.data(), *const bias = to + padded(depth) * outs;
  core::parallel_for(host::panels(depth), 4, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kPanel, last = std::min(end * kPanel, depth);
    pack_rows(weights + first, depth, outs, last - first, to + first * outs);
    std::fill_n(sums_.data() + first * outs, (end - begin) * kPanel * outs, 0.0f);
  });
  std::fill_n(bias, padded(depth), 0.0f);
  transposed_ = {depth, outs, to, bias};
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

void LinearGradient::add(MatrixRows dy, MatrixRows x, std::int64_t rows) {
  const std::int64_t out_panels = host::panels(outs_), panels = host::panels(depth_);
  const Parts parts(outs_, panels);
  core::parallel_for(parts.down * parts.across, 1, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin) {
      const std::int64_t i = begin / parts.across, j = begin % parts.across;
      const std::int64_t last_out = begin_of(i + 1, parts.down, out_panels) * kPanel;
      add_tile({begin_of(i, parts.down, out_panels) * kPanel, std::min(outs_, last_out),
                begin_of(j, parts.across, panels), begin_of(j + 1, parts.across, panels)},
               dy, x, rows);
    }
  });
}

// x is the matrix of the product, with the rows as its depth.
void LinearGradient::add_tile(const Tile& tile, MatrixRows dy, MatrixRows x, std::int64_t rows) {
  float* const columns = thread_scratch(Scratch::product, kScratchFloats);
  float* const panels = columns + kMostOuts * kColumn;
  float* const zeros = panels + kMostPanels * kPanel * kRows;
  const std::int64_t outs = tile.last_out - tile.first_out, width = tile.last_panel - tile.first_panel;
  const std::int64_t first = tile.first_panel * kPanel, inputs = std::min(depth_ - first, width * kPanel);
  float* const sums = sums_.data() + tile.first_out * padded(depth_) + first;
  std::fill_n(zeros, width * kPanel, 0.0f);
  for (std::int64_t row = 0; row < rows; row += kRows) {
    const std::int64_t count = std::min(kRows, rows - row);
    const float* const dy_rows = dy.data + row * dy.step + tile.first_out;
    pack_rows(x.data + row * x.step + first, x.step, count, inputs, panels);
    transpose(dy_rows, dy.step, count, outs, columns, kColumn);
    multiply({width * kPanel, count, panels, zeros}, columns, kColumn, outs, {sums, padded(depth_)},
             Epilogue::add, 0, width);
    if (first == 0 && bias_.floats() > 0) {
      add_rows(dy_rows, count, dy.step, bias_.data() + tile.first_out, 0, host::panels(outs));
    }
    core::give_way();
  }
}

void LinearGradient::write(float* weights, float* bias) const {
  for (std::int64_t out = 0; out < outs_; ++out) {
    std::copy_n(sums_.data() + out * padded(depth_), depth_, weights + out * depth_);
  }
  if (bias != nullptr) std::copy_n(bias_.data(), outs_, bias);
}

}  // namespace exphil::host
