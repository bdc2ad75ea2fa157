// The stages of a scan around the recurrence, on a tile of kTile steps of one block of channels:
//   prepare: load x and dt, activate dt; stores dt', dt' x (and x, for D) as f32 panels in scratch
//   project: widen B and C to f32, broadcast or per lane
//   finish:  + D x, times silu(z), round and store y
// Compiled per SIMD target; included by channels.cpp and gradient.cpp.
#if defined(EXPHIL_HOST_SCAN_STAGES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_SCAN_STAGES_INL
#undef EXPHIL_HOST_SCAN_STAGES_INL
#else
#define EXPHIL_HOST_SCAN_STAGES_INL
#endif

#include <algorithm>

#include "host/recurrence/sequence.hpp"
#include "host/recurrence/tile.hpp"
#include "host/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// A row of kPanel elements: in place, or where the block is narrower a zero-padded copy.
template <class E>
HWY_INLINE const E* whole_row(const E* row, std::int64_t lanes, E* copy) {
  if (HWY_LIKELY(lanes == kPanel)) return row;
  std::memcpy(copy, row, static_cast<std::size_t>(lanes) * sizeof(E));
  return copy;
}

// {dim} or null -> kPanel values: in place, or where the block is narrower a zero-padded copy.
inline const float* padded_vector(const float* from, const ScanTile& tile, float* copy) {
  if (from != nullptr && tile.lanes == kPanel) return from + tile.channel;
  std::fill(copy, copy + kPanel, 0.0f);
  if (from != nullptr) std::copy(from + tile.channel, from + tile.channel + tile.lanes, copy);
  return copy;
}

template <core::Dtype T>
HWY_INLINE const Element<T>* row_at(const Rows& rows, std::int64_t t, std::int64_t channel) {
  return static_cast<const Element<T>*>(rows.data) + t * rows.step + channel;
}

// The larger of two magnitudes; NaN where either is NaN (then the clamp is not omitted).
HWY_INLINE F larger_or_nan(F bound, F next) {
  return hn::IfThenElse(hn::Or(next <= bound, hn::IsNaN(bound)), bound, next);
}

// Prefetches the rows of the next tile: rows of one block are dim elements apart, a pattern that the hardware
// does not predict.
template <core::Dtype T>
HWY_INLINE void prefetch_row(const Rows& rows, std::int64_t t, const ScanSequence& sequence,
                             const ScanTile& tile) {
  if (rows.data != nullptr && t >= 0 && t < sequence.seq) hwy::Prefetch(row_at<T>(rows, t, tile.channel));
}

template <core::Dtype T>
void prepare(const ScanRule& rule, const ScanSequence& sequence, float a_bound, ScanTile& tile) {
  HWY_ALIGN Element<T> x_copy[kPanel] = {}, dt_copy[kPanel] = {};
  const F lowest = fill(rule.dt_min), highest = fill(rule.dt_max);
  F bound = fill(0.0);
  for (std::int64_t step = 0; step < tile.steps; ++step) {
    const std::int64_t t = tile.first + step;
    prefetch_row<T>(sequence.x, t + tile.ahead, sequence, tile);
    prefetch_row<T>(sequence.dt, t + tile.ahead, sequence, tile);
    prefetch_row<T>(sequence.z, t, sequence, tile);
    const Element<T>* x_row = whole_row(row_at<T>(sequence.x, t, tile.channel), tile.lanes, x_copy);
    const Element<T>* dt_row = whole_row(row_at<T>(sequence.dt, t, tile.channel), tile.lanes, dt_copy);
    for (std::int64_t o = 0; o < kPanel; o += kLanes) {
      const std::int64_t at = step * kPanel + o;
      const F x = load_as_f32<T>(x_row + o);
      const F dt = formulas::activate_dt<Math>(load_as_f32<T>(dt_row + o), load(tile.bias + o),
                                               rule.dt_softplus, lowest, highest);
      bound = larger_or_nan(bound, hn::Abs(dt));
      store(dt, tile.dt + at);
      store((sequence.input_dt == nullptr ? dt : broadcast(sequence.input_dt + t)) * x, tile.dt_x + at);
      if (tile.keep_x) store(x, tile.x + at);
    }
  }
  tile.within_range = hn::AllTrue(Lanes(), bound * fill(a_bound) < fill(kExp2Range));
}

