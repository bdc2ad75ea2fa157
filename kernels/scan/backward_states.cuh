// Where a lane's states lie in memory: A, constant b and c, given states, and scratch. Included by
// backward_lane.cuh.
#pragma once

#include "kernels/scan/backward.cuh"

namespace exphil {
namespace scan {

// visit(i, float index within {dim, state} rows of the lane's state i, whether it exists): the float index
// counts from row `row` of the first channel of the tile.
template <class Visit>
EXPHIL_DEVICE void visit_states(const Place& s, Visit visit) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int n = s.part * kPerLane + i;
      visit(c * kPerLane + i, (s.channel(c) * STATE + n) * kFloats, s.has_channel(c) && n < STATE);
    }
  }
}
// {..., dim, state} from row `row` of what is before dim; zeros where there is nothing.
EXPHIL_DEVICE void load_states(const Arguments& p, const Place& s, const float* data, long long row,
                               Number (&to)[kOwn]) {
  const float* from = data + row * p.dim * kRowUsed;
  visit_states(s, [&](int i, long long at, bool exists) {
    to[i] = data != nullptr && exists ? Rule::load(from + at) : Rule::zero();
  });
}
EXPHIL_DEVICE void store_states(const Arguments& p, const Place& s, float* data, long long row,
                                const Number (&from)[kOwn]) {
  float* to = data + row * p.dim * kRowUsed;
  visit_states(s, [&](int i, long long at, bool exists) {
    if (exists) Rule::store(from[i], to + at);
  });
}
// The same in scratch, which is aligned: a lane's states of a channel in one access, where all of them exist.
template <class Visit>
EXPHIL_DEVICE void visit_scratch(const Arguments& p, const Place& s, long long row, Visit visit) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const long long at = ((row * p.dim + s.channel(c)) * STATE + s.part * kPerLane) * kFloats;
    if (s.has_channel(c) && s.part * kPerLane < STATE) visit(c * kPerLane, at);
  }
}
EXPHIL_DEVICE void load_scratch(const Arguments& p, const Place& s, const float* data, long long row,
                                Number (&to)[kOwn]) {
  if constexpr (STATE % kPerLane != 0) {
    load_states(p, s, data, row, to);
  } else {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) to[i] = Rule::zero();
    visit_scratch(p, s, row, [&](int first, long long at) {
      float flat[kLaneRow];
      device::load_floats(data + at, flat);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) to[first + i] = Rule::load(flat + i * kFloats);
    });
  }
}
EXPHIL_DEVICE void store_scratch(const Arguments& p, const Place& s, float* data, long long row,
                                 const Number (&from)[kOwn]) {
  if constexpr (STATE % kPerLane != 0) {
    store_states(p, s, data, row, from);
  } else {
    visit_scratch(p, s, row, [&](int first, long long at) {
      float flat[kLaneRow];
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) Rule::store(from[first + i], flat + i * kFloats);
      device::store_floats(data + at, flat);
    });
  }
}
template <int E>
EXPHIL_DEVICE void load_constant(const Place& s, const void* data, Number (&to)[kOwn]) {
  const auto* from = static_cast<const typename device::StorageOf<E>::Type*>(data);
  visit_states(s, [&](int i, long long at, bool exists) {
    float flat[kFloats];
#pragma unroll
    for (int f = 0; f < kFloats; ++f) flat[f] = exists ? device::widen<E>(from[at + f]) : 0.0f;
    to[i] = Rule::load(flat);
  });
}

}  // namespace scan
}  // namespace exphil
