// How one block of a team finds its slice of the weights, and its shared memory. cuda/model_pack.cpp writes
// the weights in this order; the two must agree.
//
// Block `rank` of TEAM owns: kOwn channels of the inner dimension (whole segments), kRows rows of the model
// dimension and kHeads outputs. Where the last blocks own less, their slices are filled with zeros.
//
// A matrix slice of R rows and S segments is stored as float4 [8][S * R]: task t = segment * R + row reads
// its 32 weights at j * S * R + t for j = 0..7, so that neighbouring threads read neighbouring float4s.
#pragma once

#include "kernels/policy/dims.cuh"

namespace exphil {
namespace policy {

constexpr int kInnerSegments = kInner / kSegment;
constexpr int kModelSegments = kModel / kSegment;
constexpr int kInputSegments = kInput / kSegment;
constexpr int kOwnSegments = divide_up(kInnerSegments, TEAM);
constexpr int kOwn = kOwnSegments * kSegment;
constexpr int kRows = divide_up(kModel, TEAM);
constexpr int kHeads = divide_up(kOutput, TEAM);

// Offsets in floats from the start of a section; every part starts on 16 bytes.
__host__ __device__ constexpr int aligned(int floats) {
  return round_up(floats, 4);
}

struct InputSection {  // input_proj
  static constexpr int weight = 0;
  static constexpr int bias = weight + kRows * kInput;
  static constexpr int floats = bias + aligned(kRows);
};

struct HeadSection {  // head, its columns multiplied by norm_f
  static constexpr int weight = 0;
  static constexpr int bias = weight + kHeads * kModel;
  static constexpr int floats = bias + aligned(kHeads);
};

// In the whole of the layer but in_proj. Channel-indexed parts have the channel last.
struct LayerSection {
  static constexpr int in_bias = 0;                            // x rows, then z rows
  static constexpr int conv = in_bias + 2 * kOwn;              // {kTaps, kOwn}
  static constexpr int conv_bias = conv + kTaps * kOwn;        // {kOwn}
  static constexpr int x_proj = conv_bias + kOwn;              // kProjection rows, own segments
  static constexpr int dt_proj = x_proj + kProjection * kOwn;  // float4 {kRank / 4, kOwn}
  static constexpr int dt_bias = dt_proj + kRank * kOwn;       // {kOwn}
  static constexpr int a = dt_bias + kOwn;                     // {kOwn, kState}
  static constexpr int d = a + kOwn * kState;                  // {kOwn}
  static constexpr int out_proj = d + kOwn;                    // kRows rows, all segments
  static constexpr int out_bias = out_proj + kRows * kInner;
  static constexpr int floats = out_bias + aligned(kRows);
};

struct InProjSection {  // x rows, then z rows, the columns multiplied by norm
  static constexpr int floats = 2 * kOwn * kModel;
};

// A block's whole slice: what is staged in shared memory first.
struct Slice {
  static constexpr int input = 0;
  static constexpr int head = input + InputSection::floats;
  static constexpr int layers = head + HeadSection::floats;
  static constexpr int staged_floats = layers + kLayers * LayerSection::floats;
  static constexpr int in_proj = staged_floats;
  static constexpr int floats = in_proj + kLayers * InProjSection::floats;
};

__host__ __device__ constexpr int most(int left, int right) {
  return left > right ? left : right;
}
constexpr int kMostTasks = most(most(kRows * kInputSegments, 2 * kOwn * kModelSegments),
                                most(kRows* kInnerSegments, kHeads* kModelSegments));

// Activations of AGENTS agents. The first three are the board; the order is part of nothing.
struct alignas(16) Activations {
  float h[AGENTS][kModel];
  float y[AGENTS][kInner];
  float projection_parts[AGENTS][kInnerSegments][kProjection];
  float obs[AGENTS][kInput];
  float u[AGENTS][kOwn];     // after conv and silu
  float gate[AGENTS][kOwn];  // silu(z)
  float dt[AGENTS][kOwn];
  float projection[AGENTS][kProjection];
  float parts[AGENTS * kMostTasks];  // [agent][task]
  float residual[AGENTS][kRows];     // this block's rows of h before the layer
  float inverse_rms[AGENTS];
  alignas(8) float* state[AGENTS];                     // null beyond the last agent
  alignas(8) unsigned long long arrived[2 + kLayers];  // input, head, the layers
};
constexpr int kBoardFloats = AGENTS * (kModel + kInner + kInnerSegments * kProjection);

constexpr int kStagedFloats = STAGED ? Slice::staged_floats : 0;
constexpr int kSharedBytes = kStagedFloats * 4 + static_cast<int>(sizeof(Activations));

}  // namespace policy
}  // namespace exphil
