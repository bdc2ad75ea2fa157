// A gate, with or without a norm before it, over many rows: a warp for each row. Compiled with the network
// and -D: GATE, its index.
#include "kernels/policy/rows.cuh"

using namespace exphil::policy;

// grid: ceil(rows / kScaledRows).
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_gate(const GateArguments args) {
  follow_launch_before();
  constexpr Gate kIt = kNetwork.gates[GATE];
  constexpr int kValues = values_of(kIt.ranks > 0 ? kIt.out : kIt.in);
  constexpr int kParts = most(kIt.parts / most(kIt.ranks, 1), 1), kPart = kValues / kParts;
  constexpr int kWritten = written_by_gate<GATE>();
  const long long row = static_cast<long long>(blockIdx.x) * kScaledRows + threadIdx.x / 32;
  if (row >= args.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* const in = args.in + row * args.in_stride;
  const float* const gates = args.gate + row * args.gate_stride;
  float* const out = args.out + row * args.out_stride;
  for (int part = 0; part < kParts; ++part) {
    if constexpr (kIt.ranks > 0) {
      gate_ranks<GATE>(in, args.weight, args.scales, gates, out, part);
      continue;
    }
    float factor = 0.0f;
    if constexpr (kIt.parts > 0) factor = part_factor<GATE>(in, part);
    for (int i = part * kPart + lane; i < (part + 1) * kPart; i += 32) {
      out[i] = gated<GATE>(in[i], factor, args.weight, gates, i);
    }
  }
  for (int i = kValues + lane; i < kWritten; i += 32) out[i] = 0.0f;
}
