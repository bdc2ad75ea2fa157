#include "core/training/loss.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/philox.hpp"

namespace exphil::core {

std::int64_t columns_of(const std::vector<LossGroup>& groups) {
  std::int64_t columns = 0;
  for (const LossGroup& group : groups) columns += group.columns();
  return columns;
}

std::int64_t rows_that_count(std::int64_t rows, const std::int32_t* mask) {
  return mask == nullptr ? rows : rows - std::count(mask, mask + rows, 0);
}

void check_groups(const std::vector<LossGroup>& groups, std::int64_t d_output) {
  std::vector<bool> taken(static_cast<std::size_t>(d_output));
  for (const LossGroup& group : groups) {
    if (group.first < 0 || group.count < 1 || group.count > d_output - group.first) {
      fail(ErrorKind::invalid_argument, "groups", "group ", quote(group.name), " must be within the ",
           d_output, " outputs; got ", group.count, " from ", group.first, " on");
    }
    for (std::int64_t i = group.first; i < group.first + group.count; ++i) {
      if (taken[static_cast<std::size_t>(i)]) {
        fail(ErrorKind::invalid_argument, "groups", "group ", quote(group.name), " has output ", i,
             ", which another group has");
      }
      taken[static_cast<std::size_t>(i)] = true;
    }
  }
}

namespace {

void check_target(const LossGroup& group, std::int32_t target) {
  const std::int64_t choices = group.binary ? 2 : group.count;
  if (target >= -1 && target < choices) return;
  fail(ErrorKind::invalid_argument, "targets", "a target of group ", quote(group.name), " must be from 0 to ",
       choices - 1, ", or -1 to leave it out; got ", target);
}

struct Answer {
  double loss = 0;
  bool correct = false;
};

// -log softmax(logits)[target]; d_logits = (softmax - one hot) scale.
template <class T>
Answer categorical(const T* logits, std::int64_t count, std::int32_t target, double scale, T* d_logits) {
  const T* const most = std::max_element(logits, logits + count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::exp(double{logits[i]} - double{*most});
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = std::exp(double{logits[i]} - double{*most}) / sum;
    d_logits[i] = static_cast<T>((share - (i == target ? 1.0 : 0.0)) * scale);
  }
  return {std::log(sum) + double{*most} - double{logits[target]}, most - logits == target};
}

// log(1 + e^z) - target z; d = (sigmoid(z) - target) scale.
template <class T>
Answer binary(T logit, std::int32_t target, double scale, T* d_logit) {
  const double z = logit, small = std::exp(-std::abs(z));
  const double sigmoid = z >= 0 ? 1 / (1 + small) : small / (1 + small);
  *d_logit = static_cast<T>((sigmoid - target) * scale);
  return {std::max(z, 0.0) + std::log1p(small) - target * z, (z > 0) == (target == 1)};
}

// The choice at which the sum of the shares passes `uniform`. A temperature near 0 leaves the largest
// outputs.
template <class T>
std::int32_t drawn(const T* logits, std::int64_t count, double temperature, double uniform) {
  const double most = *std::max_element(logits, logits + count);
  const double by = std::max(temperature, 1e-250);
  const auto share = [&](std::int64_t i) { return std::exp((double{logits[i]} - most) / by); };
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += share(i);
  double left = uniform * sum;
  std::int32_t last = 0;  // the last with a share, where rounding leaves a rest
  for (std::int64_t i = 0; i < count; ++i) {
    const double part = share(i);
    if (part > 0) last = static_cast<std::int32_t>(i);
    if (part > 0 && left < part) break;
    left -= part;
  }
  return last;
}

}  // namespace

void check_targets(const std::vector<LossGroup>& groups, std::int64_t rows, const std::int32_t* targets,
                   const std::int32_t* mask) {
  const std::int64_t columns = columns_of(groups);
  for (std::int64_t row = 0; row < rows; ++row, targets += columns) {
    if (mask != nullptr && mask[row] == 0) continue;
    const std::int32_t* target = targets;
    for (const LossGroup& group : groups) {
      for (std::int64_t k = 0; k < group.columns(); ++k) check_target(group, *target++);
    }
  }
}

template <class T>
void CrossEntropy::add(const T* outs, std::int64_t rows, const std::int32_t* targets,
                       const std::int32_t* mask, T* d_outs) {
  std::fill(d_outs, d_outs + rows * d_output_, T{0});
  for (std::int64_t row = 0; row < rows; ++row, outs += d_output_, d_outs += d_output_) {
    if (mask != nullptr && mask[row] == 0) {
      targets += columns_;
      continue;
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const LossGroup& group = groups_[g];
      for (std::int64_t k = 0; k < group.columns(); ++k) {
        const std::int32_t target = *targets++;
        check_target(group, target);
        if (target < 0) continue;
        const std::int64_t at = group.first + k;
        const Answer answer = group.binary ? binary(outs[at], target, scale_, d_outs + at)
                                           : categorical(outs + at, group.count, target, scale_, d_outs + at);
        losses_[g].loss += answer.loss * scale_;
        losses_[g].correct += answer.correct ? 1 : 0;
        ++counted_[g];
      }
    }
  }
}
template void CrossEntropy::add(const float*, std::int64_t, const std::int32_t*, const std::int32_t*, float*);
template void CrossEntropy::add(const double*, std::int64_t, const std::int32_t*, const std::int32_t*,
                                double*);

CrossEntropy::CrossEntropy(const std::vector<LossGroup>& groups, std::int64_t d_output, std::int64_t counting)
    : groups_(groups),
      d_output_(d_output),
      columns_(columns_of(groups)),
      scale_(counting > 0 ? 1.0 / static_cast<double>(counting) : 0.0),
      losses_(groups.size()),
      counted_(groups.size()) {
  check_groups(groups, d_output);
}

std::vector<GroupLoss> CrossEntropy::losses() const {
  std::vector<GroupLoss> losses = losses_;
  for (std::size_t g = 0; g < losses.size(); ++g) {
    if (counted_[g] > 0) losses[g].correct /= static_cast<double>(counted_[g]);
  }
  return losses;
}

template <class T>
std::vector<GroupLoss> cross_entropy(const T* outs, std::int64_t rows, std::int64_t d_output,
                                     const std::vector<LossGroup>& groups, const std::int32_t* targets,
                                     const std::int32_t* mask, T* d_outs) {
  CrossEntropy sums(groups, d_output, rows_that_count(rows, mask));
  sums.add(outs, rows, targets, mask, d_outs);
  return sums.losses();
}
template std::vector<GroupLoss> cross_entropy(const float*, std::int64_t, std::int64_t,
                                              const std::vector<LossGroup>&, const std::int32_t*,
                                              const std::int32_t*, float*);
template std::vector<GroupLoss> cross_entropy(const double*, std::int64_t, std::int64_t,
                                              const std::vector<LossGroup>&, const std::int32_t*,
                                              const std::int32_t*, double*);

SquaredError::SquaredError(std::int64_t width, std::int64_t counting)
    : width_(width), scale_(counting * width > 0 ? 1.0 / static_cast<double>(counting * width) : 0.0) {}

template <class T>
void SquaredError::add(const T* outs, const T* targets, std::int64_t rows, const std::int32_t* mask,
                       T* d_outs) {
  std::fill(d_outs, d_outs + rows * width_, T{0});
  for (std::int64_t row = 0; row < rows; ++row) {
    if (mask != nullptr && mask[row] == 0) continue;
    for (std::int64_t i = row * width_; i < (row + 1) * width_; ++i) {
      const double difference = double{outs[i]} - double{targets[i]};
      sum_ += difference * difference;
      d_outs[i] = static_cast<T>(2 * difference * scale_);
    }
  }
}
template void SquaredError::add(const float*, const float*, std::int64_t, const std::int32_t*, float*);
template void SquaredError::add(const double*, const double*, std::int64_t, const std::int32_t*, double*);

template <class T>
double mean_squared_error(const T* outs, const T* targets, std::int64_t rows, std::int64_t width,
                          const std::int32_t* mask, T* d_outs) {
  SquaredError sum(width, rows_that_count(rows, mask));
  sum.add(outs, targets, rows, mask, d_outs);
  return sum.loss();
}
template double mean_squared_error(const float*, const float*, std::int64_t, std::int64_t,
                                   const std::int32_t*, float*);
template double mean_squared_error(const double*, const double*, std::int64_t, std::int64_t,
                                   const std::int32_t*, double*);

template <class T>
void choose(const T* outs, std::int64_t rows, std::int64_t d_output, const std::vector<LossGroup>& groups,
            const Draws* draws, std::int32_t* choices) {
  check_groups(groups, d_output);
  const std::int64_t columns = columns_of(groups);
  for (std::int64_t row = 0; row < rows; ++row, outs += d_output) {
    if (!std::all_of(outs, outs + d_output, [](T value) { return std::isfinite(value); })) {
      fail(ErrorKind::invalid_argument, "outs", "outs must be finite; row ", row, " is not");
    }
    std::int64_t column = row * columns;
    for (const LossGroup& group : groups) {
      for (std::int64_t k = 0; k < group.columns(); ++k, ++column) {
        const T* const at = outs + group.first + k;
        const double uniform =
            draws ? uniform_at(draws->seed, draws->frame, static_cast<std::uint64_t>(column)) : 0;
        if (group.binary) {
          *choices++ = draws ? uniform < 1 / (1 + std::exp(-double{*at})) : *at > 0;
        } else {
          *choices++ = draws ? drawn(at, group.count, draws->temperature, uniform)
                             : static_cast<std::int32_t>(std::max_element(at, at + group.count) - at);
        }
      }
    }
  }
}
template void choose(const float*, std::int64_t, std::int64_t, const std::vector<LossGroup>&, const Draws*,
                     std::int32_t*);
template void choose(const double*, std::int64_t, std::int64_t, const std::vector<LossGroup>&, const Draws*,
                     std::int32_t*);

}  // namespace exphil::core
