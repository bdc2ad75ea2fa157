// A gate of a policy's gradient, forward and backward: out = x silu(gate), a thread for each value. Launched
// by c_src/cuda/policy/gradient_kernels.cpp.
#include "kernels/common/device_math.cuh"
#include "kernels/common/gradient_formulas.cuh"
#include "kernels/policy/gradient_arguments.cuh"

using namespace exphil::policy;
using exphil::device::Real;

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_gate(const GradientGateArguments args) {
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
  if (i < args.count) args.out[i] = __fmul_rn(args.x[i], exphil::device::silu(args.gate[i]));
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_gate_back(const GradientGateArguments args) {
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
  if (i >= args.count) return;
  const float gate = args.gate[i], d = args.d_out[i];
  args.dx[i] = __fmul_rn(d, exphil::device::silu(gate));
  args.d_gate[i] = __fmul_rn(__fmul_rn(d, args.x[i]),
                             exphil::formulas::silu_derivative<exphil::device::Math>(Real{gate}).v);
}
