// One frame of a policy in double, with everything that the gradient needs again. The forward reference and
// its gradient share it. T is the type of the weights: float, or double for training in float64.
#pragma once

#include <vector>

#include "core/policy/cells.hpp"
#include "core/policy/reference.hpp"

namespace exphil::core {

// What the phases of one block wrote.
struct BlockFrame {
  std::vector<std::vector<double>> vectors;  // by VectorId; hidden: before the block's last phase
  std::vector<std::vector<double>> before;   // of each phase: its state part before the frame
  const std::vector<double>& at(VectorId id) const { return vectors[static_cast<std::size_t>(id)]; }
  std::vector<double>& at(VectorId id) { return vectors[static_cast<std::size_t>(id)]; }
};

// 0 of a weight that is absent.
template <class T>
double value_of(const PolicyValues<T>& weights, WeightId id, std::int64_t i) {
  return id == kNone ? 0.0 : static_cast<double>(values_of(weights, id)[static_cast<std::size_t>(i)]);
}

struct PolicyFrame {
  std::vector<BlockFrame> blocks;  // input, layers, output
  std::vector<double> out;         // {d_output}
};

// Advances the state by one frame.
template <class T>
PolicyFrame policy_reference_frame(const PolicyConfig& config, const PolicyValues<T>& weights,
                                   PolicyReferenceState& state, const float* obs);

// Of RMSNorm and LayerNorm: the mean that is subtracted, and 1 / sqrt(mean of squares + epsilon).
struct NormScale {
  double mean = 0, scale = 0;
};
NormScale norm_scale(const Norm& norm, const double* in);  // in: the values of one part

// One unit of a gated cell: its sums and its states before the step.
struct CellUnit {
  // frame: has the cell's gates. state: of all units.
  CellUnit(const GatedCell& cell, std::int64_t unit, const BlockFrame& frame, const double* state);
  void put(const double* values, double* state) const;  // the unit's values into those of all units

  std::int64_t at, units;
  int rows;
  double x[formulas::kMaxGates] = {}, h[formulas::kMaxGates] = {}, states[2] = {};
};

// One row of a recurrence over heads: what it has of the frame, and of the weights.
struct HeadRow {
  template <class T>
  HeadRow(const HeadRecurrence& p, std::int64_t row, const BlockFrame& frame, const PolicyValues<T>& weights);
  std::int64_t head, group, rate_at = 0, d_at = 0;     // d_at: in p.d, where there is one
  double value, rate, decay, raw_decay, a = 0, d = 0;  // raw_decay: without `a`
  const double *key, *query;                           // of rank 0
  // Of the frame before; and the factor of the value in each rank.
  double value_before = 0, rate_before = 0, scale[formulas::kMaxRanks];
  const double* key_before = nullptr;
  std::int64_t scale_at = 0;  // of rank 0 in p.scale, where there is one
  // What comes before that of rank r: in keys and queries, in outputs, in p.scale.
  static std::int64_t key_of(const HeadRecurrence& p, std::int64_t r) { return r * p.groups * p.keys(); }
  static std::int64_t out_of(const HeadRecurrence& p, std::int64_t r) { return r * p.value.size; }
  static std::int64_t scale_of(const HeadRecurrence& p, std::int64_t r) { return r * p.channels(); }
};

// The block with index i of those of a PolicyFrame.
const Block& block_of(const Network& network, std::size_t index);

}  // namespace exphil::core
