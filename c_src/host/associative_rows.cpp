// sweep_row for every SIMD target.
#include "host/associative_sweep.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/associative_rows.cpp"
// clang-format off
#include "host/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/associative_elements-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// Moves lanes up by 1, 2, 4, ...; `fill` enters below.
class LaneShifts {
 public:
  LaneShifts() {
    HWY_ALIGN std::int32_t lanes[kPanel];
    for (int step = 0, distance = 1; distance < kLanes; ++step, distance *= 2) {
      for (std::int32_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] = lane < distance ? lane : lane - distance;
      from_[step] = hn::SetTableIndices(Lanes(), lanes);
      below_[step] = hn::FirstN(Lanes(), static_cast<std::size_t>(distance));
    }
    std::fill(lanes, lanes + kLanes, static_cast<std::int32_t>(kLanes - 1));
    last_ = hn::SetTableIndices(Lanes(), lanes);
  }
  HWY_INLINE F up(F v, int step, F entering) const {
    return hn::IfThenElse(below_[step], entering, hn::TableLookupLanes(v, from_[step]));
  }
  HWY_INLINE F last(F v) const { return hn::TableLookupLanes(v, last_); }

 private:
  static constexpr int kSteps = kLanes <= 1 ? 1 : kLanes <= 2 ? 1 : kLanes <= 4 ? 2 : kLanes <= 8 ? 3 : 4;
  using Indices = decltype(hn::SetTableIndices(Lanes(), static_cast<const std::int32_t*>(nullptr)));
  using Mask = decltype(hn::FirstN(Lanes(), 0));
  Indices from_[kSteps], last_;
  Mask below_[kSteps];
};

template <bool Reverse>
HWY_INLINE F in_scan_order(F v) {
  if constexpr (Reverse) return hn::Reverse(Lanes(), v);
  return v;
}

// One vector of elements, each joined with all before it: `joined`, and the product of decays beside it.
template <Op O>
struct Prefix {
  F joined, decay;
};

template <Op O>
HWY_INLINE Prefix<O> prefix(const LaneShifts& shifts, F a, F x) {
  const F neutral =
      fill(static_cast<double>(O == Op::linear_recurrence ? 0.0f : Scalar<O, false>::initial().h));
  const F one = fill(1.0);
  for (int step = 0, distance = 1; distance < kLanes; ++step, distance *= 2) {
    const F earlier = shifts.up(x, step, neutral);
    if constexpr (O == Op::linear_recurrence) {
      x = hn::MulAdd(a, earlier, x);
      a = a * shifts.up(a, step, one);
    } else {
      x = vector_step<O>(earlier, x, x);
    }
  }
  return {x, a};
}

// Whether log-steps gave what the sequential loop gives, but for rounding. Every value of the loop is among
// the results, so finite results mean that it stayed in range. A vanished product loses what it should have
// kept of the state, so it counts as out of range too.
template <Op O>
HWY_INLINE bool in_range(F results, F decay) {
  const Lanes d;
  if constexpr (O == Op::linear_recurrence) {
    if (!hn::AllTrue(d, hn::Abs(decay) >= fill(0x1p-100))) return false;
  }
  if constexpr (O == Op::cumprod) {
    if (!hn::AllTrue(d, hn::Abs(results) >= fill(0x1p-100))) return false;
  }
  return hn::AllTrue(d, hn::IsFinite(results));
}

template <Op O, Dtype T, bool Reverse>
struct Row {
  using E = Element<T>;
  using Math = Scalar<O, false>;
  static constexpr bool kDecay = O == Op::linear_recurrence;
  const E *a, *x;
  E* y;
  std::int64_t length;

  // Element i in the order of the scan.
  std::int64_t at(std::int64_t i) const { return Reverse ? length - 1 - i : i; }
  // Where a vector of elements i ... i + kLanes - 1 lies.
  std::int64_t vector_at(std::int64_t i) const { return Reverse ? length - i - kLanes : i; }

  float step_by_step(float h, std::int64_t begin, std::int64_t end) const {
    typename Math::State state{h};
    for (std::int64_t i = begin; i < end; ++i) {
      Math::step(state, kDecay ? scalar_load<T>(a + at(i)) : 0.0f, scalar_load<T>(x + at(i)));
      scalar_store<T>(Math::value(state), y + at(i));
    }
    return state.h;
  }

