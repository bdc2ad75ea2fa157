// sweep_columns for every SIMD target.
#include "core/work/background.hpp"
#include "host/associative/sweep.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/associative/columns.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/associative/elements-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// Between two calls of give_way(): some 10 us where the columns are 1,024.
inline constexpr std::int64_t kRowsPerOffer = 16;

// What the columns carry from step to step.
struct Carried {
  HWY_ALIGN float h[kMaxSweepColumns];
  HWY_ALIGN float error[kMaxSweepColumns];
};

template <Op O, Dtype T, bool Compensated>
void begin(Carried* carried, const Element<T>* initial, std::int64_t columns) {
  const auto start = Scalar<O, Compensated>::initial();
  for (std::int64_t c = 0; c < columns; ++c) {
    carried->h[c] = initial == nullptr ? start.h : scalar_load<T>(initial + c);
    if constexpr (Compensated) carried->error[c] = start.error;
  }
}

template <Op O, Dtype T, bool Compensated>
HWY_INLINE void one_column(const Element<T>* a, const Element<T>* x, Element<T>* y, float* h, float* error) {
  using Math = Scalar<O, Compensated>;
  typename Math::State state = Math::initial();
  state.h = *h;
  if constexpr (Compensated) state.error = *error;
  Math::step(state, O == Op::linear_recurrence ? scalar_load<T>(a) : 0.0f, scalar_load<T>(x));
  scalar_store<T>(Math::value(state), y);
  *h = state.h;
  if constexpr (Compensated) *error = state.error;
}

template <Op O, Dtype T, bool Compensated>
void sweep_floats(const ColumnSweep& s) {
  using E = Element<T>;
  Carried carried;
  begin<O, T, Compensated>(&carried, static_cast<const E*>(s.initial), s.columns);
  const E* a = static_cast<const E*>(s.a);
  const E* x = static_cast<const E*>(s.x);
  E* y = static_cast<E*>(s.y);
  for (std::int64_t t = 0; t < s.length; ++t, x += s.stride, y += s.stride) {
    if (t % kRowsPerOffer == 0) core::give_way();
    std::int64_t c = 0;
    for (; c + kLanes <= s.columns; c += kLanes) {
      const F element = load_as_f32<T>(x + c);
      F h = load(carried.h + c);
      if constexpr (Compensated) {
        F error = load(carried.error + c);
        vector_compensated(&h, &error, element, fill(0.0));
        store(error, carried.error + c);
        store_from_f32<T>(h, y + c);
      } else {
        F decay = element;
        if constexpr (O == Op::linear_recurrence) decay = load_as_f32<T>(a + c);
        h = vector_step<O>(h, decay, element);
        store_from_f32<T>(h, y + c);
      }
      store(h, carried.h + c);
    }
    for (; c < s.columns; ++c) {
      one_column<O, T, Compensated>(O == Op::linear_recurrence ? a + c : nullptr, x + c, y + c, carried.h + c,
                                    carried.error + c);
    }
    if constexpr (O == Op::linear_recurrence) a += s.stride;
  }
}

// s32 and s64, whose sums wrap around.
template <Op O, class T>
void sweep_integers(const ColumnSweep& s) {
  using Math =
      typename associative::Select<O, std::conditional_t<sizeof(T) == 4, int, long long>, false>::Type;
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN T h[kMaxSweepColumns];
  const T* x = static_cast<const T*>(s.x);
  T* y = static_cast<T*>(s.y);
  std::fill(h, h + s.columns, static_cast<T>(Math::initial().h));
  for (std::int64_t t = 0; t < s.length; ++t, x += s.stride, y += s.stride) {
    if (t % kRowsPerOffer == 0) core::give_way();
    std::int64_t c = 0;
    for (; c + lanes <= s.columns; c += lanes) {
      const auto earlier = hn::Load(d, h + c), later = hn::LoadU(d, x + c);
      const auto next = [&] {
        if constexpr (O == Op::cumsum) return hn::Add(earlier, later);
        if constexpr (O == Op::cummax) return hn::Max(earlier, later);
        if constexpr (O == Op::cummin) return hn::Min(earlier, later);
      }();
      hn::Store(next, d, h + c);
      hn::StoreU(next, d, y + c);
    }
    for (; c < s.columns; ++c) {
      typename Math::State state{h[c]};
      Math::step(state, 0, x[c]);
      y[c] = h[c] = static_cast<T>(state.h);
    }
  }
}

