// The arguments of the kernels of linear.cu. The kernels and the launcher in c_src/cuda share this struct, so
// it holds plain types only.
#pragma once

namespace exphil {
namespace recurrent {

// Tensors of the kernel's ELEMENT, {batch, seq, hidden} or {batch, hidden}. Those that may be null are left
// out: h0 and d_final are zeros then.
struct LinearArguments {
  const void* x[3];  // the gates of the cell
  const void* h0;    // or null
  long long batch, seq, hidden;
  int groups;  // of kChannels channels, in a sequence

  // Forward: any of them may be null.
  void* h;
  float* states;  // h in f32
  void* final_h;

  // The gradient; d_x, d_h0 may be null.
  const float* given_states;  // h in f32
  const void *dh, *d_final;
  void* d_x[3];
  void* d_h0;
};

// A block: neighbouring channels of a sequence, each with kSegments threads, which take kSteps steps each.
constexpr int kChannels = 32, kSegments = 8, kSteps = 8;
constexpr int kLinearThreads = kChannels * kSegments;
constexpr int kTile = kSegments * kSteps;

}  // namespace recurrent
}  // namespace exphil
