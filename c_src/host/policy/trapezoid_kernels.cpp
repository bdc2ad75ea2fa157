#include "host/policy/trapezoid_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/policy/trapezoid_kernels.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include <algorithm>
#include "core/policy/ranks.hpp"
#include "host/policy/layer_kernels-inl.hpp"
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// One vector of angles through all frames.
HWY_INLINE void advance_vector(const AngleRows& r, std::int64_t first, std::int64_t count) {
  F angle = load_some(r.from + first, count);
  HWY_ALIGN float rates[kLanes] = {}, dts[kLanes] = {}, sines[kLanes], cosines[kLanes];
  for (std::int64_t t = 0; t < r.seq; ++t) {
    const float *const rate = r.rate.data + t * r.rate.step, *const dt = r.dt.data + t * r.dt.step;
    std::int64_t head = first / r.angles, of_head = first % r.angles;
    for (std::int64_t i = 0; i < count; ++i) {
      rates[i] = rate[of_head], dts[i] = dt[head];
      if (++of_head == r.angles) of_head = 0, ++head;
    }
    angle = formulas::next_angle<Math>(angle, load(rates), load(dts));
    F sine, cosine;
    Math::sin_cos(angle, &sine, &cosine);
    store(sine, sines), store(cosine, cosines);
    float* const out = r.out.data + t * r.out.step + 2 * first;
    for (std::int64_t i = 0; i < count; ++i) out[2 * i] = cosines[i], out[2 * i + 1] = sines[i];
  }
  store_some(angle, r.state + first, count);
}

void run_advance_angles(const AngleRows& r, std::int64_t begin, std::int64_t end) {
  in_vectors(begin, end, [&](std::int64_t i, std::int64_t count) { advance_vector(r, i, count); });
}

// Of a pair and its cosine and sine: both ways through a row compute them so.
HWY_INLINE float first_rotated(float x, float y, const float* turn) {
  return x * turn[0] - y * turn[1];
}
HWY_INLINE float second_rotated(float x, float y, const float* turn) {
  return x * turn[1] + y * turn[0];
}

// One output of a rank and a head, {size} values: those from `begin` to `end`.
HWY_INLINE void rotate_row(const core::Rotation& p, const core::RotatedRow& row, const float* in,
                           const float* bias, const float* turn, std::int64_t begin, std::int64_t end,
                           float* out) {
  const std::int64_t angles = p.angles(), half = p.size() / 2;
  const auto given = [=](std::int64_t i) { return in[i] + bias[i]; };
  if (begin == 0 && end == p.size()) {
    for (std::int64_t i = p.halves ? angles : 2 * angles; i < end; ++i) out[i] = given(i);
    for (std::int64_t j = 0; j < angles; ++j) {
      const float x = given(row.first_of(j)), y = given(row.second_of(j));
      out[row.first_of(j)] = first_rotated(x, y, turn + 2 * j);
      out[row.second_of(j)] = second_rotated(x, y, turn + 2 * j);
    }
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const bool second = p.halves ? i >= half : i % 2 != 0;
    const std::int64_t j = p.halves ? (second ? i - half : i) : i / 2;
    if (j >= angles) {
      out[i] = given(i);
      continue;
    }
    const float x = given(row.first_of(j)), y = given(row.second_of(j));
    out[i] = second ? second_rotated(x, y, turn + 2 * j) : first_rotated(x, y, turn + 2 * j);
  }
}

void run_rotate(const core::Rotation& p, const RotationRows& r, std::int64_t count, std::int64_t begin,
                std::int64_t end) {
  const std::int64_t size = p.size();
  for (std::int64_t index = begin / size; index * size < end; ++index) {
    const core::RotatedRow row(p, index);
    const std::int64_t first = index * size;
    for (std::int64_t t = 0; t < count; ++t) {
      rotate_row(p, row, r.in.data + t * r.in.step + row.in_at, r.bias + row.bias_at,
                 r.turn.data + t * r.turn.step + row.turn_at, std::max<std::int64_t>(begin - first, 0),
                 std::min(end - first, size), r.out.data + t * r.out.step + first);
    }
  }
}

void run_coefficients(std::int64_t heads, float floor, TrapezoidRows r, std::int64_t count) {
  const F least = broadcast(&floor);
  for (std::int64_t t = 0; t < count; ++t) {
    in_vectors(0, heads, [&](std::int64_t i, std::int64_t n) {
      const auto step = formulas::trapezoid_step<Math>(
          load_some(r.dt.data + i, n), load_some(r.a.data + i, n), load_some(r.mix.data + i, n), least);
      store_some(step.before, r.out.data + i, n), store_some(step.now, r.out.data + heads + i, n);
      store_some(step.decay, r.out.data + 2 * heads + i, n);
    });
    r.dt.data += r.dt.step, r.a.data += r.a.step, r.mix.data += r.mix.step, r.out.data += r.out.step;
  }
}

// Channels of one head, of one output rank: `count` values from `i` on.
HWY_INLINE void scale_run(const core::RankScale& p, const float* weight, const float* in, std::int64_t i,
                          std::int64_t count, float* out) {
  const std::int64_t one = p.heads * p.channels();
  in_vectors(i, i + count, [&](std::int64_t at, std::int64_t n) {
    if (!p.back) {
      const F scale = load_some(weight + core::scale_index(p, at), n);
      return store_some(scale * load_some(in + at % one, n), out + at, n);
    }
    F sum = fill(0.0);
    for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
      const F scale = load_some(weight + core::scale_index(p, rank * one + at), n);
      sum = hn::MulAdd(scale, load_some(in + rank * one + at, n), sum);
    }
    store_some(sum, out + at, n);
  });
}

void run_scale_ranks(const core::RankScale& p, const float* weight, MatrixRows in, MatrixRows out,
                     std::int64_t count, std::int64_t begin, std::int64_t end) {
  const std::int64_t channels = p.channels();
  for (std::int64_t t = 0; t < count; ++t, in.data += in.step, out.data += out.step) {
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t next = std::min(end, (i / channels + 1) * channels);
      scale_run(p, weight, in.data, i, next - i, out.data);
      i = next;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_advance_angles);
HWY_EXPORT(run_rotate);
HWY_EXPORT(run_coefficients);
HWY_EXPORT(run_scale_ranks);

void advance_angles(const AngleRows& rows, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_advance_angles)(rows, begin, end);
}

void rotate(const core::Rotation& rotation, const RotationRows& rows, std::int64_t count, std::int64_t begin,
            std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_rotate)(rotation, rows, count, begin, end);
}

void trapezoid_coefficients(std::int64_t heads, float floor, TrapezoidRows rows, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(run_coefficients)(heads, floor, rows, count);
}

void scale_ranks(const core::RankScale& ranks, const float* weight, MatrixRows in, MatrixRows out,
                 std::int64_t count, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_scale_ranks)(ranks, weight, in, out, count, begin, end);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
