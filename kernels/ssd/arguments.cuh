// The arguments of the kernels of ssd/elements.cu, which are around the walk of heads of
// policy/gradient_heads.cu. Compiled by the host compiler and by NVRTC. Addresses without a type are of
// elements of the call's own type.
#pragma once

namespace exphil {
namespace ssd {

constexpr int kThreads = 256;
// Steps of a sequence whose gradients of the bias of dt are added up first.
constexpr int kBiasSteps = 256;

// Rows of dt: {rows, heads}, `seq` for each sequence.
struct DtArguments {
  const void* dt;
  const float* bias;  // {heads}; null: zeros
  float* active;      // ssd_active_dt
  // ssd_dt_back. parts: {tiles of a head, rows, heads}, of dt'; bias_parts: {sequences, stretches of
  // kBiasSteps steps, heads}. Null: not wanted.
  const float* parts;
  void* d_dt;
  float* bias_parts;
  long long rows, seq;
  int heads, tiles, softplus;
  float lowest, highest;
};

// out = y silu(z), and back: y is f32, as is d_y; the others have the call's type.
struct GateArguments {
  const float* y;
  const void* z;
  void* out;
  const void* d_out;
  float* d_y;
  void* d_z;  // null: not wanted
  long long count;
};

// to[i] = the sum of from[p count + i] over p, in order. typed: whether `to` has the call's type, else f32.
struct PartArguments {
  const float* from;
  void* to;
  long long parts, count;
  int typed;
};

}  // namespace ssd
}  // namespace exphil