// The complex recurrence: separate real and imaginary parts in registers, pairs in memory.
void sweep_complex(const ColumnSweep& s) {
  Carried carried;
  const float* initial = static_cast<const float*>(s.initial);
  for (std::int64_t c = 0; c < s.columns; ++c) {  // `error` holds the imaginary parts
    carried.h[c] = initial == nullptr ? 0.0f : initial[2 * c];
    carried.error[c] = initial == nullptr ? 0.0f : initial[2 * c + 1];
  }
  const float* a = static_cast<const float*>(s.a);
  const float* x = static_cast<const float*>(s.x);
  float* y = static_cast<float*>(s.y);
  const Lanes d;
  for (std::int64_t t = 0; t < s.length; ++t, a += 2 * s.stride, x += 2 * s.stride, y += 2 * s.stride) {
    if (t % kRowsPerOffer == 0) core::give_way();
    std::int64_t c = 0;
    for (; c + kLanes <= s.columns; c += kLanes) {
      F a_re, a_im, x_re, x_im;
      hn::LoadInterleaved2(d, a + 2 * c, a_re, a_im);
      hn::LoadInterleaved2(d, x + 2 * c, x_re, x_im);
      const F re = load(carried.h + c), im = load(carried.error + c);
      const F next_re = hn::MulAdd(a_re, re, hn::NegMulAdd(a_im, im, x_re));
      const F next_im = hn::MulAdd(a_re, im, hn::MulAdd(a_im, re, x_im));
      store(next_re, carried.h + c);
      store(next_im, carried.error + c);
      hn::StoreInterleaved2(next_re, next_im, d, y + 2 * c);
    }
    for (; c < s.columns; ++c) {
      const float re = carried.h[c], im = carried.error[c];
      y[2 * c] = carried.h[c] = a[2 * c] * re - a[2 * c + 1] * im + x[2 * c];
      y[2 * c + 1] = carried.error[c] = a[2 * c] * im + a[2 * c + 1] * re + x[2 * c + 1];
    }
  }
}

template <Op O, bool Compensated>
void sweep_float_dtype(const ColumnSweep& s) {
  if (s.dtype == Dtype::f32) return sweep_floats<O, Dtype::f32, Compensated>(s);
  if (s.dtype == Dtype::f16) return sweep_floats<O, Dtype::f16, Compensated>(s);
  sweep_floats<O, Dtype::bf16, Compensated>(s);
}

template <Op O>
void sweep_ordered(const ColumnSweep& s) {
  if (s.dtype == Dtype::s32) return sweep_integers<O, std::int32_t>(s);
  if (s.dtype == Dtype::s64) return sweep_integers<O, std::int64_t>(s);
  sweep_float_dtype<O, false>(s);
}

void run_columns(const ColumnSweep& s) {
  switch (s.op) {
    case Op::cumsum:
      if (s.compensated) return sweep_float_dtype<Op::cumsum, true>(s);
      return sweep_ordered<Op::cumsum>(s);
    case Op::cumprod:
      return sweep_float_dtype<Op::cumprod, false>(s);
    case Op::cummax:
      return sweep_ordered<Op::cummax>(s);
    case Op::cummin:
      return sweep_ordered<Op::cummin>(s);
    case Op::linear_recurrence:
      if (s.dtype == Dtype::c64) return sweep_complex(s);
      return sweep_float_dtype<Op::linear_recurrence, false>(s);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {
HWY_EXPORT(run_columns);

void sweep_columns(const ColumnSweep& sweep) {
  HWY_DYNAMIC_DISPATCH(run_columns)(sweep);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
