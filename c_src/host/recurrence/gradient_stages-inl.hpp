// The stages of the gradient around the recurrence, on a tile of kTile steps of one block of channels:
//   begin_gradient: dy through silu(z); clears what the recurrence adds to
//   finish_gradient: dx, d dt, dz, round and store; adds to dD and d dt_bias
//   LaneSums: the sums of dB and dC of a step over the channels of a part
// Compiled per SIMD target; included by gradient.cpp only.
#if defined(EXPHIL_HOST_GRADIENT_STAGES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_GRADIENT_STAGES_INL
#undef EXPHIL_HOST_GRADIENT_STAGES_INL
#else
#define EXPHIL_HOST_GRADIENT_STAGES_INL
#endif

#include <algorithm>

#include "host/recurrence/gradient_scratch.hpp"
#include "host/recurrence/recurrence-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

template <core::Dtype T>
void begin_gradient(const ScanRule& rule, const GradientSequence& sequence, const ScanTile& tile,
                    const PartScratch& scratch) {
  HWY_ALIGN Element<T> dy_copy[kPanel] = {}, z_copy[kPanel] = {};
  const Rows& z = sequence.scan.z;
  const F scale = fill(rule.complex ? 2.0 : 1.0);  // y = 2 Re <C, h>
  for (std::int64_t step = 0; step < tile.steps; ++step) {
    const std::int64_t t = tile.first + step;
    prefetch_row<T>(sequence.dy, t + tile.ahead, sequence.scan, tile);
    for (const void* const to : {sequence.dx, sequence.ddt, sequence.dz})
      prefetch_row<T>({to, sequence.dy.step}, t, sequence.scan, tile);
    const Element<T>* dy_row = whole_row(row_at<T>(sequence.dy, t, tile.channel), tile.lanes, dy_copy);
    const Element<T>* z_row =
        z.data == nullptr ? nullptr : whole_row(row_at<T>(z, t, tile.channel), tile.lanes, z_copy);
    for (std::int64_t o = 0; o < kPanel; o += kLanes) {
      const std::int64_t at = step * kPanel + o;
      F dy = load_as_f32<T>(dy_row + o);
      if (z_row != nullptr) dy = dy * formulas::silu<Math>(load_as_f32<T>(z_row + o));
      store(dy * scale, scratch.dy + at);
      store(fill(0.0), scratch.ddt + at);
      store(fill(0.0), scratch.ddt_x + at);
      store(fill(0.0), tile.y + at);
    }
  }
}

// The destination of a row of results: in place, or for a narrower block a copy that put() moves there.
template <core::Dtype T>
class ResultRow {
 public:
  ResultRow(void* data, std::int64_t step, std::int64_t t, const ScanTile& tile)
      : lanes_(tile.lanes),
        row_(data == nullptr ? nullptr : static_cast<Element<T>*>(data) + t * step + tile.channel) {}

  void store_at(std::int64_t o, F v) {
    if (row_ != nullptr) store_from_f32<T>(v, (lanes_ == kPanel ? row_ : copy_) + o);
  }
  void put() const {
    if (row_ == nullptr || lanes_ == kPanel) return;
    std::memcpy(row_, copy_, static_cast<std::size_t>(lanes_) * sizeof(Element<T>));
  }

 private:
  const std::int64_t lanes_;
  Element<T>* const row_;
  HWY_ALIGN Element<T> copy_[kPanel];
};

template <core::Dtype T>
void finish_gradient(const ScanRule& rule, const GradientSequence& sequence, const ScanTile& tile,
                     const PartScratch& scratch) {
  HWY_ALIGN Element<T> dt_copy[kPanel] = {}, dy_copy[kPanel] = {}, z_copy[kPanel] = {};
  const ScanSequence& scan = sequence.scan;
  const F lowest = fill(rule.dt_min), highest = fill(rule.dt_max);
  const F y_scale = fill(rule.complex ? 2.0 : 1.0), dy_scale = fill(rule.complex ? 0.5 : 1.0);
  float* dd = sequence.dd == nullptr ? nullptr : sequence.dd + tile.channel;
  float* d_bias = sequence.d_bias == nullptr ? nullptr : sequence.d_bias + tile.channel;
  for (std::int64_t step = tile.steps; step-- > 0;) {
    const std::int64_t t = tile.first + step;
    ResultRow<T> dx_row(sequence.dx, sequence.dy.step, t, tile),
        dz_row(sequence.dz, sequence.dy.step, t, tile);
    ResultRow<T> ddt_row(sequence.ddt, sequence.dy.step, t, tile);
    ResultRow<core::Dtype::f32> input_row(sequence.d_input_dt, sequence.dy.step, t, tile);
    const Element<T>* dt_row = whole_row(row_at<T>(scan.dt, t, tile.channel), tile.lanes, dt_copy);
    const Element<T>* dy_row = whole_row(row_at<T>(sequence.dy, t, tile.channel), tile.lanes, dy_copy);
    for (std::int64_t o = 0; o < kPanel; o += kLanes) {
      const std::int64_t at = step * kPanel + o;
      const F x = load(tile.x + at), ddt_x = load(scratch.ddt_x + at), d = load(tile.d + o);
      const F dy = load(scratch.dy + at) * dy_scale;
      const bool own_dt = scan.input_dt == nullptr;
      F dx = (own_dt ? load(tile.dt + at) : broadcast(scan.input_dt + t)) * ddt_x;
      if (scan.d != nullptr) dx = hn::MulAdd(dy, d, dx);
      dx_row.store_at(o, dx);
      const F by_decay = load(scratch.ddt + at);
      const F ddt = formulas::activate_dt_gradient<Math>(load_as_f32<T>(dt_row + o), load(tile.bias + o),
                                                         rule.dt_softplus, lowest, highest,
                                                         own_dt ? hn::MulAdd(x, ddt_x, by_decay) : by_decay);
      if (!own_dt) input_row.store_at(o, x * ddt_x);
      ddt_row.store_at(o, ddt);
      if (dd != nullptr) store(hn::MulAdd(dy, x, load(dd + o)), dd + o);
      if (d_bias != nullptr) store(load(d_bias + o) + ddt, d_bias + o);
      if (scan.z.data == nullptr) continue;
      const Element<T>* z_row = whole_row(row_at<T>(scan.z, t, tile.channel), tile.lanes, z_copy);
      F y = load(tile.y + at) * y_scale;
      if (scan.d != nullptr) y = hn::MulAdd(d, x, y);
      const F slope = formulas::silu_derivative<Math>(load_as_f32<T>(z_row + o));
      dz_row.store_at(o, load_as_f32<T>(dy_row + o) * y * slope);
    }
    dx_row.put(), ddt_row.put(), dz_row.put(), input_row.put();
  }
}

