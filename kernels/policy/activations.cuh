// A block's part of the weights and its shared memory (policy/layout.cuh), as constants of the compiled
// kernel. With -D: TEAM, AGENTS, STAGED.
#pragma once

#include "kernels/policy/dims.cuh"

namespace exphil {
namespace policy {

constexpr TeamLayout kTeam(kDims, TEAM);
constexpr ActivationLayout kActivations(kDims, kTeam.share, AGENTS);

constexpr int kInnerSegments = kInner / kSegment;
constexpr int kModelSegments = kModel / kSegment;
constexpr int kInputSegments = kInput / kSegment;
constexpr int kOwnSegments = kTeam.share.own_segments, kOwn = kTeam.share.own;
constexpr int kRows = kTeam.share.rows, kHeads = kTeam.share.heads, kHiddenRows = kTeam.share.hidden;
constexpr int kHeadSegments = kHeadDepth / kSegment;

// The arrays at the offsets of kActivations.
struct Activations {
  float (&h)[AGENTS][kModel];
  float (&y)[AGENTS][kInner];
  float (&projection_parts)[AGENTS][kInnerSegments][kProjection];
  float* const dt_parts;  // [agent][inner segment]: sums of dt
  float* const hidden;    // [agent][kHidden]
  float (&obs)[AGENTS][kInput];
  float& go;
  float (&u)[AGENTS][kOwn];     // after conv and silu
  float (&gate)[AGENTS][kOwn];  // silu(z)
  float (&dt)[AGENTS][kOwn];
  float (&projection)[AGENTS][kProjection];
  float* const parts;  // [agent][task]
  float (&residual)[AGENTS][kRows];
  float (&norm_scale)[AGENTS];
  float* const norm_mean;  // [agent], where the form centres
  const float* (&from)[AGENTS];
  float* (&to)[AGENTS];
  unsigned long long (&arrived)[2 + kLayers];

  __device__ __forceinline__ explicit Activations(void* base)
      : h(array<float[AGENTS][kModel]>(kActivations.h, base)),
        y(array<float[AGENTS][kInner]>(kActivations.y, base)),
        projection_parts(
            array<float[AGENTS][kInnerSegments][kProjection]>(kActivations.projection_parts, base)),
        dt_parts(kActivations.dt_parts.in(base)),
        hidden(kActivations.hidden.in(base)),
        obs(array<float[AGENTS][kInput]>(kActivations.obs, base)),
        go(*kActivations.go.in(base)),
        u(array<float[AGENTS][kOwn]>(kActivations.u, base)),
        gate(array<float[AGENTS][kOwn]>(kActivations.gate, base)),
        dt(array<float[AGENTS][kOwn]>(kActivations.dt, base)),
        projection(array<float[AGENTS][kProjection]>(kActivations.projection, base)),
        parts(kActivations.parts.in(base)),
        residual(array<float[AGENTS][kRows]>(kActivations.residual, base)),
        norm_scale(array<float[AGENTS]>(kActivations.norm_scale, base)),
        norm_mean(kActivations.norm_mean.in(base)),
        from(array<const float* [AGENTS]>(kActivations.from, base)),
        to(array<float* [AGENTS]>(kActivations.to, base)),
        arrived(array<unsigned long long[2 + kLayers]>(kActivations.arrived, base)) {}

 private:
  template <class Array, class T>
  static __device__ __forceinline__ Array& array(const Part<T>& part, void* base) {
    return *reinterpret_cast<Array*>(part.in(base));
  }
};

constexpr int kStagedBytes = STAGED ? static_cast<int>(kTeam.staged_bytes) : 0;

}  // namespace policy
}  // namespace exphil
