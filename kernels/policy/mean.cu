// The mean of a vector of every row; its values are computed here where a short product gives them. Compiled
// with the network and -D: MEAN, its index.
#include "kernels/policy/rows.cuh"

namespace exphil {
namespace policy {

constexpr Mean kIt = kNetwork.means[MEAN];
constexpr int kShort = fused_product(kNetwork, Kind::mean, MEAN);
constexpr int kChannels = size_of(kIt.in);
constexpr RowPlace kValues = row_place(kNetwork, kIt.in), kOut = row_place(kNetwork, kIt.out);
// What the short product reads.
constexpr RowPlace kRead = row_place(kNetwork, kNetwork.products[most(kShort, 0)].in);

}  // namespace policy
}  // namespace exphil

using namespace exphil::policy;

// grid: tiles of kMeanRows rows.
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_mean(const MeanArguments args) {
  follow_launch_before();
  constexpr int kSegments = kChannels / kSegment;
  __shared__ float parts[kMeanRows][kSegments];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const long long first = static_cast<long long>(blockIdx.x) * kMeanRows;
  const int rows = args.rows - first < kMeanRows ? static_cast<int>(args.rows - first) : kMeanRows;
  for (int s = static_cast<int>(threadIdx.x) / 32; s < kSegments; s += kRowThreads / 32) {
    const int c = s * kSegment + lane;
    const float bias = kShort == kNoPhase ? 0.0f : __ldg(args.matrix.bias + c);
    for (int r = 0; r < rows; ++r) {
      float* const place = args.values + (first + r) * kValues.stride + kValues.at + c;
      float value;
      if constexpr (kShort == kNoPhase) {
        value = *place;
      } else {
        value = short_row<kShort>(args.matrix, args.in + (first + r) * kRead.stride + kRead.at, c, bias);
        *place = value;
      }
      const float part = segment_sum<values_of(kIt.in)>(value, c);
      if (lane == 0) parts[r][s] = part;
    }
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  if (r < rows) {
    args.mean[(first + r) * kOut.stride + kOut.at] = mean_of_segments<values_of(kIt.in), kChannels>(parts[r]);
  }
}
