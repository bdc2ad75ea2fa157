// The arguments of the kernels of a policy's training step (policy/training.cu). Compiled by the host
// compiler (c_src/cuda/policy/training_kernels.cpp fills them) and by NVRTC. All pointers are device
// addresses.
#pragma once

namespace exphil {
namespace policy {

constexpr int kTrainingThreads = 256;

// One group of cross-entropy: outputs [first, first + count), targets from `column` on, one or one for each
// event.
struct TrainingGroup {
  int first, count, column;
  int binary;
};

// Of some rows of a batch. d_outs are zeros before.
struct TrainingLossArguments {
  const float* outs;  // {rows, width}
  float* d_outs;
  const int* choices;           // {rows, columns}
  const float* values;          // {rows, width}, of the mean of squares; null: cross-entropy
  const int* mask;              // {rows}, or null
  const TrainingGroup* groups;  // one with all outputs, of squares
  double* losses;               // {rows, group_count}: before they are scaled
  double scale;                 // 1 / what the mean is over
  long long rows;
  int width, columns, group_count;
};

// What becomes of a value: not trained, trained, or trained and its weight decays.
enum TrainingKind : unsigned char { kFixed, kTrained, kDecays };

// Sums of squares of so many values of the gradient, one for each block.
constexpr int kSquaresOfBlock = 16 * kTrainingThreads;

struct TrainingResult {
  double loss, norm;
  float gradient_scale;
  int finite;  // whether the next values are
};

struct TrainingSumsArguments {
  const float* gradient;
  const unsigned char* kinds;
  double* squares;  // {blocks}
  const double* losses;
  long long count, loss_count;
  double loss_scale, clip_norm;  // 0: not clipped
  TrainingResult* result;
};

struct AdamWArguments {
  const float *weights, *gradient, *m, *v;
  float *next_weights, *next_m, *next_v;
  const unsigned char* kinds;
  TrainingResult* result;
  long long count;
  float beta1, beta2, rest1, rest2, rate, root, kept, epsilon;  // core/training/adamw.hpp
};

// A weight that is -exp of another: their places in the values.
struct DerivedWeight {
  long long from, to, count;
};
struct DeriveArguments {
  float* values;
  const DerivedWeight* derived;  // one for each row of the grid
  TrainingResult* result;        // null: not asked
};

}  // namespace policy
}  // namespace exphil
