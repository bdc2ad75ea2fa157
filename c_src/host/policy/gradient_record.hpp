// What the forward pass of a group of sequences leaves for the gradient: rows of every layer, sequence after
// sequence. Used by host/policy/gradient.cpp and gradient_forward.cpp. Padding of rows stays zero.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/gradient.hpp"
#include "host/policy/weights.hpp"
#include "host/simd/aligned.hpp"

namespace exphil::host {

struct LayerRecord {
  float *in, *normed;        // {rows, model}: the layer's input, and its norm
  float *x, *s, *z, *gated;  // {rows, inner}: before and after the convolution; the gate; the scan's output
  float* projected;          // {rows, padded(dt_rank + 2 d_state)}
  float *dt, *active_dt;     // {rows, inner}: without bias; activated (only where its mean is needed)
  float* mean_dt;            // {rows}
  float* history;            // {count, d_conv - 1, inner}: the convolution's inputs before the first row
};

class GradientRecord {
 public:
  // Room for `count` sequences of `seq` rows.
  GradientRecord(const PackedWeights& weights, std::int64_t count, std::int64_t seq);

  std::vector<LayerRecord> layers;
  float *hidden, *final;  // {rows, model}: after the last layer, and its norm
  float* head_hidden;     // {rows, padded(hidden values of all two-layer heads)}
  float* head;            // {rows, padded(d_output)}
  const std::int64_t model, inner, projected, head_width, outputs;  // floats in a row

 private:
  AlignedBuffer memory_;
};

// Sequences [first, first + count) of a call.
struct SequenceGroup {
  const core::PolicySequences* all = nullptr;
  std::int64_t first = 0, count = 0;
  std::int64_t rows() const { return count * all->seq; }
};

// Fills the record, and the outputs and states that are asked for.
void record_forward(const PackedWeights& weights, const SequenceGroup& group,
                    const core::PolicyGradOutputs& outputs, GradientRecord& record);

// A layer's scan of one sequence of the group, as record_forward runs it; without results.
ScanSequence recorded_scan(const PackedWeights& weights, const SequenceGroup& group,
                           const GradientRecord& record, std::int64_t layer, std::int64_t sequence);
// The same for its convolution. `history` is that of the sequence, which convolve() would overwrite.
Convolution recorded_convolution(const PackedWeights& weights, const SequenceGroup& group,
                                 const GradientRecord& record, std::int64_t layer, std::int64_t sequence);

}  // namespace exphil::host