template <core::Dtype T>
void finish(const ScanSequence& sequence, const ScanTile& tile) {
  HWY_ALIGN Element<T> z_copy[kPanel] = {}, y_copy[kPanel];
  for (std::int64_t step = 0; step < tile.steps; ++step) {
    const std::int64_t t = tile.first + step;
    auto* y_row = static_cast<Element<T>*>(sequence.y) + t * sequence.y_step + tile.channel;
    Element<T>* target = tile.lanes == kPanel ? y_row : y_copy;
    const Element<T>* z_row = sequence.z.data == nullptr
                                  ? nullptr
                                  : whole_row(row_at<T>(sequence.z, t, tile.channel), tile.lanes, z_copy);
    for (std::int64_t o = 0; o < kPanel; o += kLanes) {
      const std::int64_t at = step * kPanel + o;
      F y = load(tile.y + at);
      if (sequence.d != nullptr) y = hn::MulAdd(load(tile.d + o), load(tile.x + at), y);
      if (z_row != nullptr) y = y * formulas::silu<Math>(load_as_f32<T>(z_row + o));
      store_from_f32<T>(y, target + o);
    }
    if (target == y_copy) {
      std::memcpy(y_row, y_copy, static_cast<std::size_t>(tile.lanes) * sizeof(Element<T>));
    }
  }
}

// Location of B or C of step `s` of the tile: at data + s step, number n of the row at offset n parts (shared
// by all lanes) or n parts kPanel (a panel).
struct ProjectionTile {
  const float* data;
  std::int64_t step;
  bool shared;
};

template <core::Dtype T>
HWY_INLINE float scalar_as_f32(const Element<T>* from) {
  if constexpr (T == core::Dtype::f32) {
    return *from;
  } else if constexpr (T == core::Dtype::f16) {
    return core::f16_to_f32(*from);
  } else {
    return core::bf16_to_f32(*from);
  }
}

// One row for all lanes. f32 rows are read in place, others widened once per tile.
template <core::Dtype T>
ProjectionTile shared_rows(const ScanRule& rule, const Element<T>* rows, std::int64_t row_step,
                           std::int64_t steps, float* scratch) {
  if constexpr (T == core::Dtype::f32) {
    return {rows, row_step, true};
  } else {
    for (std::int64_t s = 0; s < steps; ++s) {
      const Element<T>* row = rows + s * row_step;
      float* to = scratch + s * rule.state;
      std::int64_t n = 0;
      for (; n + kLanes <= rule.state; n += kLanes) store(load_as_f32<T>(row + n), to + n);
      for (; n < rule.state; ++n) to[n] = scalar_as_f32<T>(row + n);
    }
    return {scratch, rule.state, true};
  }
}

// A block that spans several groups: each lane's own row, laid out as panels.
template <core::Dtype T>
ProjectionTile panels_of_groups(const ScanRule& rule, const Projection& projection, const ScanTile& tile,
                                float* scratch) {
  const std::int64_t row = rule.state * rule.parts(), per_group = rule.dim / projection.groups;
  const auto* rows = static_cast<const Element<T>*>(projection.data) + tile.first * projection.step;
  for (std::int64_t s = 0; s < tile.steps; ++s) {
    for (std::int64_t lane = 0; lane < tile.lanes; ++lane) {
      const Element<T>* from = rows + s * projection.step + (tile.channel + lane) / per_group * row;
      float* to = scratch + s * row * kPanel + lane;
      for (std::int64_t n = 0; n < row; ++n) to[n * kPanel] = scalar_as_f32<T>(from + n);
    }
  }
  return {scratch, row * kPanel, false};
}

template <core::Dtype T>
ProjectionTile project(const ScanRule& rule, const Projection& projection, const ScanTile& tile,
                       float* scratch) {
  const std::int64_t row = rule.state * rule.parts();
  if (projection.constant) {
    const auto* packed = static_cast<const float*>(projection.data);
    return {packed + tile.channel * row, 0, false};  // panels: kPanel channels of `row` floats
  }
  // Skips the division in the common case of one group: it would be a tenth of a single step's time.
  const std::int64_t per_group = projection.groups == 1 ? rule.dim : rule.dim / projection.groups;
  const std::int64_t group = projection.groups == 1 ? 0 : tile.channel / per_group;
  if (projection.groups != 1 && (tile.channel + tile.lanes - 1) / per_group != group) {
    return panels_of_groups<T>(rule, projection, tile, scratch);
  }
  const auto* rows =
      static_cast<const Element<T>*>(projection.data) + tile.first * projection.step + group * row;
  return shared_rows<T>(rule, rows, projection.step, tile.steps, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
