// sweep_row for every SIMD target.
#include "core/work/background.hpp"
#include "host/associative/sweep.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/associative/rows.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/associative/elements-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// Between two calls of give_way(): some 10 us.
inline constexpr std::int64_t kElementsPerOffer = 1 << 13;

// Moves lanes up by 1, 2, 4, ...
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
  // The lowest lanes, which have no predecessor, keep their values.
  HWY_INLINE F up(F v, int step) const { return hn::TableLookupLanes(v, from_[step]); }
  HWY_INLINE F choose(int step, F below, F above) const { return hn::IfThenElse(below_[step], below, above); }
  HWY_INLINE F last(F v) const { return hn::TableLookupLanes(v, last_); }

 private:
  static constexpr int kSteps = kLanes <= 2 ? 1 : kLanes <= 4 ? 2 : kLanes <= 8 ? 3 : 4;
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

// Segments of elements, one per lane: their combined effect on the state before them. `second` is the product
// of the decays of a recurrence, the rounding error of a compensated sum, and unused otherwise.
struct Segment {
  F value, second;
};

template <Op O, bool Compensated>
HWY_INLINE Segment join(Segment earlier, Segment later) {
  if constexpr (O == Op::linear_recurrence) {
    return {hn::MulAdd(later.second, earlier.value, later.value), later.second * earlier.second};
  } else if constexpr (Compensated) {
    vector_compensated(&earlier.value, &earlier.second, later.value, later.second);
    return earlier;
  } else {
    return {vector_step<O>(earlier.value, later.value, later.value), later.second};
  }
}

// Combines each lane with all lanes below it.
template <Op O, bool Compensated>
HWY_INLINE Segment prefix(const LaneShifts& shifts, Segment own) {
  constexpr bool kSecond = O == Op::linear_recurrence || Compensated;
  HWY_UNROLL(4)
  for (int step = 0; (1 << step) < kLanes; ++step) {
    const Segment below{shifts.up(own.value, step), kSecond ? shifts.up(own.second, step) : own.second};
    const Segment joined = join<O, Compensated>(below, own);
    own.value = shifts.choose(step, own.value, joined.value);
    if constexpr (kSecond) own.second = shifts.choose(step, own.second, joined.second);
  }
  return own;
}

constexpr std::int64_t kVectorsInFlight = 4;  // vectors whose log-steps overlap

// Whether log-steps gave the result of the sequential loop, up to rounding. Every value of the loop is among
// the results, so finite results mean that it stayed in range. A product that underflows to zero loses its
// part of the state, so it counts as out of range too. Extremes only need to be free of NaN.
template <Op O>
HWY_INLINE bool in_range(const F (&results)[kVectorsInFlight], const Segment (&parts)[kVectorsInFlight]) {
  const Lanes d;
  constexpr bool kExtremum = O == Op::cummax || O == Op::cummin;
  const F scale = fill(kExtremum ? 1.0 : 0.0);
  F sum = results[0] * scale;
  HWY_UNROLL(4)
  for (std::int64_t v = 1; v < kVectorsInFlight; ++v) sum = hn::MulAdd(results[v], scale, sum);
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::IsNaN(sum)))) return false;
  if constexpr (O == Op::linear_recurrence || O == Op::cumprod) {
    F least = fill(1.0);
    HWY_UNROLL(4)
    for (std::int64_t v = 0; v < kVectorsInFlight; ++v) {
      least = hn::Min(least, hn::Abs(O == Op::cumprod ? results[v] : parts[v].second));
    }
    return hn::AllTrue(d, least >= fill(0x1p-100));
  }
  (void)parts;
  return true;
}

template <Op O, Dtype T, bool Compensated, bool Reverse>
struct Row {
  using E = Element<T>;
  using Math = Scalar<O, Compensated>;
  using State = typename Math::State;
  static constexpr bool kDecay = O == Op::linear_recurrence;
  const E *a, *x, *initial;
  E* y;
  std::int64_t length;

  // Element i in the order of the scan.
  std::int64_t at(std::int64_t i) const { return Reverse ? length - 1 - i : i; }
  // The lowest index of the vector of elements i ... i + kLanes - 1.
  std::int64_t vector_at(std::int64_t i) const { return Reverse ? length - i - kLanes : i; }

