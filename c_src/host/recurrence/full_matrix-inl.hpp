// The recurrence of a scan on one tile for a full matrix A {state, state} with the bilinear rule, which
// solves a small linear system for each channel and step. A lane is a channel. Compiled per SIMD target;
// included by channels.cpp and gradient.cpp.
#if defined(EXPHIL_HOST_SCAN_FULL_MATRIX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_SCAN_FULL_MATRIX_INL
#undef EXPHIL_HOST_SCAN_FULL_MATRIX_INL
#else
#define EXPHIL_HOST_SCAN_FULL_MATRIX_INL
#endif

#include "host/recurrence/recurrence-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// Solves (I - dt A/2) h' = (I + dt A/2) h + dt x B for every channel of the block in parallel. Gaussian
// elimination on [matrix | right side] with partial pivoting. Each lane has its own pivot, so rows are
// exchanged by select, which costs as much as the elimination; a gather for each element would cost more.
struct FullMatrix {
  std::int64_t size, offset;
  float* system;  // {size, size + 1, kPanel}

  HWY_INLINE float* at(std::int64_t i, std::int64_t j) const {
    return system + (i * (size + 1) + j) * kPanel + offset;
  }

  void build(const float* a, const float* h, F dt, F dt_x, const float* b, bool b_shared) const {
    const F one = fill(1.0), zero = fill(0.0);
    const F half_dt = dt * fill(0.5);
    for (std::int64_t i = 0; i < size; ++i) {
      F right = (b_shared ? broadcast(b + i) : load(b + i * kPanel + offset)) * dt_x;
      right = right + load(h + i * kPanel + offset);
      for (std::int64_t j = 0; j < size; ++j) {
        const F half = load(a + (i * size + j) * kPanel + offset) * half_dt;
        right = hn::MulAdd(half, load(h + j * kPanel + offset), right);
        store((i == j ? one : zero) - half, at(i, j));
      }
      store(right, at(i, size));
    }
  }

  // Builds [(I - dt A/2)^T | g], for the gradient.
  void build_transposed(const float* a, const float* g, F dt) const {
    const F one = fill(1.0), zero = fill(0.0), half_dt = dt * fill(0.5);
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j < size; ++j) {
        store((i == j ? one : zero) - load(a + (j * size + i) * kPanel + offset) * half_dt, at(i, j));
      }
      store(load(g + i * kPanel + offset), at(i, size));
    }
  }

  // Exchanges row k with the row below it that has the largest element in column k, lane by lane.
  void pivot(std::int64_t k) const {
    F largest = hn::Abs(load(at(k, k)));
    F chosen = fill(static_cast<double>(k));
    for (std::int64_t i = k + 1; i < size; ++i) {
      const F candidate = hn::Abs(load(at(i, k)));
      chosen = Math::select_less(largest, candidate, fill(static_cast<double>(i)), chosen);
      largest = Math::max(largest, candidate);
    }
    for (std::int64_t i = k + 1; i < size; ++i) {
      const F same = hn::Abs(chosen - fill(static_cast<double>(i)));  // 0 where row i was chosen
      if (hn::AllFalse(Lanes(), same < fill(0.5))) continue;
      for (std::int64_t j = k; j <= size; ++j) {
        const F upper = load(at(k, j)), lower = load(at(i, j));
        store(Math::select_less(same, fill(0.5), lower, upper), at(k, j));
        store(Math::select_less(same, fill(0.5), upper, lower), at(i, j));
      }
    }
  }

  void solve(float* h) const {
    for (std::int64_t k = 0; k < size; ++k) {
      pivot(k);
      const F inverse = fill(1.0) / load(at(k, k));
      store(inverse, at(k, k));
      for (std::int64_t i = k + 1; i < size; ++i) {
        const F factor = load(at(i, k)) * inverse;
        for (std::int64_t j = k + 1; j <= size; ++j) {
          store(hn::NegMulAdd(factor, load(at(k, j)), load(at(i, j))), at(i, j));
        }
      }
    }
    for (std::int64_t i = size - 1; i >= 0; --i) {
      F sum = load(at(i, size));
      for (std::int64_t j = i + 1; j < size; ++j) {
        sum = hn::NegMulAdd(load(at(i, j)), load(h + j * kPanel + offset), sum);
      }
      store(sum * load(at(i, i)), h + i * kPanel + offset);
    }
  }
};

inline void full_matrix(const Recurrence& r) {
  const std::int64_t state = r.rule->state;
  for (std::int64_t o = 0; o < kPanel; o += kLanes) {
    const FullMatrix matrix{state, o, r.tile->system};
    for (std::int64_t s = 0; s < r.tile->steps; ++s) {
      const std::int64_t at = s * kPanel + o;
      matrix.build(r.a, r.h.h, load(r.tile->dt + at), load(r.tile->dt_x + at), r.b.data + s * r.b.step,
                   r.b.shared);
      matrix.solve(r.h.h);
      const float* c_row = r.c.data + s * r.c.step;
      F y = fill(0.0);
      for (std::int64_t n = 0; n < state; ++n) {
        const std::int64_t panel = n * kPanel + o;
        y = hn::MulAdd(r.c.shared ? broadcast(c_row + n) : load(c_row + panel), load(r.h.h + panel), y);
      }
      store(y, r.tile->y + at);
      r.put_states(s, o);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
