// Device memory of one group of sequences in a policy's gradient: what comes in, what the forward pass leaves
// for the gradient, gradients of rows, and parts of sums. Used by cuda/policy/gradient_pass.cpp.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "core/policy/gradient.hpp"
#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/gradient_kernels.hpp"

namespace exphil::cuda {

// Sequences of a group, all of the same length, and what its call asks for.
struct GradientShape {
  std::int64_t sequences = 0, seq = 0;
  bool with_state = false;  // the sequences start from given states
  bool decays_input = false;
  bool gradient = true;         // otherwise the forward pass alone
  bool keeps_state = false;     // the states after the last step are wanted
  std::int64_t head_width = 0;  // hidden values of all two-layer heads
  std::int64_t rows() const { return sequences * seq; }
};

// Whether the scan of these sequences is one of cuda/scan: the others are those of policy/gradient_scan.cu,
// where the mean of dt scales inputs, or inputs are decayed.
bool is_selective_scan(const core::PolicySpec& spec, bool decays_input);

// Rows of one layer. {sequences} states are those of the public layout (core/policy/policy.hpp) for this
// layer.
struct GradientLayer {
  Matrix in, normed;              // {rows, model}
  Matrix x, s, z, gated, dt;      // {rows, inner}: dt without its bias
  Matrix low, b, c;               // {rows, rank}, {rows, state}: the parts of x_proj's output
  Matrix active_dt, mean_dt;      // {rows, inner}, {rows, 1}: where the scan is not of cuda/scan
  float *ssm, *conv;              // {sequences, inner, state} and {sequences, inner, taps - 1}; null: zeros
  float *final_ssm, *final_conv;  // the same after the last step; null: not wanted
};

// Sums of parts that one launch adds up, and room for the parts.
class PartialSums {
 public:
  // What into() takes for this many floats.
  static std::int64_t padded(std::int64_t floats) { return (floats + 63) / 64 * 64; }
  PartialSums() = default;
  PartialSums(float* memory, std::int64_t floats) : memory_(memory), floats_(floats) {}

  void restart() { used_ = 0, sums_.clear(); }
  // Sums in the room that is left, which replace what they sum into.
  PartialSums rest() const { return {memory_ + used_, floats_ - used_}; }
  // Whether later sums are added to what is there. At first they replace it.
  void set_adds(bool adds) { adds_ = adds; }
  // Room for {parts, count}, whose sum goes to `to`, times `factor` where it is not null. Null where `to` is.
  float* into(float* to, std::int64_t parts, std::int64_t count);
  // A second sum of what the last call gave room for.
  void also_into(float* to, const float* factor);
  const std::vector<policy::PartSum>& sums() const { return sums_; }

 private:
  float* memory_ = nullptr;
  std::int64_t floats_ = 0, used_ = 0;
  bool adds_ = false;
  std::vector<policy::PartSum> sums_;
};

class GradientMemory {
 public:
  // Throws out_of_memory, and limit_exceeded where the bytes could not be counted.
  GradientMemory(Context& context, const core::PolicyConfig& config, const GradientShape& shape);

  const GradientShape shape;
  Matrix frames, d_outs;  // {rows, d_input}, {rows, d_output}
  std::vector<GradientLayer> layers;
  Matrix hidden, final;  // {rows, model}: after the last layer, and its norm (the same where there is none)
  Matrix head_hidden, outs;         // {rows, head_width}, {rows, d_output}
  Matrix d_hidden, d_normed;        // {rows, model}
  Matrix d_gated, ds, dz, dx, ddt;  // {rows, inner}
  Matrix d_input_dt;                // {rows, inner}: where the mean of dt scales inputs
  Matrix d_low, db, dc;             // {rows, rank}, {rows, state}
  Matrix d_head_hidden, d_frames;
  PartialSums sums;
  CUdeviceptr scan_scratch = 0;

  // Offsets of frames, d_outs and the layers' states in an upload to address().
  CUdeviceptr address() const { return memory_.address(); }
  std::size_t place_of(const float* in_memory) const {
    return static_cast<std::size_t>(reinterpret_cast<CUdeviceptr>(in_memory) - address());
  }

 private:
  DeviceBuffer memory_;
};

// The scan of a layer, as cuda/scan takes it; with gradients where `gradient`.
core::ScanShape layer_scan(const core::PolicyConfig& config, const GradientShape& shape, bool skip,
                           bool gradient);

}  // namespace exphil::cuda
