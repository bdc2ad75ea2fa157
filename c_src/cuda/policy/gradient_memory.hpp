// Device memory of one group of sequences in a policy's gradient: what comes in, the rows of vectors that the
// forward pass leaves for the gradient, gradients of rows, states, and parts of sums. All of it is found from
// the network. Used by cuda/policy/gradient_pass.hpp.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"
#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/gradient_columns.hpp"
#include "cuda/policy/gradient_kernels.hpp"
#include "cuda/policy/gradient_sums.hpp"

namespace exphil::cuda {

// Sequences of a group, all of the same length, and what its call asks for.
struct GradientShape {
  std::int64_t sequences = 0, seq = 0;
  std::int64_t length = 0;   // by which core::decays_input decides
  bool with_state = false;   // the sequences start from given states
  bool gradient = true;      // otherwise the forward pass alone
  bool keeps_state = false;  // the states after the last step are wanted
  bool by_state = false;     // and the gradient of those before the first
  // Of a step of training, which finds the gradient of outs itself: values of a row of its targets, and
  // whether there is a mask.
  std::int64_t target_columns = 0;
  bool with_mask = false;
  std::int64_t rows() const { return sequences * seq; }
};

// Whether cuda/scan has the scan of these sequences. policy/gradient_scan.cu has the others, where a mean
// scales inputs, or inputs are decayed.
bool is_selective_scan(const core::SelectiveScan& scan, const GradientShape& shape);
// The scan as cuda/scan takes it; with gradients where `gradient`.
core::ScanShape scan_shape(const core::SelectiveScan& scan, const GradientShape& shape, bool gradient);

// What the phases of one block read and write.
struct GradientBlock {
  std::vector<VectorRows> vectors;  // by their ids; hidden: as the block finds it
  VectorRows hidden;                // as the block leaves it
  // By vector, for products: rows that begin at multiples of 16 bytes, where their size is none. Copies, or
  // what a norm writes there and not into `vectors`. Empty where no large product reads all of the vector.
  std::vector<Matrix> aligned;
  std::vector<Matrix> active_dt;    // by phase: of a scan of policy/gradient_scan.cu that activates dt itself
  std::vector<Matrix> cell_states;  // by phase: a state of a cell before each frame, where no recall has it
  // Of what its phases write, but for hidden and outs. They share their memory with those of every second
  // block: what a block leaves is still read while the next one is computed.
  // What scales a scan's inputs has a column for each channel: their sum is it.
  std::vector<VectorRows> gradients;
};

class GradientMemory {
 public:
  // Throws out_of_memory, and limit_exceeded where the bytes could not be counted.
  GradientMemory(Context& context, const core::Network& network, const GradientShape& shape);

  const GradientShape shape;
  std::vector<GradientBlock> blocks;  // input, layers, output
  // Of the frame, of hidden and of outs. Of hidden, as many columns as the pass gives it.
  std::vector<VectorRows> gradients;
  // {sequences, rows, columns} by their ids; null: those of a new agent, and not wanted.
  std::vector<float*> states, final_states, d_states;
  std::vector<Matrix> weights;                // by their ids: the same of what products multiply by
  float *targets = nullptr, *mask = nullptr;  // {rows, target_columns}, {rows}: four bytes each; uploaded
  std::array<PartialSums, 2> sums;            // of blocks of even and of odd number
  CUdeviceptr scan_scratch = 0;

  // Rows for a while, beside those above: of a part of a gradient where a kernel cannot add to it.
  float* spare(Context& context, std::int64_t floats);

  Matrix frames() const { return rows_of_all(blocks.front().vectors, frame_); }
  Matrix outs() const { return rows_of_all(blocks.back().vectors, outs_); }
  Matrix d_frames() const { return rows_of_all(gradients, frame_); }
  Matrix d_outs() const { return rows_of_all(gradients, outs_); }

  CUdeviceptr address() const { return memory_.address(); }
  // The offset of the frames, d_outs or a state in an upload to address().
  std::size_t place_of(const float* in_memory) const {
    return static_cast<std::size_t>(reinterpret_cast<CUdeviceptr>(in_memory) - address());
  }

 private:
  static Matrix rows_of_all(const std::vector<VectorRows>& vectors, core::VectorId id) {
    return vectors[static_cast<std::size_t>(id)][0];
  }

  const core::VectorId frame_, outs_;
  DeviceBuffer memory_;
  std::vector<DeviceBuffer> spares_;
};

}  // namespace exphil::cuda
