// The matrix products of the policy over many rows, in both shapes of policy/product.cuh. Launched by
// c_src/cuda/policy/rows.cpp. Compiled with the dimensions and one of the PRODUCT_ names below: several
// modules compile in parallel, faster than one module with all products.
#include "kernels/policy/product.cuh"

// few: grid {ceil(outputs / kFewColumns), ceil(rows / few_rows(K))}, kFewThreads.
// many: grid {ceil(outputs / kManyColumns), ceil(rows / kManyRows)}, kManyThreads.
#define POLICY_PRODUCT(name, K, outputs, Epilogue)                                                        \
  extern "C" __global__ void __launch_bounds__(exphil::policy::kFewThreads)                               \
      policy_##name##_few(const exphil::policy::ProductArguments args) {                                  \
    exphil::policy::product_few<exphil::policy::K, outputs, exphil::policy::Epilogue>(args);              \
  }                                                                                                       \
  extern "C" __global__ void __launch_bounds__(exphil::policy::kManyThreads, 2)                           \
      policy_##name##_many(const exphil::policy::ProductArguments args) {                                 \
    __shared__ __align__(16) exphil::policy::ManyTiles tiles;                                             \
    exphil::policy::ManyProduct<exphil::policy::K, outputs, exphil::policy::Epilogue>(args, tiles).run(); \
  }

#ifdef PRODUCT_INPUT
POLICY_PRODUCT(input, kInput, exphil::policy::kModel, BiasEpilogue)
#endif
#ifdef PRODUCT_IN_PROJ
POLICY_PRODUCT(in_proj, kModel, 2 * exphil::policy::kInner, InProjEpilogue)
#endif
#ifdef PRODUCT_X_PROJ
POLICY_PRODUCT(x_proj, kInner, exphil::policy::kProjection, ProjectionEpilogue)
#endif
#ifdef PRODUCT_OUT_PROJ
POLICY_PRODUCT(out_proj, kInner, exphil::policy::kModel, ResidualEpilogue)
#endif
#ifdef PRODUCT_HIDDEN
POLICY_PRODUCT(hidden, kModel, exphil::policy::kHidden, HeadEpilogue<true>)
#endif
#ifdef PRODUCT_HEAD
POLICY_PRODUCT(head, kModel, exphil::policy::kOutput, HeadEpilogue<false>)
#endif
#ifdef PRODUCT_HEAD_OUT
POLICY_PRODUCT(head_out, kHidden, exphil::policy::kOutput, BiasEpilogue)
#endif
