// Training that stays where the policy is: a step is one call, and the numbers come back when asked for.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core/work/parallel.hpp"
#include "nif/functions.hpp"
#include "nif/sequences.hpp"
#include "nif/training.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;
using core::Shape;

namespace {

core::TrainingLoss loss_of(const std::optional<LossGroups>& given) {
  core::TrainingLoss loss;
  loss.squares = !given;
  if (!given) return loss;
  for (const auto& [name, first, count, binary] : *given) loss.groups.push_back({name, first, count, binary});
  return loss;
}

// A value for every weight, from the tensors of a checkpoint.
core::PolicyValues<float> values_of(const core::PolicyWeights& policy, const NamedTensors& given) {
  std::map<std::string, core::TensorView> tensors;
  for (const auto& [name, view] : given) tensors[name] = view;
  core::PolicyValues<float> values = core::zeros_of<float>(policy.network());
  for (const core::PolicyParameter& p : policy.parameters) {
    const auto found = tensors.find(p.name);
    if (found == tensors.end()) {
      fail(ErrorKind::invalid_argument, "optimiser", "the optimiser must have a tensor ",
           core::quote(p.name));
    }
    require_tensor(found->second, core::Dtype::f32, p.shape, p.name.c_str());
    const auto* const floats = static_cast<const float*>(found->second.data);
    if (!core::all_finite(floats, static_cast<std::int64_t>(p.count()))) {
      fail(ErrorKind::invalid_argument, "optimiser", "optimiser must be finite: tensor ", core::quote(p.name),
           " is not");
    }
    core::put_parameter(p, floats, &values);
  }
  return values;
}

// The rows of a batch that some pieces fill, in memory that the next step uses again.
class Batch {
 public:
  Batch(core::Backend& backend, TrainingBuffers& buffers, const core::PolicyTraining& training,
        const std::vector<Piece>& pieces)
      : config_(training.policy().config), squares_(training.loss().squares) {
    columns_ = squares_ ? config_.d_output : core::columns_of(training.loss().groups);
    if (pieces.empty()) fail(ErrorKind::invalid_argument, "sequences", "there must be at least one sequence");
    bool masked = false;
    for (const auto& [frames, targets, mask, first, count] : pieces) {
      check(frames, config_.d_input, first, count), check(targets, columns_, first, count);
      if (mask) check(*mask, 1, first, count);
      masked = masked || mask || (seq_ != 0 && count != seq_);
      seq_ = std::max(seq_, count);
    }
    const auto count = static_cast<std::int64_t>(pieces.size());
    const std::int64_t rows = core::checked_multiply(count, seq_, "sequences");
    frames_ = words(backend, &buffers.frames, rows, config_.d_input);
    targets_ = words(backend, &buffers.targets, rows, columns_);
    if (masked) mask_ = words(backend, &buffers.mask, rows, 1);
    core::parallel_for(count, std::max<std::int64_t>(1, kShare / (seq_ * config_.d_input)),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i)
                           put(pieces[static_cast<std::size_t>(i)], i * seq_);
                       });
    given_.sequences.batch = count, given_.sequences.seq = seq_;
    given_.sequences.frames = reinterpret_cast<const float*>(frames_);
    if (squares_) given_.values = reinterpret_cast<const float*>(targets_);
    if (!squares_) given_.choices = targets_;
    given_.mask = mask_;
  }
  core::TrainingBatch& given() { return given_; }

 private:
  static constexpr std::int64_t kShare = 1 << 16;  // words that are worth another thread

  static void check(const Binary& binary, std::int64_t columns, std::int64_t first, std::int64_t count) {
    if (columns == 0) return;
    const auto rows = static_cast<std::int64_t>(binary.size / 4) / columns;
    if (first < 0 || count < 1 || first > rows || count > rows - first) {
      fail(ErrorKind::invalid_argument, "sequences", "a piece of ", count, " frames from ", first,
           " on must be within its sequence of ", rows);
    }
  }

  // Room for so many rows; what is in it is of an earlier step.
  static std::int32_t* words(core::Backend& backend, core::ResultBuffer* buffer, std::int64_t rows,
                             std::int64_t columns) {
    const std::int64_t bytes = core::checked_multiply(core::checked_multiply(rows, columns, "sequences"),
                                                      sizeof(std::int32_t), "sequences");
    if (buffer->bytes() < static_cast<std::size_t>(bytes)) {
      *buffer = core::ResultBuffer();
      *buffer = backend.allocate_result(static_cast<std::size_t>(bytes));
    }
    return static_cast<std::int32_t*>(buffer->data());
  }

  // Rows [row, row + seq_), of which the piece may have fewer.
  void put(const Piece& piece, std::int64_t row) const {
    const auto& [frames, targets, mask, first, count] = piece;
    put(frames, frames_, config_.d_input, row, first, count);
    put(targets, targets_, columns_, row, first, count);
    if (mask_ == nullptr) return;
    if (mask) return put(*mask, mask_, 1, row, first, count);
    std::fill(std::fill_n(mask_ + row, count, 1), mask_ + row + seq_, 0);
  }
  void put(const Binary& from, std::int32_t* words, std::int64_t columns, std::int64_t row,
           std::int64_t first, std::int64_t count) const {
    std::int32_t* const to = words + row * columns;
    std::memcpy(to, from.data + 4 * first * columns, static_cast<std::size_t>(4 * count * columns));
    std::fill(to + count * columns, to + seq_ * columns, 0);
  }

  const core::PolicyConfig& config_;
  const bool squares_;
  std::int64_t columns_ = 0, seq_ = 0;
  std::int32_t *frames_ = nullptr, *targets_ = nullptr, *mask_ = nullptr;
  core::TrainingBatch given_;
};

