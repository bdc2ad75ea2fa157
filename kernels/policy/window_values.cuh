// The network of a kernel for windows as constants, and the values of its products from their sums.
#pragma once

#include "kernels/policy/math.cuh"
#include "kernels/policy/window_layout.cuh"

namespace exphil {
namespace policy {

constexpr WindowPlan kWindow(kNetwork);
static_assert(kWindow.fits, "a policy for the kernels over many rows");

constexpr int kHiddenSize = size_of(kNetwork.hidden), kFrameSize = size_of(kNetwork.frame);
constexpr int kOutSize = size_of(kNetwork.outs), kLayerCount = kNetwork.layers;
// Of the leading product and of the closing one.
constexpr int kLead = kWindow.lead, kClose = kWindow.close, kLastPhase = kNetwork.layer.count - 1;
constexpr int kLeadVector = kNetwork.products[kLead].out[0].vector;  // the first one
constexpr int kLeadWidth = kNetwork.rows(kNetwork.products[kLead]);
constexpr int kClosed = kNetwork.products[kClose].in, kClosedSize = size_of(kClosed);
constexpr int kReadByOutput = kNetwork.output.phases[0].index;

constexpr int kind_at(Kind kind, int at) {
  return kNetwork.layer.phases[at].kind == kind ? kNetwork.layer.phases[at].index : -1;
}

// The value of a row from its sum, before its activation; row_scale and row_sums are read at `at`, the norm's
// factors are those of what the product reads.
template <int kProduct>
__device__ __forceinline__ float value_of(float sum, const float* row_scale, const float* row_sums, int at,
                                          float bias, NormFactors norm) {
  constexpr Product kP = kNetwork.products[kProduct];
  if constexpr (kP.norm != Norm::none) {
    sum = centred<kNetwork.centres(kP)>(sum, row_scale, row_sums, at, norm.mean);
    return __fmaf_rn(sum, norm.scale, bias);
  } else {
    return __fadd_rn(scaled(sum, row_scale, at), bias);
  }
}

}  // namespace policy
}  // namespace exphil
