// The arguments of the kernels around a walk of a fused operator (weights.cu). The kernels and
// the launcher in c_src/cuda share these structs, so they hold plain types only.
#pragma once

namespace exphil {
namespace recurrent {

// {hidden, sums} of the sum over all rows of before^T d_sums.
struct WeightArguments {
  const float* before;  // {rows, hidden}
  const float* d_sums;  // {rows, sums}
  void* weights;        // of the kernel's ELEMENT
  long long rows;
  int hidden, sums;
};
constexpr int kWeightTile = 64, kRowTile = 16;  // weights of a block in either direction; rows at a time
constexpr int kWeightThreads = 256;             // each has 4 x 4 of them

}  // namespace recurrent
}  // namespace exphil
