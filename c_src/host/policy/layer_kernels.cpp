#include "host/policy/layer_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/policy/layer_kernels.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/policy/layer_kernels-inl.hpp"
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

template <bool kLayerNorm>
void normalize_rows(const Norm& norm, const MatrixRows& from, std::int64_t n, float epsilon,
                    std::int64_t rows, const MatrixRows& to) {
  const std::int64_t width = padded(n);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const x = from.data + r * from.step;
    float* const out = to.data + r * to.step;
    const RowScale row = scale_of<kLayerNorm>(x, n, epsilon);
    for (std::int64_t i = 0; i < width; i += kLanes) {
      if constexpr (kLayerNorm) {
        const F unit = (load(x + i) - row.mean) * row.scale;
        store(hn::MulAdd(unit, load(norm.weight + i), load(norm.bias + i)), out + i);
      } else {
        store(load(x + i) * row.scale * load(norm.weight + i), out + i);
      }
    }
  }
}

void normalize_parts(const Norm& norm, MatrixRows from, std::int64_t n, float epsilon, std::int64_t rows,
                     MatrixRows to) {
  const std::int64_t size = n / norm.parts;
  for (std::int64_t r = 0; r < rows; ++r, from.data += from.step, to.data += to.step) {
    for (std::int64_t first = 0; first < n; first += size) {
      const F scale = fill(double{part_scale(from.data + first, size, epsilon)});
      const float *const x = from.data + first, *const weight = norm.weight_of(first, n);
      in_vectors(0, size, [&](std::int64_t i, std::int64_t count) {
        store_some(load_some(x + i, count) * scale * load_some(weight + i, count), to.data + first + i,
                   count);
      });
    }
  }
}

void run_normalize(const Norm& norm, const MatrixRows& x, std::int64_t n, float epsilon, std::int64_t rows,
                   const MatrixRows& out) {
  if (norm.parts > 0) return normalize_parts(norm, x, n, epsilon, rows, out);
  if (norm.bias == nullptr) return normalize_rows<false>(norm, x, n, epsilon, rows, out);
  normalize_rows<true>(norm, x, n, epsilon, rows, out);
}

void run_activate_dt(float* dt, const float* bias, DtRange range, std::int64_t rows, std::int64_t step,
                     std::int64_t begin, std::int64_t end) {
  const F lowest = broadcast(&range.lowest), highest = broadcast(&range.highest);
  for (std::int64_t r = 0; r < rows; ++r, dt += step) {
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
      store(formulas::activate_dt<Math>(load(dt + i), load(bias + i), true, lowest, highest), dt + i);
    }
  }
}

void run_sigmoid(MatrixRows x, MatrixRows out, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r, x.data += x.step, out.data += out.step) {
    in_vectors(begin, end, [&](std::int64_t i, std::int64_t count) {
      store_some(formulas::sigmoid<Math>(load_some(x.data + i, count)), out.data + i, count);
    });
  }
}

void run_gate(MatrixRows x, MatrixRows gate, MatrixRows out, std::int64_t rows, std::int64_t begin,
              std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r) {
    in_vectors(begin, end, [&](std::int64_t i, std::int64_t count) {
      const F open = formulas::silu<Math>(load_some(gate.data + i, count));
      store_some(load_some(x.data + i, count) * open, out.data + i, count);
    });
    x.data += x.step, gate.data += gate.step, out.data += out.step;
  }
}

void run_relu(float* x, std::int64_t rows, std::int64_t step, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r, x += step) {
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
      const F v = load(x + i);
      store(hn::IfThenElse(v < fill(0.0), fill(0.0), v), x + i);  // keeps NaN
    }
  }
}

void run_convolve(const Convolution& c, std::int64_t begin, std::int64_t end) {
  for (std::int64_t kept = 0; kept + 1 < c.taps && c.ahead != nullptr; ++kept) {
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kPanel) {
      hwy::Prefetch(c.ahead + kept * c.step + i);
    }
  }
  for (std::int64_t t = 0; t < c.seq; ++t) {
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
      store(formulas::silu<Math>(convolution_sum(c, t, i)), c.out + t * c.step + i);
    }
  }
  // Keeps the last taps - 1 inputs, oldest first. Each comes from a later row, so in ascending order no copy
  // overwrites an input that is still needed.
  for (std::int64_t kept = 0; kept + 1 < c.taps && c.seq > 0; ++kept) {
    const float* from = input_row(c, c.seq + kept);
    float* to = c.history + kept * c.step;
    for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) store(load(from + i), to + i);
  }
}

template <formulas::Cell kCell>
void advance_cell_of(const CellRows& c, std::int64_t begin, std::int64_t end) {
  constexpr int kStates = formulas::states_of(kCell);
  for (std::int64_t i = begin * kPanel; i < end * kPanel; i += kLanes) {
    F states[kStates];
    for (int s = 0; s < kStates; ++s) states[s] = load(c.states + s * c.step + i);
    for (std::int64_t t = 0; t < c.seq; ++t) {
      const CellSums<kCell> sums(c, t, i);
      store(formulas::advance_cell<kCell, Math>(sums.x, sums.h, states), c.out.data + t * c.out.step + i);
    }
    for (int s = 0; s < kStates; ++s) store(states[s], c.states + s * c.step + i);
  }
}

void run_advance_cell(const CellRows& c, std::int64_t begin, std::int64_t end) {
  core::with_cell(c.cell, [&](auto cell) { advance_cell_of<cell()>(c, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_normalize);
HWY_EXPORT(run_activate_dt);
HWY_EXPORT(run_mean_of);
HWY_EXPORT(run_sigmoid);
HWY_EXPORT(run_gate);
HWY_EXPORT(run_relu);
HWY_EXPORT(run_convolve);
HWY_EXPORT(run_advance_cell);

void normalize(const Norm& norm, const MatrixRows& x, std::int64_t n, float epsilon, std::int64_t rows,
               const MatrixRows& out) {
  HWY_DYNAMIC_DISPATCH(run_normalize)(norm, x, n, epsilon, rows, out);
}

void activate_dt(float* dt, const float* bias, DtRange range, std::int64_t rows, std::int64_t step,
                 std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_activate_dt)(dt, bias, range, rows, step, begin, end);
}

float mean_of(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(run_mean_of)(x, n);
}

void sigmoid(MatrixRows x, MatrixRows out, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_sigmoid)(x, out, rows, begin, end);
}

void gate(MatrixRows x, MatrixRows gate, MatrixRows out, std::int64_t rows, std::int64_t begin,
          std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_gate)(x, gate, out, rows, begin, end);
}

void relu(float* x, std::int64_t rows, std::int64_t step, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_relu)(x, rows, step, begin, end);
}

void convolve(const Convolution& convolution, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_convolve)(convolution, begin, end);
}

void advance_cell(const CellRows& cell, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_advance_cell)(cell, begin, end);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
