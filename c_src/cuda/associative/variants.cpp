#include "cuda/associative/variants.hpp"

namespace exphil::cuda {

namespace {

using core::AssociativeOp;
using core::Dtype;

constexpr AssociativeVariant kVariants[] = {
    // op, dtype, compensated, items, lanes, walk, initial, gradient
    {AssociativeOp::cumsum, Dtype::f32, false, 16, 16, true},
    {AssociativeOp::cumsum, Dtype::f32, false, 16, 16, false},
    {AssociativeOp::cumsum, Dtype::f32, false, 8, 16, false},
    {AssociativeOp::cumsum, Dtype::f32, false, 16, 4, false},
    {AssociativeOp::cumsum, Dtype::f32, false, 16, 0, false},
    {AssociativeOp::cumsum, Dtype::f32, false, 4, 0, false},
    {AssociativeOp::cumsum, Dtype::f16, false, 16, 16, true},
    {AssociativeOp::cumsum, Dtype::bf16, false, 16, 0, false},
    {AssociativeOp::cumsum, Dtype::c64, false, 8, 16, true},
    {AssociativeOp::cumsum, Dtype::s32, false, 16, 0, false},
    {AssociativeOp::cumsum, Dtype::s64, false, 8, 16, false},
    {AssociativeOp::cumsum, Dtype::f32, true, 16, 16, true},
    {AssociativeOp::cumsum, Dtype::f32, true, 16, 0, false},
    {AssociativeOp::cumsum, Dtype::c64, true, 8, 0, false},
    {AssociativeOp::cumprod, Dtype::f32, false, 16, 16, true},
    {AssociativeOp::cumprod, Dtype::f16, false, 16, 0, false},
    {AssociativeOp::cummax, Dtype::f32, false, 16, 16, true},
    {AssociativeOp::cummax, Dtype::s64, false, 8, 0, false},
    {AssociativeOp::cummin, Dtype::bf16, false, 16, 16, false},
    {AssociativeOp::cummin, Dtype::s32, false, 16, 0, false},
    {AssociativeOp::linear_recurrence, Dtype::f32, false, 16, 16, true},
    {AssociativeOp::linear_recurrence, Dtype::f32, false, 8, 16, false},
    {AssociativeOp::linear_recurrence, Dtype::f32, false, 16, 0, false},
    {AssociativeOp::linear_recurrence, Dtype::f16, false, 16, 0, false},
    {AssociativeOp::linear_recurrence, Dtype::bf16, false, 16, 16, true},
    {AssociativeOp::linear_recurrence, Dtype::c64, false, 8, 16, true},
    {AssociativeOp::linear_recurrence, Dtype::c64, false, 4, 4, false},
    {AssociativeOp::linear_recurrence, Dtype::c64, false, 8, 0, false},
    {AssociativeOp::linear_recurrence, Dtype::f32, false, 16, 16, true, true},
    {AssociativeOp::linear_recurrence, Dtype::f32, false, 8, 16, false, true},
    {AssociativeOp::linear_recurrence, Dtype::f32, false, 16, 0, false, true},
    {AssociativeOp::linear_recurrence, Dtype::f16, false, 16, 0, false, true},
    {AssociativeOp::linear_recurrence, Dtype::bf16, false, 16, 16, true, true},
    {AssociativeOp::linear_recurrence, Dtype::c64, false, 8, 16, true, true},
    {AssociativeOp::linear_recurrence, Dtype::f32, false, 16, 16, true, false, true},
    {AssociativeOp::linear_recurrence, Dtype::f32, false, 16, 0, false, false, true},
    {AssociativeOp::linear_recurrence, Dtype::f16, false, 16, 16, false, false, true},
    {AssociativeOp::linear_recurrence, Dtype::bf16, false, 8, 4, false, false, true},
    {AssociativeOp::linear_recurrence, Dtype::bf16, false, 16, 0, false, false, true},
    {AssociativeOp::linear_recurrence, Dtype::c64, false, 8, 16, true, false, true},
    {AssociativeOp::linear_recurrence, Dtype::c64, false, 8, 0, false, false, true}};

}  // namespace

KernelSpec associative_kernel_spec(const AssociativeVariant& variant) {
  return {
      "associative/scan.cu",
      "associative_scan",
      {define("OPERATION", static_cast<int>(variant.op)), define("ELEMENT", static_cast<int>(variant.dtype)),
       define("COMPENSATED", variant.compensated ? 1 : 0), define("ITEMS", variant.items),
       define("LANES", variant.lanes), define("WALK", variant.walk ? 1 : 0),
       define("INITIAL", variant.initial ? 1 : 0), define("GRADIENT", variant.gradient ? 1 : 0)}};
}

std::vector<KernelSpec> associative_kernel_variants() {
  std::vector<KernelSpec> specs;
  for (const AssociativeVariant& variant : kVariants) specs.push_back(associative_kernel_spec(variant));
  return specs;
}

}  // namespace exphil::cuda
