// Loss functions of a policy's outputs: the value, and its gradient by the outputs. Computed in double, in
// the order of the rows. Callers: nif/loss.cpp and the backends'
// training steps. Any thread; memory of the caller.
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

std::int64_t columns_of(const std::vector<LossGroup>& groups);  // of the targets
// Rows that a mask {rows} leaves in; all where it is null.
std::int64_t rows_that_count(std::int64_t rows, const std::int32_t* mask);
// Throws invalid_argument for a group that is not within the outputs or overlaps another ("groups").
void check_groups(const std::vector<LossGroup>& groups, std::int64_t d_output);
// Throws invalid_argument for a target out of range ("targets") in a row that counts.
void check_targets(const std::vector<LossGroup>& groups, std::int64_t rows, const std::int32_t* targets,
                   const std::int32_t* mask);

// cross_entropy() over rows that come in parts, in their order. `counting`: the rows of all parts that count.
// Keeps a reference to the groups. Throws as it does.
class CrossEntropy {
 public:
  CrossEntropy(const std::vector<LossGroup>& groups, std::int64_t d_output, std::int64_t counting);
  template <class T>
  void add(const T* outs, std::int64_t rows, const std::int32_t* targets, const std::int32_t* mask,
           T* d_outs);
  std::vector<GroupLoss> losses() const;

 private:
  const std::vector<LossGroup>& groups_;
  const std::int64_t d_output_, columns_;
  const double scale_;
  std::vector<GroupLoss> losses_;
  std::vector<std::int64_t> counted_;  // targets of each group
};

// mean_squared_error() likewise.
class SquaredError {
 public:
  SquaredError(std::int64_t width, std::int64_t counting);
  template <class T>
  void add(const T* outs, const T* targets, std::int64_t rows, const std::int32_t* mask, T* d_outs);
  double loss() const { return sum_ * scale_; }

 private:
  const std::int64_t width_;
  const double scale_;
  double sum_ = 0;
};

// Cross-entropy: for every row the sum over the groups, a binary group counting the sum over its events; of
// all rows the mean. outs, d_outs: {rows, d_output}; targets: {rows, columns of all groups}. A target of -1
// is left out: it counts for neither value nor gradient. d_outs is zero for outputs of no group. Throws
// invalid_argument for a group that is not within the outputs or overlaps another ("groups") and for a target
// out of range ("targets").
// mask: {rows}, or null. A row with 0 counts for nothing: not for the mean either.
template <class T>
std::vector<GroupLoss> cross_entropy(const T* outs, std::int64_t rows, std::int64_t d_output,
                                     const std::vector<LossGroup>& groups, const std::int32_t* targets,
                                     const std::int32_t* mask, T* d_outs);

// The mean of (outs - targets)^2 over all elements of the rows that count. outs, targets, d_outs: {rows,
// width}.
template <class T>
double mean_squared_error(const T* outs, const T* targets, std::int64_t rows, std::int64_t width,
                          const std::int32_t* mask, T* d_outs);

// How choose() draws. Numbers depend on the seed, the frame, the row and the column.
struct Draws {
  double temperature = 1;  // of choices; separate events do not use it. Above 0
  std::uint64_t seed = 0, frame = 0;
};
// The choice of every group in the form of targets, {rows, columns of all groups}: the likeliest (the first
// of equals; an event happens above 0), or drawn. Throws invalid_argument as cross_entropy() does, and for
// outputs that are not finite ("outs").
template <class T>
void choose(const T* outs, std::int64_t rows, std::int64_t d_output, const std::vector<LossGroup>& groups,
            const Draws* draws, std::int32_t* choices);

}  // namespace exphil::core
