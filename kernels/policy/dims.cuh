// The sizes of the policy that a kernel is compiled for, as constants (policy/layout.cuh).
//
// Compiled with -D: D_MODEL, D_INNER, D_STATE, D_CONV, DT_RANK, D_INPUT, D_OUTPUT, N_LAYER, D_HIDDEN; 0 or 1
// for each field of Form: LAYER_NORM, FINAL_NORM, PROJECTION_BIAS, CLIPS_DT, MEAN_DT, DECAYS_INPUT,
// CARRIED_DECAYS_INPUT; WEIGHTS, the number of Stored; and DT_MIN and DT_MAX, the bits of the range of dt.
#pragma once

#include "kernels/policy/layout.cuh"

// Below compute capability 9.0 there are no clusters, and c_src/cuda/policy/team.cpp does not use them; such
// a variant still compiles, without clusters.
#if defined(CLUSTER) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#undef CLUSTER
#undef STAGED
#define CLUSTER 0
#define STAGED 0
#endif

// What a kernel declares whose teams of TEAM blocks are clusters.
#if defined(CLUSTER) && CLUSTER
#define TEAM_SHAPE __cluster_dims__(TEAM, 1, 1)
#else
#define TEAM_SHAPE
#endif

namespace exphil {
namespace policy {

constexpr Form kForm{LAYER_NORM, FINAL_NORM,   PROJECTION_BIAS,     CLIPS_DT,
                     MEAN_DT,    DECAYS_INPUT, CARRIED_DECAYS_INPUT};
constexpr Dims kDims{D_MODEL,
                     D_INNER,
                     D_STATE,
                     D_CONV,
                     DT_RANK,
                     D_INPUT,
                     D_OUTPUT,
                     N_LAYER,
                     D_HIDDEN,
                     kForm,
                     static_cast<Stored>(WEIGHTS)};

constexpr int kModel = kDims.model(), kInner = kDims.inner(), kInput = kDims.input();
constexpr int kOutput = kDims.output(), kLayers = kDims.layers();
constexpr int kHidden = kDims.hidden(), kHeadDepth = kDims.head_depth();
constexpr int kLanes = kDims.lanes(), kPerLane = kDims.per_lane(), kState = kDims.state();
constexpr int kRank = kDims.rank(), kProjection = kDims.projection();
constexpr int kTaps = kDims.taps(), kHistory = kDims.history();
constexpr int kSsmFloats = kDims.ssm_floats(), kLayerStateFloats = kDims.layer_state_floats();

}  // namespace policy
}  // namespace exphil
