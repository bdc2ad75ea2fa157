#include "host/ssd/piece.hpp"

#include "core/half.hpp"
#include "core/scalar_math.hpp"
#include "host/simd/convert.hpp"

namespace exphil::host {

using Id = core::SsdOperand;
using Math = core::ScalarMath<float>;

std::int64_t PieceRows::step(Id id) const {
  return of_group(id) ? s_.groups * s_.state : s_.heads * s_.headdim;
}

char* PieceRows::at(Id id, std::int64_t t) const {
  if (call_.operands[id] == nullptr) return nullptr;
  const std::int64_t in_row =
      of_group(id) ? s_.group_of(p_.head) * s_.state : p_.head * s_.headdim + p_.first;
  const std::int64_t element = (p_.sequence * s_.seq + t) * step(id) + in_row;
  return static_cast<char*>(call_.operands[id]) +
         element * static_cast<std::int64_t>(core::dtype_size(s_.dtype));
}

MatrixRows PieceRows::read(Id id, std::int64_t t, std::int64_t count, float* scratch) const {
  if (in_place(id)) return {reinterpret_cast<float*>(at(id, t)), step(id)};
  const std::int64_t wide = scratch_width(id);
  for (std::int64_t i = 0; i < count; ++i) widen_row(s_.dtype, at(id, t + i), width(id), scratch + i * wide);
  return {scratch, wide};
}

MatrixRows PieceRows::target(Id id, std::int64_t t, float* scratch) const {
  if (in_place(id)) return {reinterpret_cast<float*>(at(id, t)), step(id)};
  return {scratch, scratch_width(id)};
}

void PieceRows::settle(Id id, std::int64_t t, std::int64_t count, const float* scratch) const {
  if (s_.dtype == core::Dtype::f32 || call_.operands[id] == nullptr) return;
  for (std::int64_t i = 0; i < count; ++i) {
    narrow_row(s_.dtype, scratch + i * scratch_width(id), width(id), at(id, t + i));
  }
}

float* PieceRows::states(Id id) const {
  auto* const all = static_cast<float*>(call_.operands[id]);
  if (all == nullptr) return nullptr;
  return all + ((p_.sequence * s_.heads + p_.head) * s_.headdim + p_.first) * s_.state;
}

float PieceRows::dt_of(std::int64_t t) const {
  const std::int64_t i = (p_.sequence * s_.seq + t) * s_.heads + p_.head;
  if (s_.dtype == core::Dtype::f32) return static_cast<const float*>(call_.input(Id::dt))[i];
  const std::uint16_t half = static_cast<const std::uint16_t*>(call_.input(Id::dt))[i];
  return s_.dtype == core::Dtype::f16 ? core::f16_to_f32(half) : core::bf16_to_f32(half);
}

float PieceRows::bias() const {
  const auto* const bias = static_cast<const float*>(call_.input(Id::dt_bias));
  return bias == nullptr ? 0.0f : bias[p_.head];
}

void PieceRows::active_dt(std::int64_t t, std::int64_t count, float* to) const {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = core::activate_dt<Math>(s_.options, dt_of(t + i), bias());
  }
}

float PieceRows::dt_back(std::int64_t t, float gradient) const {
  return core::activate_dt_gradient<Math>(s_.options, dt_of(t), bias(), gradient);
}

HeadRows PieceRows::heads(const MatrixRows& x, const MatrixRows& b, const MatrixRows& c, const float* dt,
                          std::int64_t seq) const {
  HeadRows heads;
  heads.keys = s_.state, heads.channels = p_.channels;
  heads.value = x, heads.key = b, heads.query = c;
  heads.rate = heads.decay = {const_cast<float*>(dt), 1};
  heads.skip_of_head = s_.skip_of_head;
  heads.a = static_cast<const float*>(call_.input(Id::a)) + p_.head;
  const auto* const d = static_cast<const float*>(call_.input(Id::d));
  if (d != nullptr) heads.d = d + (s_.skip_of_head ? p_.head : p_.head * s_.headdim + p_.first);
  heads.seq = seq;
  return heads;
}

}  // namespace exphil::host
