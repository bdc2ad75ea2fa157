// The epilogues of Mamba-1's products by their names, for the kernels over windows. It goes when these use
// PhaseProduct.
#pragma once

#include "kernels/policy/product.cuh"

namespace exphil {
namespace policy {

struct OfPlain {
  static constexpr Norm kNorm = Norm::none;
  static constexpr bool kNormed = false, kCentres = false;
  static constexpr int kValues = 1;
};
struct OfHidden {
  static constexpr Norm kNorm = kForm.layer_norm ? Norm::layer : Norm::rms;
  static constexpr bool kNormed = true, kCentres = kDims.centres();
  static constexpr int kValues = kDims.d_model;
};
template <bool kOf>
struct OfFinal : OfHidden {};
template <>
struct OfFinal<false> : OfPlain {};

struct ProjectionEpilogue : OfPlain {
  static __device__ __forceinline__ float apply(float sum, float bias, float, const ProductArguments&,
                                                long long, int) {
    return kForm.projection_bias ? __fadd_rn(sum, bias) : sum;
  }
};
struct BiasEpilogue : OfPlain {
  static __device__ __forceinline__ float apply(float sum, float bias, float, const ProductArguments&,
                                                long long, int) {
    return __fadd_rn(sum, bias);
  }
};
struct ResidualEpilogue : OfPlain {
  static __device__ __forceinline__ float apply(float sum, float bias, float, const ProductArguments& args,
                                                long long row, int column) {
    return __fadd_rn(__fadd_rn(sum, bias), args.residual[row * args.residual_stride + column]);
  }
};
// Of the product that reads the final hidden state: the head, or the hidden layer of two-layer heads, with
// relu.
template <bool kRelu>
struct HeadEpilogue : OfFinal<kForm.final_norm> {
  using OfFinal<kForm.final_norm>::kNormed;
  static __device__ __forceinline__ float apply(float sum, float bias, float scale, const ProductArguments&,
                                                long long, int) {
    const float value = kNormed ? __fmaf_rn(sum, scale, bias) : __fadd_rn(sum, bias);
    return kRelu ? fmaxf(value, 0.0f) : value;
  }
};
// x unchanged, silu(z).
struct InProjEpilogue : OfHidden {
  static __device__ __forceinline__ float apply(float sum, float bias, float scale, const ProductArguments&,
                                                long long, int column) {
    const float value = __fmaf_rn(sum, scale, bias);
    return column < kInner ? value : silu(value);
  }
};

}  // namespace policy
}  // namespace exphil