  State step_by_step(State state, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t i = begin; i < end; ++i) {
      Math::step(state, kDecay ? scalar_load<T>(a + at(i)) : 0.0f, scalar_load<T>(x + at(i)));
      scalar_store<T>(Math::value(state), y + at(i));
    }
    return state;
  }

  // The combined effect of elements i ... i + kLanes - 1.
  Segment vector_of(std::int64_t i) const {
    const std::int64_t where = vector_at(i);
    const F element = in_scan_order<Reverse>(load_as_f32<T>(x + where));
    if constexpr (kDecay) return {element, in_scan_order<Reverse>(load_as_f32<T>(a + where))};
    return {element, fill(0.0)};
  }

  State first_state() const {
    State state = Math::initial();
    if (initial != nullptr) state.h = scalar_load<T>(initial);
    return state;
  }
  static State lane_state(Segment carry) {
    State state = Math::initial();
    state.h = hn::GetLane(carry.value);
    if constexpr (Compensated) state.error = hn::GetLane(carry.second);
    return state;
  }
  static Segment all_lanes(const State& state) {
    Segment carry{fill(static_cast<double>(state.h)), fill(0.0)};
    if constexpr (Compensated) carry.second = fill(static_cast<double>(state.error));
    return carry;
  }

  void run() const {
    const LaneShifts shifts;
    Segment carry = all_lanes(first_state());
    std::int64_t i = 0;
    for (; i + kVectorsInFlight * kLanes <= length; i += kVectorsInFlight * kLanes) {
      if (i % kElementsPerOffer == 0) core::give_way();
      Segment parts[kVectorsInFlight];
      F results[kVectorsInFlight];
      HWY_UNROLL(4)
      for (std::int64_t v = 0; v < kVectorsInFlight; ++v) {
        parts[v] = prefix<O, Compensated>(shifts, vector_of(i + v * kLanes));
      }
      Segment h = carry;
      HWY_UNROLL(4)
      for (std::int64_t v = 0; v < kVectorsInFlight; ++v) {
        const Segment joined = join<O, Compensated>(h, parts[v]);
        results[v] = joined.value;
        h.value = shifts.last(joined.value);
        if constexpr (Compensated) h.second = shifts.last(joined.second);
      }
      if (HWY_LIKELY(in_range<O>(results, parts))) {
        HWY_UNROLL(4)
        for (std::int64_t v = 0; v < kVectorsInFlight; ++v) {
          store_from_f32<T>(in_scan_order<Reverse>(results[v]), y + vector_at(i + v * kLanes));
        }
        carry = h;
      } else {
        carry = all_lanes(step_by_step(lane_state(carry), i, i + kVectorsInFlight * kLanes));
      }
    }
    step_by_step(lane_state(carry), i, length);
  }
};

template <Op O, Dtype T, bool Compensated>
void sweep_direction(const RowSweep& s) {
  using E = Element<T>;
  const E *a = static_cast<const E*>(s.a), *x = static_cast<const E*>(s.x);
  const E* initial = static_cast<const E*>(s.initial);
  E* y = static_cast<E*>(s.y);
  if (s.reverse) return Row<O, T, Compensated, true>{a, x, initial, y, s.length}.run();
  Row<O, T, Compensated, false>{a, x, initial, y, s.length}.run();
}

// Any operation of associative/ops.cuh, element by element.
template <class Math, class E, class Load, class Store>
void sweep_elements(const RowSweep& s, Load load_element, Store store_element) {
  const E *a = static_cast<const E*>(s.a), *x = static_cast<const E*>(s.x);
  E* y = static_cast<E*>(s.y);
  const bool decay = s.op == Op::linear_recurrence;
  auto state = Math::initial();
  if (s.initial != nullptr) state.h = load_element(static_cast<const E*>(s.initial));
  for (std::int64_t i = 0; i < s.length; ++i) {
    if (i % kElementsPerOffer == 0) core::give_way();
    const std::int64_t at = s.reverse ? s.length - 1 - i : i;
    const auto element = load_element(x + at);
    Math::step(state, decay ? load_element(a + at) : element, element);
    store_element(Math::value(state), y + at);
  }
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

template <Op O, bool Compensated = false>
void sweep_dtype(const RowSweep& s) {
  if (s.dtype == Dtype::f32) return sweep_direction<O, Dtype::f32, Compensated>(s);
  if (s.dtype == Dtype::f16) return sweep_direction<O, Dtype::f16, Compensated>(s);
  if (s.dtype == Dtype::bf16) return sweep_direction<O, Dtype::bf16, Compensated>(s);
  if constexpr (!Compensated && (O == Op::cumsum || O == Op::cummax || O == Op::cummin)) {
    if (s.dtype == Dtype::s32) return sweep_integers<O, std::int32_t, int>(s);
    sweep_integers<O, std::int64_t, long long>(s);
  }
  if constexpr (O == Op::linear_recurrence) sweep_complex(s);
}

void run_row(const RowSweep& s) {
  switch (s.op) {
    case Op::cumsum:
      return s.compensated ? sweep_dtype<Op::cumsum, true>(s) : sweep_dtype<Op::cumsum>(s);
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