  void run() const {
    const LaneShifts shifts;
    constexpr std::int64_t kTogether = 4;  // vectors whose log-steps overlap
    float h = Math::initial().h;
    std::int64_t i = 0;
    for (; i + kTogether * kLanes <= length; i += kTogether * kLanes) {
      Prefix<O> part[kTogether];
      for (std::int64_t v = 0; v < kTogether; ++v) {
        const std::int64_t where = vector_at(i + v * kLanes);
        const F element = in_scan_order<Reverse>(load_as_f32<T>(x + where));
        F decay = element;
        if constexpr (kDecay) decay = in_scan_order<Reverse>(load_as_f32<T>(a + where));
        part[v] = prefix<O>(shifts, decay, element);
      }
      F carry = fill(static_cast<double>(h));
      for (std::int64_t v = 0; v < kTogether; ++v) {
        const std::int64_t first = i + v * kLanes;
        const F results = vector_step<O>(carry, part[v].decay, part[v].joined);
        if (HWY_LIKELY(in_range<O>(results, part[v].decay))) {
          store_from_f32<T>(in_scan_order<Reverse>(results), y + vector_at(first));
          carry = shifts.last(results);
        } else {
          carry = fill(static_cast<double>(step_by_step(hn::GetLane(carry), first, first + kLanes)));
        }
      }
      h = hn::GetLane(carry);
    }
    step_by_step(h, i, length);
  }
};

template <Op O, Dtype T>
void sweep_direction(const RowSweep& s) {
  using E = Element<T>;
  const E *a = static_cast<const E*>(s.a), *x = static_cast<const E*>(s.x);
  E* y = static_cast<E*>(s.y);
  if (s.reverse) return Row<O, T, true>{a, x, y, s.length}.run();
  Row<O, T, false>{a, x, y, s.length}.run();
}

// Any class of associative_ops.cuh, element by element.
template <class Math, class E, class Load, class Store>
void sweep_elements(const RowSweep& s, Load load_element, Store store_element) {
  const E *a = static_cast<const E*>(s.a), *x = static_cast<const E*>(s.x);
  E* y = static_cast<E*>(s.y);
  const bool decay = s.op == Op::linear_recurrence;
  auto state = Math::initial();
  for (std::int64_t i = 0; i < s.length; ++i) {
    const std::int64_t at = s.reverse ? s.length - 1 - i : i;
    const auto element = load_element(x + at);
    Math::step(state, decay ? load_element(a + at) : element, element);
    store_element(Math::value(state), y + at);
  }
}

template <Dtype T>
void sweep_compensated(const RowSweep& s) {
  sweep_elements<Scalar<Op::cumsum, true>, Element<T>>(s, scalar_load<T>, scalar_store<T>);
}

template <Op O, class T, class V>
void sweep_integers(const RowSweep& s) {
  using Math = typename associative::Select<O, V, false>::Type;
  sweep_elements<Math, T>(
      s, [](const T* from) { return static_cast<V>(*from); },
      [](V value, T* to) { *to = static_cast<T>(value); });
}

void sweep_complex(const RowSweep& s) {
  using C = associative::Complex<float>;
  sweep_elements<associative::LinearRecurrence<C>, C>(
      s, [](const C* from) { return *from; }, [](C value, C* to) { *to = value; });
}

template <Op O>
void sweep_dtype(const RowSweep& s) {
  if (s.dtype == Dtype::f32) return sweep_direction<O, Dtype::f32>(s);
  if (s.dtype == Dtype::f16) return sweep_direction<O, Dtype::f16>(s);
  if (s.dtype == Dtype::bf16) return sweep_direction<O, Dtype::bf16>(s);
  if constexpr (O == Op::cumsum || O == Op::cummax || O == Op::cummin) {
    if (s.dtype == Dtype::s32) return sweep_integers<O, std::int32_t, int>(s);
    sweep_integers<O, std::int64_t, long long>(s);
  }
  if constexpr (O == Op::linear_recurrence) sweep_complex(s);
}

void run_row(const RowSweep& s) {
  switch (s.op) {
    case Op::cumsum:
      if (!s.compensated) return sweep_dtype<Op::cumsum>(s);
      if (s.dtype == Dtype::f32) return sweep_compensated<Dtype::f32>(s);
      if (s.dtype == Dtype::f16) return sweep_compensated<Dtype::f16>(s);
      return sweep_compensated<Dtype::bf16>(s);
    case Op::cumprod:
      return sweep_dtype<Op::cumprod>(s);
    case Op::cummax:
      return sweep_dtype<Op::cummax>(s);
    case Op::cummin:
      return sweep_dtype<Op::cummin>(s);
    case Op::linear_recurrence:
      return sweep_dtype<Op::linear_recurrence>(s);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {
HWY_EXPORT(run_row);

void sweep_row(const RowSweep& sweep) {
  HWY_DYNAMIC_DISPATCH(run_row)(sweep);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