// sums[s] += the sum over the lanes of row s, for kTile rows {kTile, kPanel}.
HWY_INLINE void add_lane_sums(const float* rows, float* sums) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t s = 0; s < kTile; ++s) {
    float sum = 0.0f;
    for (std::int64_t lane = 0; lane < kPanel; ++lane) sum += rows[s * kPanel + lane];
    sums[s] += sum;
  }
#else
  const hn::FixedTag<float, 4> d;
  const auto quarter = [&](std::int64_t s) {
    const float* row = rows + s * kPanel;
    return (hn::LoadU(d, row) + hn::LoadU(d, row + 4)) + (hn::LoadU(d, row + 8) + hn::LoadU(d, row + 12));
  };
  for (std::int64_t s = 0; s < kTile; s += 4) {
    const auto row0 = quarter(s), row1 = quarter(s + 1), row2 = quarter(s + 2), row3 = quarter(s + 3);
    const auto pair02 = hn::InterleaveLower(d, row0, row2) + hn::InterleaveUpper(d, row0, row2);
    const auto pair13 = hn::InterleaveLower(d, row1, row3) + hn::InterleaveUpper(d, row1, row3);
    const auto total = hn::InterleaveLower(d, pair02, pair13) + hn::InterleaveUpper(d, pair02, pair13);
    hn::StoreU(hn::LoadU(d, sums + s) + total, d, sums + s);
  }
#endif
}

// The lanes of dB (or dC) of one tile: added up over the blocks of a part while they are in one group, then
// over the lanes, into the sums of that part and group.
class LaneSums {
 public:
  LaneSums(const ScanRule& rule, const ProjectionGradient& to, std::int64_t groups, std::int64_t part,
           std::int64_t tile, std::int64_t tile_count, float* lanes)
      : rule_(rule),
        to_(to),
        groups_(groups),
        part_(part),
        tile_(tile),
        tile_count_(tile_count),
        rows_(lanes) {}

  // The rows that the recurrence adds to for the block of `lanes` channels from `channel` on.
  float* begin(std::int64_t channel, std::int64_t lanes) {
    if (to_.panels != nullptr) return to_.panels + channel / kPanel * rule_.state_block();
    const std::int64_t first = group_of(channel), last = group_of(channel + lanes - 1);
    const bool joins = held_ && one_group_ && first == first_group_ && last == first && lanes == kPanel;
    if (!joins) {
      flush();
      std::fill(rows_, rows_ + numbers() * kTile * kPanel, 0.0f);
      held_ = true, one_group_ = first == last && lanes == kPanel;
      channel_ = channel, lanes_ = lanes, first_group_ = first;
    }
    return rows_;
  }

  void flush() {
    if (!held_) return;
    held_ = false;
    for (std::int64_t n = 0; n < numbers(); ++n) {
      const float* rows = rows_ + n * kTile * kPanel;
      if (one_group_) {
        add_lane_sums(rows, sums(first_group_, n));
        continue;
      }
      for (std::int64_t lane = 0; lane < lanes_; ++lane) {
        float* to = sums(group_of(channel_ + lane), n);
        for (std::int64_t s = 0; s < kTile; ++s) to[s] += rows[s * kPanel + lane];
      }
    }
  }

 private:
  std::int64_t numbers() const { return rule_.state * rule_.parts(); }
  std::int64_t group_of(std::int64_t channel) const { return channel / (rule_.dim / groups_); }
  float* sums(std::int64_t group, std::int64_t n) const {
    return to_.sums + (((part_ + group) * tile_count_ + tile_) * numbers() + n) * kTile;
  }

  const ScanRule& rule_;
  const ProjectionGradient& to_;
  const std::int64_t groups_, part_, tile_, tile_count_;
  float* const rows_;  // {state, parts, kTile, kPanel}
  bool held_ = false;
  bool one_group_ = false;  // every lane is a channel of first_group_
  std::int64_t channel_ = 0, lanes_ = 0, first_group_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