// Playing it loads its weights.
void hold_training(PolicyHandle& handle, const std::shared_ptr<core::PolicyTraining>& training) {
  const std::shared_ptr<LoadedPolicy> before = handle.found();
  handle.replace(before->with(before->weights, training));
}

}  // namespace

Term new_training(Call& call, PolicyHandle& handle, std::optional<LossGroups> groups, TrainedTensors given,
                  TrainingStartTuple from) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.loaded();
  const core::PolicyWeights& weights = loaded->trainable();
  std::vector<core::TrainedTensor> tensors;
  for (const auto& [name, decays] : given) tensors.push_back({name, decays});
  core::TrainingStart start;
  const auto& [steps, means] = from;
  start.steps = steps;
  if (means)
    start.m = values_of(weights, std::get<0>(*means)), start.v = values_of(weights, std::get<1>(*means));
  TrainingHandle made;
  made.training = loaded->backend->train(loaded->weights, loss_of(groups), tensors, std::move(start));
  return encode_handle(call, std::move(made));
}

Term train_step(Call& call, TrainingHandle& handle, PolicyHandle& policy, std::vector<Piece> pieces,
                std::optional<StateTensors> state, AdamWOptions given) {
  core::PolicyTraining& training = *handle.training;
  const core::PolicyConfig& config = training.policy().config;
  const std::lock_guard<std::mutex> lock(handle.buffers->mutex);
  core::Backend& backend = *policy.found()->backend;
  Batch made(backend, *handle.buffers, training, pieces);
  core::TrainingBatch& batch = made.given();
  const std::vector<float> initial = states_of(config, batch.sequences.batch, state);
  std::vector<float> final(initial.size());
  if (state) batch.sequences.states = initial.data(), batch.states = final.data();
  core::TrainingRule rule;
  std::tie(rule.adamw.learning_rate, rule.adamw.beta1, rule.adamw.beta2, rule.adamw.epsilon,
           rule.adamw.weight_decay, rule.clip_norm, rule.adamw.step) = given;
  const core::TrainingStep step = training.step(batch, rule);
  hold_training(policy, handle.training);
  return enif_make_tuple3(
      call.env(), enif_make_double(call.env(), step.loss), enif_make_double(call.env(), step.norm),
      state ? encode_states(call, backend, config, batch.sequences.batch, final) : encode_atom(call, "nil"));
}

Term training_values(Call& call, TrainingHandle& handle, PolicyHandle& policy) {
  const core::PolicyWeights& weights = handle.training->policy();
  core::PolicyValues<float> w = core::zeros_of<float>(weights.network()), m = w, v = w;
  const std::int64_t steps = handle.training->read(&w, &m, &v);
  core::Backend& backend = *policy.found()->backend;
  return enif_make_tuple4(call.env(), encode_integer(call, steps), encode_values(call, backend, weights, w),
                          encode_values(call, backend, weights, m), encode_values(call, backend, weights, v));
}

}  // namespace exphil::nif
