// Tensors of halves as floats and back, around kernels for f32. Launched by
// c_src/cuda/jit/convert.cpp. Compiled with -D: ELEMENT (the half type).
#include "kernels/common/convert_arguments.cuh"
#include "kernels/common/device_math.cuh"

namespace exphil {
namespace convert {

using Half = typename device::StorageOf<ELEMENT>::Type;

template <class Use>
__device__ __forceinline__ void each_element(long long count, const Use& use) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const long long at =
        (static_cast<long long>(blockIdx.x) * kEach + i) * kThreads + static_cast<long long>(threadIdx.x);
    if (at < count) use(at);
  }
}

}  // namespace convert
}  // namespace exphil

using namespace exphil::convert;

extern "C" __global__ void __launch_bounds__(kThreads) convert_widen(const Arguments args) {
  each_element(args.count, [&](long long i) {
    static_cast<float*>(args.to)[i] = exphil::device::widen<ELEMENT>(static_cast<const Half*>(args.from)[i]);
  });
}

extern "C" __global__ void __launch_bounds__(kThreads) convert_narrow(const Arguments args) {
  each_element(args.count, [&](long long i) {
    static_cast<Half*>(args.to)[i] = exphil::device::narrow<ELEMENT>(static_cast<const float*>(args.from)[i]);
  });
}
