// The five matrix products of the policy over many rows, in both shapes of policy_product.cuh. Launched by
// cuda/model_rows.cpp. Compiled with the dimensions only.
#include "policy_product.cuh"

// few: grid {ceil(outputs / 32), ceil(rows / few_rows(K))}, 256 threads.
// many: grid {ceil(outputs / 64), ceil(rows / 128)}, 128 threads.
#define POLICY_PRODUCT(name, K, outputs, Epilogue)                                                        \
  extern "C" __global__ void __launch_bounds__(256)                                                       \
      policy_##name##_few(const exphil::policy::ProductArguments args) {                                  \
    exphil::policy::product_few<exphil::policy::K, outputs, exphil::policy::Epilogue>(args);              \
  }                                                                                                       \
  extern "C" __global__ void __launch_bounds__(128, 2)                                                    \
      policy_##name##_many(const exphil::policy::ProductArguments args) {                                 \
    __shared__ __align__(16) exphil::policy::ManyTiles tiles;                                             \
    exphil::policy::ManyProduct<exphil::policy::K, outputs, exphil::policy::Epilogue>(args, tiles).run(); \
  }

POLICY_PRODUCT(input, kInput, exphil::policy::kModel, BiasEpilogue)
POLICY_PRODUCT(in_proj, kModel, 2 * exphil::policy::kInner, InProjEpilogue)
POLICY_PRODUCT(x_proj, kInner, exphil::policy::kProjection, PlainEpilogue)
POLICY_PRODUCT(out_proj, kInner, exphil::policy::kModel, ResidualEpilogue)
POLICY_PRODUCT(head, kModel, exphil::policy::kOutput, NormedEpilogue)
