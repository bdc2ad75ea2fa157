// The last stage of the scan's gradient: adds up what blocks left for gradients that many of them share, row
// after row, so that the order depends on shapes alone. blockIdx.y is the number of a RowSum
// (backward_arguments.cuh); blocks of x share its columns.
#include "kernels/common/device_math.cuh"
#include "kernels/common/launches.cuh"
#include "kernels/scan/backward_arguments.cuh"

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

// One of the results, and the first of its rows that a thread adds up.
struct Result {
  bool exists;
  const float* from;
  long long place;
};
EXPHIL_DEVICE Result find_result(const RowSum& sum, long long number, int strand) {
  if (number >= sum.outer * sum.columns) return {};
  const long long o = number / sum.columns, k = number % sum.columns;
  return {true, sum.from + (o * sum.rows + strand) * sum.columns + k, place_of(sum, o, k)};
}

// Every strands-th row from `strand` on. A few are loaded before the first of them is added.
EXPHIL_DEVICE float add_rows(const RowSum& sum, const float* from, int strand) {
  constexpr int kAtOnce = 8;
  const long long step = sum.strands * sum.columns;
  float value = 0.0f;
#pragma unroll 1
  for (long long row = strand; row < sum.rows; row += kAtOnce * sum.strands, from += kAtOnce * step) {
    const long long left = sum.rows - row;
    const int rows = left < kAtOnce * sum.strands ? static_cast<int>(left) : kAtOnce * sum.strands;
    float next[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) next[u] = from[u * sum.strands < rows ? u * step : 0];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (u * sum.strands < rows) value = __fadd_rn(value, next[u]);
    }
  }
  return value;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    scan_row_sums(const __grid_constant__ exphil::scan::RowSumArguments p) {
  extern __shared__ float4 shared_memory[];
  float* const strands = reinterpret_cast<float*>(shared_memory);
  const RowSum& sum = p.sums[blockIdx.y];
  const int across = kRowSumThreads / sum.strands;  // results of a block at a time
  const int strand = threadIdx.x / across, lane = threadIdx.x % across;
  const long long count = sum.outer * sum.columns, next = static_cast<long long>(gridDim.x) * across;
  long long first = static_cast<long long>(blockIdx.x) * across;
  // Divisions take long: the first result's are done while the stage before ends.
  Result result = find_result(sum, first + lane, strand);
  device::await_launch_before();
  for (; first < count; first += next) {
    float value = result.exists ? add_rows(sum, result.from, strand) : 0.0f;
    if (sum.strands > 1) {
      __syncthreads();
      strands[threadIdx.x] = value;
      __syncthreads();
      for (int other = 1; strand == 0 && other < sum.strands; ++other) {
        value = __fadd_rn(value, strands[other * across + lane]);
      }
    }
    if (strand == 0 && result.exists) store(sum, result.place, value);
    if (first + next < count) result = find_result(sum, first + next + lane, strand);
  }
}
