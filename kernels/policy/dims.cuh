// The dimensions of one policy as its kernels see them: every vector is padded with zeros to a whole number
// of segments (policy/dot.cuh), so that any size works and every load is aligned. cuda/model_dims.hpp
// computes the same numbers on the host; the two must agree.
//
// Compiled with -D: D_MODEL, D_INNER, D_STATE, D_CONV, DT_RANK, D_INPUT, D_OUTPUT, N_LAYER.
#pragma once

// Below compute capability 9.0 there are no clusters, and cuda/model_team.cpp never asks for them; such a
// variant still compiles, as the plain one.
#if defined(CLUSTER) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#undef CLUSTER
#undef STAGED
#define CLUSTER 0
#define STAGED 0
#endif

namespace exphil {
namespace policy {

__host__ __device__ constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
__host__ __device__ constexpr int divide_up(int value, int by) {
  return (value + by - 1) / by;
}
__host__ __device__ constexpr int power_of_two_above(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}
__host__ __device__ constexpr int least(int left, int right) {
  return left < right ? left : right;
}

constexpr int kSegment = 32;  // of a dot product: see policy/dot.cuh

constexpr int kModel = round_up(D_MODEL, kSegment);
constexpr int kInner = round_up(D_INNER, kSegment);
constexpr int kInput = round_up(D_INPUT, kSegment);
constexpr int kOutput = D_OUTPUT;
constexpr int kLayers = N_LAYER;

// The states of one channel are spread over kLanes neighbouring lanes of a warp, kPerLane each (in float4s).
constexpr int kLanes = least(32, power_of_two_above(divide_up(D_STATE, 4)));
constexpr int kPerLane = round_up(divide_up(D_STATE, kLanes), 4);
constexpr int kState = kLanes * kPerLane;

// One row of x_proj's output: dt (kRank), B (kState), C (kState).
constexpr int kRank = round_up(DT_RANK, 4);
constexpr int kProjection = kRank + 2 * kState;

constexpr int kTaps = D_CONV;
constexpr int kHistory = D_CONV - 1;  // inputs the causal convolution remembers

// One agent's state, in floats: for each layer ssm {kInner, kState}, then conv {kHistory, kInner}, oldest
// first.
constexpr int kSsmFloats = kInner * kState;
constexpr int kConvFloats = kHistory * kInner;
constexpr int kLayerStateFloats = kSsmFloats + kConvFloats;

}  // namespace policy
}  // namespace exphil
