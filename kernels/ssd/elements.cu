// What the operator of Mamba-2 has around the walk of its heads (policy/gradient_heads.cu): the activation of
// dt, the gate, sums of parts, and their gradients. Launched by c_src/cuda/ssd/scan.cpp. Compiled with -D
// ELEMENT, the call's type.
#include "kernels/common/device_math.cuh"
#include "kernels/common/gradient_formulas.cuh"
#include "kernels/ssd/arguments.cuh"

namespace exphil {
namespace ssd {

using device::Real;
using Stored = typename device::StorageOf<ELEMENT>::Type;

__device__ __forceinline__ float read(const void* from, long long at) {
  return device::widen<ELEMENT>(static_cast<const Stored*>(from)[at]);
}
__device__ __forceinline__ void write(void* to, long long at, float value) {
  static_cast<Stored*>(to)[at] = device::narrow<ELEMENT>(value);
}
__device__ __forceinline__ long long element() {
  return static_cast<long long>(blockIdx.x) * kThreads + static_cast<long long>(threadIdx.x);
}
__device__ __forceinline__ Real bias_of(const DtArguments& args, int head) {
  return {args.bias == nullptr ? 0.0f : args.bias[head]};
}

}  // namespace ssd
}  // namespace exphil

using namespace exphil;
using namespace exphil::ssd;

// grid: elements of dt.
extern "C" __global__ void __launch_bounds__(kThreads) ssd_active_dt(const DtArguments args) {
  const long long i = element();
  if (i >= args.rows * args.heads) return;
  const Real bias = bias_of(args, static_cast<int>(i % args.heads));
  args.active[i] = formulas::activate_dt<device::Math>(Real{read(args.dt, i)}, bias, args.softplus != 0,
                                                       Real{args.lowest}, Real{args.highest})
                       .v;
}

// A thread has a head for kBiasSteps steps of a sequence. grid: heads, stretches of each sequence.
extern "C" __global__ void __launch_bounds__(kThreads) ssd_dt_back(const DtArguments args) {
  const long long head = element();
  if (head >= args.heads) return;
  const long long stretches = (args.seq + kBiasSteps - 1) / kBiasSteps,
                  all = args.rows / args.seq * stretches;
  const Real bias = bias_of(args, static_cast<int>(head));
  for (long long stretch = blockIdx.y; stretch < all; stretch += gridDim.y) {
    const long long first = stretch / stretches * args.seq + stretch % stretches * kBiasSteps;
    const long long left = args.seq - stretch % stretches * kBiasSteps;
    float total = 0.0f;
    for (long long row = first; row < first + (left < kBiasSteps ? left : kBiasSteps); ++row) {
      const long long at = row * args.heads + head;
      float sum = 0.0f;
      for (int tile = 0; tile < args.tiles; ++tile) {
        sum = __fadd_rn(sum, args.parts[tile * args.rows * args.heads + at]);
      }
      sum = formulas::activate_dt_gradient<device::Math>(Real{read(args.dt, at)}, bias, args.softplus != 0,
                                                         Real{args.lowest}, Real{args.highest}, Real{sum})
                .v;
      total = __fadd_rn(total, sum);
      if (args.d_dt != nullptr) write(args.d_dt, at, sum);
    }
    if (args.bias_parts != nullptr) args.bias_parts[stretch * args.heads + head] = total;
  }
}

// grid of both: elements.
extern "C" __global__ void __launch_bounds__(kThreads) ssd_gate(const GateArguments args) {
  const long long i = element();
  if (i < args.count) write(args.out, i, __fmul_rn(args.y[i], device::silu(read(args.z, i))));
}

extern "C" __global__ void __launch_bounds__(kThreads) ssd_gate_back(const GateArguments args) {
  const long long i = element();
  if (i >= args.count) return;
  const float d = read(args.d_out, i), z = read(args.z, i);
  if (args.d_z != nullptr) {
    const float slope = formulas::silu_derivative<device::Math>(Real{z}).v;
    write(args.d_z, i, __fmul_rn(__fmul_rn(d, args.y[i]), slope));
  }
  args.d_y[i] = __fmul_rn(d, device::silu(z));
}

// grid: elements of the sum.
extern "C" __global__ void __launch_bounds__(kThreads) ssd_add_parts(const PartArguments args) {
  const long long i = element();
  if (i >= args.count) return;
  float sum = 0.0f;
#pragma unroll 8
  for (long long part = 0; part < args.parts; ++part) {
    sum = __fadd_rn(sum, args.from[part * args.count + i]);
  }
  if (args.typed != 0) {
    write(args.to, i, sum);
  } else {
    static_cast<float*>(args.to)[i] = sum;
  }
}
