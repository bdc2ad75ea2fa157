// Keys and queries of heads, normalised and rotated, over many rows. Compiled with the network and -D:
// ROTATION, its index.
#include "kernels/policy/rows.cuh"

using namespace exphil::policy;

// A warp for each rank and head of a row. grid: ceil(rows * ranks * heads / kScaledRows).
extern "C" __global__ void __launch_bounds__(kRowThreads) policy_rotation(const RotationArguments args) {
  follow_launch_before();
  constexpr Rotation kIt = kNetwork.rotations[ROTATION];
  constexpr int kSize = size_of(kNetwork, kIt), kTurn = 2 * angles_of(kNetwork, kIt);
  constexpr int kAll = kIt.ranks * kIt.heads;
  constexpr RowPlace kIn = row_place(kNetwork, kIt.in), kOut = row_place(kNetwork, kIt.out);
  constexpr RowPlace kTurns = row_place(kNetwork, kIt.turn);
  const long long item = static_cast<long long>(blockIdx.x) * kScaledRows + threadIdx.x / 32;
  if (item >= args.rows * kAll) return;
  const long long row = item / kAll;
  const int of_row = static_cast<int>(item % kAll), rank = of_row / kIt.heads, head = of_row % kIt.heads;
  const int group = head / (kIt.heads / kIt.groups);
  const float* const in = args.in + row * kIn.stride + kIn.at + (rank * kIt.groups + group) * kSize;
  const float factor = rotation_factor<ROTATION>(in);
  const float* const bias = args.bias + (head * kIt.ranks + rank) * kSize;
  const float* const turn = args.turn + row * kTurns.stride + kTurns.at + head * kTurn;
  float* const out = args.out + row * kOut.stride + kOut.at + of_row * kSize;
  for (int n = static_cast<int>(threadIdx.x) % 32; n < kSize; n += 32) {
    out[n] = rotated<ROTATION>(in, factor, args.weight, bias, turn, n);
  }
  // What follows copies all of the vector: its padding by the last warp of a row.
  constexpr int kPadding = size_of(kIt.out) - kAll * kSize;
  if (of_row + 1 < kAll) return;
  for (int n = static_cast<int>(threadIdx.x) % 32; n < kPadding; n += 32) out[kSize + n] = 0.0f;
}
