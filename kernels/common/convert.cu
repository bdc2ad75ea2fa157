// Tensors of halves as floats and back, around a walk of a fused operator, which is f32. Compiled with -D:
// ELEMENT (the half type).
#include "kernels/common/device_math.cuh"
#include "kernels/recurrent/dense_arguments.cuh"

namespace exphil {
namespace recurrent {

using Half = typename device::StorageOf<ELEMENT>::Type;

template <class Use>
__device__ __forceinline__ void each_element(long long count, const Use& use) {
#pragma unroll
  for (int i = 0; i < kConvertEach; ++i) {
    const long long at = (static_cast<long long>(blockIdx.x) * kConvertEach + i) * kConvertThreads +
                         static_cast<long long>(threadIdx.x);
    if (at < count) use(at);
  }
}

}  // namespace recurrent
}  // namespace exphil

using namespace exphil::recurrent;

extern "C" __global__ void __launch_bounds__(kConvertThreads) recurrent_widen(const ConvertArguments args) {
  each_element(args.count, [&](long long i) {
    static_cast<float*>(args.to)[i] = exphil::device::widen<ELEMENT>(static_cast<const Half*>(args.from)[i]);
  });
}

extern "C" __global__ void __launch_bounds__(kConvertThreads) recurrent_narrow(const ConvertArguments args) {
  each_element(args.count, [&](long long i) {
    static_cast<Half*>(args.to)[i] = exphil::device::narrow<ELEMENT>(static_cast<const float*>(args.from)[i]);
  });
}
