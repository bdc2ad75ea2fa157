// Packs the weights at load. A call is three passes: products and gates (each position independent),
// cumulative sums (each column independent), products and convolution (each position independent).
#include "host/semiseparable/layer.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/associative/sweep.hpp"
#include "host/semiseparable/rows.hpp"
#include "host/simd/aligned.hpp"
#include "host/simd/matmul.hpp"

namespace exphil::host {

namespace {

constexpr std::int64_t kBlockRows = 64;  // positions per piece of work; the scratch fits in L2

class HostSemiseparable final : public core::SemiseparableLayer {
 public:
  explicit HostSemiseparable(const core::SemiseparableWeights& w) : config_(w.config) {
    const std::int64_t hidden = config_.hidden, rank = config_.rank, inner = config_.gate_hidden;
    memory_ =
        AlignedBuffer(packed_floats(inner, hidden) + packed_floats(rank, inner) +
                      2 * packed_floats(rank, hidden) + packed_floats(hidden, rank) + 3 * padded(hidden));
    float* at = memory_.data();
    const auto pack = [&](const std::vector<float>& from, const float* bias, std::int64_t outs,
                          std::int64_t depth) {
      const PackedMatrix matrix = pack_matrix(from.data(), bias, outs, depth, at);
      at += packed_floats(outs, depth);
      return matrix;
    };
    gate_in_ = pack(w.gate_in, w.gate_in_bias.data(), inner, hidden);
    gate_out_ = pack(w.gate_out, w.gate_out_bias.data(), rank, inner);
    u_ = pack(w.u, nullptr, rank, hidden);
    v_ = pack(w.v, nullptr, rank, hidden);
    output_ = pack(w.output, w.output_bias.data(), hidden, rank);
    taps_ = at;
    for (std::int64_t h = 0; h < hidden; ++h) {
      for (std::int64_t tap = 0; tap < 3; ++tap) {
        at[tap * padded(hidden) + h] = w.conv[static_cast<std::size_t>(3 * h + tap)];
      }
    }
  }

  const core::SemiseparableConfig& config() const override { return config_; }
  std::size_t resident_bytes() const override { return memory_.bytes(); }

  void forward(const core::SemiseparableInput& input, const core::SemiseparableOutputs& outputs) override {
    const std::int64_t rows = input.batch * input.seq;
    if (rows == 0) return;
    const std::int64_t step = padded(config_.rank);
    AlignedBuffer scratch(rows * step * (input.bidirectional ? 4 : 3));
    float* u = scratch.data();
    float* v = u + rows * step;
    float* k = v + rows * step;
    float* k_reverse = input.bidirectional ? k + rows * step : nullptr;
    core::parallel_for(rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; row += kBlockRows) {
        project(input.x, outputs.gates, row, std::min(kBlockRows, end - row), u, v);
      }
    });
    accumulate(input, u, false, k);
    if (k_reverse != nullptr) accumulate(input, u, true, k_reverse);
    core::parallel_for(rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; row += kBlockRows) {
        const std::int64_t count = std::min(kBlockRows, end - row);
        read_out(k + row * step, k_reverse == nullptr ? nullptr : k_reverse + row * step, v + row * step,
                 count * step);
        write_rows(input, row, count, k, outputs.y);
      }
    });
  }

 private:
  static void product(const PackedMatrix& matrix, const float* x, std::int64_t x_step, std::int64_t rows,
                      float* y) {
    multiply(matrix, x, x_step, rows, {y, padded(matrix.outs)}, Epilogue::store, 0, panels(matrix.outs));
  }

  // Gates, u and v of `count` positions from `row` on.
  void project(const float* x, float* gates, std::int64_t row, std::int64_t count, float* u, float* v) const {
    const std::int64_t step = padded(config_.rank), inner_step = padded(config_.gate_hidden);
    AlignedBuffer scratch(count * (inner_step + step));
    float* inner = scratch.data();
    float* g = inner + count * inner_step;
    const float* from = x + row * config_.hidden;
    product(gate_in_, from, config_.hidden, count, inner);
    relu(inner, count * inner_step);
    product(gate_out_, inner, inner_step, count, g);
    product(u_, from, config_.hidden, count, u + row * step);
    product(v_, from, config_.hidden, count, v + row * step);
    apply_gates(g, u + row * step, v + row * step, count * step);
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy(g + i * step, g + i * step + config_.rank, gates + (row + i) * config_.rank);
    }
  }

  // The cumulative sums of u over each sequence.
  void accumulate(const core::SemiseparableInput& input, const float* u, bool reverse, float* k) const {
    const std::int64_t step = padded(config_.rank), wide = std::min(step, kMaxSweepColumns);
    const std::int64_t pieces = (step + wide - 1) / wide;
    core::parallel_for(input.batch * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t column = piece % pieces * wide, last = reverse ? input.seq - 1 : 0;
        const std::int64_t offset = (piece / pieces * input.seq + last) * step + column;
        ColumnSweep sweep;
        sweep.x = u + offset;
        sweep.y = k + offset;
        sweep.length = input.seq;
        sweep.stride = reverse ? -step : step;
        sweep.columns = std::min(wide, step - column);
        sweep_columns(sweep);
      }
    });
  }

  // y = O (k v) + o + the convolution, for `count` positions from `row` on.
  void write_rows(const core::SemiseparableInput& input, std::int64_t row, std::int64_t count,
                  const float* kv, float* y) const {
    const std::int64_t hidden = config_.hidden, step = padded(hidden);
    AlignedBuffer scratch(count * step);
    product(output_, kv + row * padded(config_.rank), padded(config_.rank), count, scratch.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t t = (row + i) % input.seq;
      const float* x = input.x + (row + i) * hidden;
      add_convolution({t > 0 ? x - hidden : nullptr, x, t + 1 < input.seq ? x + hidden : nullptr, taps_,
                       scratch.data() + i * step, y + (row + i) * hidden},
                      hidden);
    }
  }

  const core::SemiseparableConfig config_;
  AlignedBuffer memory_;
  PackedMatrix gate_in_, gate_out_, u_, v_, output_;
  const float* taps_ = nullptr;  // {3, padded(hidden)}
};

}  // namespace

std::unique_ptr<core::SemiseparableLayer> make_semiseparable(const core::SemiseparableWeights& weights) {
  return std::make_unique<HostSemiseparable>(weights);
}

}  // namespace exphil::host
