// The scratch memory of the operator of Mamba-2 on a device: what a slice of the batch needs, and the sums of
// the whole batch. Callers: scan.cpp. Plain values; any thread.
#pragma once

#include <algorithm>

#include "core/ssd/call.hpp"
#include "cuda/device/places.hpp"
#include "cuda/divide_up.hpp"
#include "kernels/policy/gradient_heads.cuh"
#include "kernels/ssd/arguments.cuh"

namespace exphil::cuda {

struct SsdLayout {
  using Id = core::SsdOperand;
  // Of a slice: 1 GB, or one sequence.
  static constexpr std::int64_t kMostFloats = std::int64_t{1} << 28;

  explicit SsdLayout(const core::SsdShape& shape)
      : s(shape), tile(static_cast<int>(shape.state)), tiles(tile.tiles(static_cast<int>(shape.headdim))) {
    Places one;
    take_slice(1, &one);
    const auto floats = static_cast<std::int64_t>(one.bytes() / sizeof(float));
    slice = std::clamp<std::int64_t>(kMostFloats / std::max<std::int64_t>(floats, 1), 1, s.batch);
    Places places;
    take_slice(slice, &places);
    if (s.gradient()) {
      a_parts = take(s.batch * tiles * s.heads, &places);
      d_parts = take(s.has(Id::grad_d) ? s.batch * skip_parts() * s.skips() : 0, &places);
      bias_parts = take(s.has(Id::grad_dt_bias) ? s.batch * stretches() * s.heads : 0, &places);
    }
    bytes = places.bytes();
  }

  // Whether a call's tensor has a float copy, or floats of its own where the call has none.
  bool is_copied(Id id) const {
    if (id == Id::grad_x) return s.gradient() && (s.dtype != core::Dtype::f32 || !s.has(id));
    // y before the gate; the gradient of z needs it again.
    if (id == Id::y)
      return s.gradient() ? s.has(Id::z) : s.dtype != core::Dtype::f32 || s.has(Id::z) || !s.has(id);
    if (id == Id::dy) return s.gradient() && (s.dtype != core::Dtype::f32 || s.has(Id::z));
    return (id == Id::x || id == Id::b || id == Id::c) && s.dtype != core::Dtype::f32;
  }
  std::int64_t values() const { return s.seq * s.heads * s.headdim; }  // of a sequence
  std::int64_t keys() const { return s.seq * s.groups * s.state; }
  std::int64_t key_parts() const { return tiles * (s.heads / s.groups); }
  std::int64_t skip_parts() const { return s.skip_of_head ? tiles : 1; }  // of a sequence
  std::int64_t stretches() const { return divide_up(s.seq, ssd::kBiasSteps); }

  const core::SsdShape& s;
  const policy::HeadTile tile;
  const std::int64_t tiles;
  std::int64_t slice = 1;  // sequences at a time
  core::PerOperand<Id, std::size_t> copy{};
  std::size_t dt = 0, states = 0, dt_parts = 0, b_parts = 0, c_parts = 0;
  std::size_t a_parts = 0, d_parts = 0, bias_parts = 0, bytes = 0;

 private:
  static std::size_t take(std::int64_t floats, Places* places) {
    return places->take(static_cast<std::size_t>(floats) * sizeof(float));
  }
  void take_slice(std::int64_t count, Places* places) {
    for (const Id id : {Id::x, Id::b, Id::c, Id::y, Id::dy, Id::grad_x}) {
      const bool of_group = id == Id::b || id == Id::c;
      if (is_copied(id)) copy[id] = take(count * (of_group ? keys() : values()), places);
    }
    dt = take(count * s.seq * s.heads, places);
    if (!s.gradient()) return;
    const std::int64_t segment = policy::kHeadSegment;
    const std::int64_t slots = divide_up(s.seq, segment) + std::min(s.seq, segment);
    states = take(count * s.heads * tiles * slots * tile.floats() * policy::kHeadWalkThreads, places);
    dt_parts = take(count * tiles * s.seq * s.heads, places);
    b_parts = take(count * key_parts() * keys(), places);
    c_parts = take(count * key_parts() * keys(), places);
  }
};

}  // namespace exphil::cuda
