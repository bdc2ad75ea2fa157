#include "core/training/loss.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace exphil::core {

namespace {

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

void check_target(const LossGroup& group, std::int32_t target, std::int64_t choices) {
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

}  // namespace

template <class T>
std::vector<GroupLoss> cross_entropy(const T* outs, std::int64_t rows, std::int64_t d_output,
                                     const std::vector<LossGroup>& groups, const std::int32_t* targets,
                                     T* d_outs) {
  check_groups(groups, d_output);
  std::fill(d_outs, d_outs + rows * d_output, T{0});
  std::vector<GroupLoss> losses(groups.size());
  std::vector<std::int64_t> counted(groups.size());
  const double scale = rows > 0 ? 1.0 / static_cast<double>(rows) : 0.0;
  for (std::int64_t row = 0; row < rows; ++row, outs += d_output, d_outs += d_output) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const LossGroup& group = groups[g];
      for (std::int64_t k = 0; k < group.columns(); ++k) {
        const std::int32_t target = *targets++;
        check_target(group, target, group.binary ? 2 : group.count);
        if (target < 0) continue;
        const std::int64_t at = group.first + k;
        const Answer answer = group.binary ? binary(outs[at], target, scale, d_outs + at)
                                           : categorical(outs + at, group.count, target, scale, d_outs + at);
        losses[g].loss += answer.loss * scale;
        losses[g].correct += answer.correct ? 1 : 0;
        ++counted[g];
      }
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (counted[g] > 0) losses[g].correct /= static_cast<double>(counted[g]);
  }
  return losses;
}
template std::vector<GroupLoss> cross_entropy(const float*, std::int64_t, std::int64_t,
                                              const std::vector<LossGroup>&, const std::int32_t*, float*);
template std::vector<GroupLoss> cross_entropy(const double*, std::int64_t, std::int64_t,
                                              const std::vector<LossGroup>&, const std::int32_t*, double*);

template <class T>
double mean_squared_error(const T* outs, const T* targets, std::int64_t count, T* d_outs) {
  const double scale = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double difference = double{outs[i]} - double{targets[i]};
    sum += difference * difference;
    d_outs[i] = static_cast<T>(2 * difference * scale);
  }
  return sum * scale;
}
template double mean_squared_error(const float*, const float*, std::int64_t, float*);
template double mean_squared_error(const double*, const double*, std::int64_t, double*);

}  // namespace exphil::core
