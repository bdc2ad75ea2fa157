// Loss functions of a policy's outputs: the value, and its gradient by the outputs. Computed in double, in
// the order of the rows. Callers: nif/training.cpp. Any thread; memory of the caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace exphil::core {

// Outputs [first, first + count). Categorical: logits of a choice among them, whose target is one index.
// Binary: logits of `count` separate events, each with a target of 0 or 1.
struct LossGroup {
  std::string name;
  std::int64_t first = 0, count = 0;
  bool binary = false;
  std::int64_t columns() const { return binary ? count : 1; }  // of the targets
};

struct GroupLoss {
  double loss = 0;     // the mean over the rows
  double correct = 0;  // the share of targets that the outputs' most likely choice meets
};

// Cross-entropy: for every row the sum over the groups, a binary group counting the sum over its events; of
// all rows the mean. outs, d_outs: {rows, d_output}; targets: {rows, columns of all groups}. A target of -1
// is left out: it counts for neither value nor gradient. d_outs is zero for outputs of no group. Throws
// invalid_argument for a group that is not within the outputs or overlaps another ("groups") and for a target
// out of range ("targets").
template <class T>
std::vector<GroupLoss> cross_entropy(const T* outs, std::int64_t rows, std::int64_t d_output,
                                     const std::vector<LossGroup>& groups, const std::int32_t* targets,
                                     T* d_outs);

// The mean over all elements of (outs - targets)^2.
template <class T>
double mean_squared_error(const T* outs, const T* targets, std::int64_t count, T* d_outs);

}  // namespace exphil::core
