// The last stage of the scan's gradient: adds up what blocks left for gradients that many of them share, row
// after row, so that the order depends on shapes alone. blockIdx.y is the number of a RowSum
// (backward_arguments.cuh); blocks of x share its columns.
#include "kernels/common/device_math.cuh"
#include "kernels/scan/backward_arguments.cuh"
#include "kernels/scan/stages.cuh"

namespace {

using namespace exphil;
using namespace exphil::scan;

EXPHIL_DEVICE void store(const RowSum& sum, long long place, float value) {
  if (sum.element == device::kF32) {
    static_cast<float*>(sum.to)[place] = value;
  } else {
    static_cast<unsigned short*>(sum.to)[place] = sum.element == device::kF16
                                                      ? device::narrow<device::kF16>(value)
                                                      : device::narrow<device::kBf16>(value);
  }
}

// Where column k of row group o goes: see RowSum.
EXPHIL_DEVICE long long place_of(const RowSum& sum, long long o, long long k) {
  const long long steps = sum.columns / sum.width, batch = o / sum.groups, group = o % sum.groups;
  return ((batch * steps + k / sum.width) * sum.groups + group) * sum.width + k % sum.width;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    scan_row_sums(const __grid_constant__ exphil::scan::RowSumArguments p) {
  wait_for_stage_before();
  extern __shared__ float4 shared_memory[];
  float* const strands = reinterpret_cast<float*>(shared_memory);
  const RowSum& sum = p.sums[blockIdx.y];
  const int across = kRowSumThreads / sum.strands;  // results of a block at a time
  const int strand = threadIdx.x / across, lane = threadIdx.x % across;
  const long long count = sum.outer * sum.columns;
  for (long long first = static_cast<long long>(blockIdx.x) * across; first < count;
       first += static_cast<long long>(gridDim.x) * across) {
    const long long number = first + lane;
    const long long o = number / sum.columns, k = number % sum.columns;
    float value = 0.0f;
    if (number < count) {
      const float* from = sum.from + o * sum.rows * sum.columns + k;
#pragma unroll 8
      for (long long row = strand; row < sum.rows; row += sum.strands) {
        value = __fadd_rn(value, from[row * sum.columns]);
      }
    }
    if (sum.strands > 1) {
      __syncthreads();
      strands[threadIdx.x] = value;
      __syncthreads();
      for (int other = 1; strand == 0 && other < sum.strands; ++other) {
        value = __fadd_rn(value, strands[other * across + lane]);
      }
    }
    if (strand == 0 && number < count) store(sum, place_of(sum, o, k), value);
  }
}
