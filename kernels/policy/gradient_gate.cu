// A gate of a policy's gradient, a sigmoid, and means of parts of a vector, forward and backward: a thread
// for each value that it writes. Launched by c_src/cuda/policy/gradient_heads.cpp.
#include "kernels/common/cells.cuh"
#include "kernels/common/device_math.cuh"
#include "kernels/common/gradient_formulas.cuh"
#include "kernels/common/launches.cuh"
#include "kernels/policy/gradient_arguments.cuh"

using namespace exphil::policy;
using exphil::device::Real;

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_gate(const GradientGateArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
  if (i < args.count) args.out[i] = __fmul_rn(args.x[i], exphil::device::silu(args.gate[i]));
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_gate_back(const GradientGateArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
  if (i >= args.count) return;
  const float gate = args.gate[i], d = args.d_out[i];
  args.dx[i] = __fmul_rn(d, exphil::device::silu(gate));
  args.d_gate[i] = __fmul_rn(__fmul_rn(d, args.x[i]),
                             exphil::formulas::silu_derivative<exphil::device::Math>(Real{gate}).v);
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_sigmoid(const GradientGateArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
  if (i < args.count) args.out[i] = exphil::formulas::sigmoid<exphil::device::Math>(Real{args.x[i]}).v;
}

// From what it has written.
extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_sigmoid_back(const GradientGateArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
  if (i >= args.count) return;
  const float value = args.out[i];
  args.dx[i] = __fmul_rn(args.d_out[i], __fmul_rn(value, __fsub_rn(1.0f, value)));
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_means(const GradientGateArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
  if (i >= args.count / args.part) return;
  float sum = 0.0f;
  for (int k = 0; k < args.part; ++k) sum = __fadd_rn(sum, args.x[i * args.part + k]);
  args.out[i] = __fdiv_rn(sum, static_cast<float>(args.part));
}

extern "C" __global__ void __launch_bounds__(kGradientThreads)
    policy_gradient_means_back(const GradientGateArguments args) {
  exphil::device::take_turn();
  const long long i = static_cast<long long>(blockIdx.x) * kGradientThreads + threadIdx.x;
  if (i < args.count) args.dx[i] = __fdiv_rn(args.d_out[i / args.part], static_cast<float>(args.part));
}
