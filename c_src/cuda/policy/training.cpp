#include "cuda/policy/training.hpp"

#include <algorithm>
#include <utility>

#include "cuda/device/upload.hpp"
#include "cuda/policy/gradient.hpp"
#include "cuda/policy/training_kernels.hpp"

namespace exphil::cuda {
namespace {

using core::PolicyValues;

// Weights and AdamW's means at one step.
struct Images {
  CUdeviceptr weights = 0, m = 0, v = 0;
};

class CudaTraining : public core::PolicyTraining {
 public:
  CudaTraining(std::shared_ptr<Context> context, std::shared_ptr<const core::PolicyWeights> weights,
               core::TrainingLoss loss, const std::vector<core::TrainedTensor>& tensors,
               const core::TrainingStart& start)
      : PolicyTraining(weights, std::move(loss), tensors, start.steps),
        context_(std::move(context)),
        gradient_(context_, std::move(weights)),
        kernels_(*context_),
        result_(context_->pinned_pool().allocate(sizeof(policy::TrainingResult))) {
    allocate();
    fill(start);
  }

 private:
  std::size_t bytes() const { return gradient_.values().bytes(); }
  std::int64_t count() const { return static_cast<std::int64_t>(bytes() / sizeof(float)); }

  // The memory of the gradient's own copy of the weights is that of the first image.
  void allocate() {
    Places places;
    const auto take = [&](std::size_t size) { return places.take(size); };
    const std::size_t next = take(bytes()), m = take(bytes()), next_m = take(bytes()), v = take(bytes()),
                      next_v = take(bytes()), sums = take(bytes());
    const std::size_t kinds = take(static_cast<std::size_t>(count())),
                      groups = take(host_groups().size() * sizeof(policy::TrainingGroup)),
                      derived = take(host_derived().size() * sizeof(policy::DerivedWeight)),
                      result = take(sizeof(policy::TrainingResult)),
                      squares = take(static_cast<std::size_t>(squares_blocks(count())) * sizeof(double));
    memory_ = context_->device_pool().allocate(places.bytes());
    const CUdeviceptr at = memory_.address();
    now_ = {gradient_.address(), at + m, at + v}, next_ = {at + next, at + next_m, at + next_v};
    gradient_at_ = at + sums, kinds_ = at + kinds, groups_ = at + groups, derived_ = at + derived;
    result_at_ = at + result, squares_ = at + squares;
  }

  // A group for each group of the loss; one with all outputs for squares.
  std::vector<policy::TrainingGroup> host_groups() const {
    if (loss().squares) return {{0, static_cast<int>(policy().config.d_output), 0, 0}};
    std::vector<policy::TrainingGroup> all;
    int column = 0;
    for (const core::LossGroup& group : loss().groups) {
      all.push_back({static_cast<int>(group.first), static_cast<int>(group.count), column, group.binary});
      column += static_cast<int>(group.columns());
    }
    return all;
  }

  std::vector<policy::DerivedWeight> host_derived() const {
    std::vector<policy::DerivedWeight> all;
    const core::Network& n = policy().network();
    const auto floats = [this](core::WeightId id) {
      return static_cast<long long>(gradient_.values().place(id) / sizeof(float));
    };
    for (std::size_t id = 0; id < n.weights.size(); ++id) {
      const core::WeightId source = n.weights[id].negative_exp_of;
      if (source == core::kNone) continue;
      all.push_back({floats(source), floats(static_cast<core::WeightId>(id)), n.weights[id].size()});
    }
    return all;
  }

  std::vector<unsigned char> host_kinds() const {
    std::vector<unsigned char> kinds(static_cast<std::size_t>(count()), policy::kFixed);
    for (const core::TrainedRun& run : runs()) {
      const std::size_t first = gradient_.values().place(run.weight) / sizeof(float) + run.first;
      std::fill_n(kinds.begin() + static_cast<std::ptrdiff_t>(first), run.count,
                  run.decays ? policy::kDecays : policy::kTrained);
    }
    return kinds;
  }

  template <class T>
  void upload(CUdeviceptr to, const std::vector<T>& values) const {
    if (!values.empty()) upload_now(*context_, to, {{values.data(), 0, values.size() * sizeof(T)}});
  }

  void clear(CUstream stream, CUdeviceptr at, std::size_t size) const {
    context_->check(driver().cuMemsetD8Async(at, 0, size, stream), "cuMemsetD8Async");
  }

  void fill(const core::TrainingStart& start) {
    StreamLease stream(*context_);
    for (const Images& images : {now_, next_}) {
      clear(stream.handle(), images.m, bytes()), clear(stream.handle(), images.v, bytes());
    }
    stream.synchronize();
    if (!start.m.empty()) upload_now(*context_, now_.m, gradient_.values().segments(start.m));
    if (!start.v.empty()) upload_now(*context_, now_.v, gradient_.values().segments(start.v));
    upload(kinds_, host_kinds()), upload(groups_, host_groups()), upload(derived_, host_derived());
    // Derived here as after every step: a run that goes on from a file has the bits of one that never ended.
    derive(stream.handle(), now_.weights, false);
    context_->check(driver().cuMemcpyDtoDAsync(next_.weights, now_.weights, bytes(), stream.handle()),
                    "cuMemcpyDtoDAsync");
    stream.synchronize();
  }

  void derive(CUstream stream, CUdeviceptr weights, bool reports) const {
    kernels_.derive(stream,
                    {as_pointer<float>(weights), as_pointer<policy::DerivedWeight>(derived_),
                     reports ? as_pointer<policy::TrainingResult>(result_at_) : nullptr},
                    host_derived().size());
  }

  Outcome compute(const core::TrainingBatch& batch, const core::TrainingRule& rule) override {
    const ContextGuard guard(*context_);
    const std::int64_t groups = static_cast<std::int64_t>(host_groups().size());
    const std::int64_t losses = core::checked_multiply(batch.rows(), groups, "frames");
    const DeviceBuffer loss_memory =
        context_->device_pool().allocate(static_cast<std::size_t>(losses) * sizeof(double));
    const std::int64_t counting =
        core::rows_that_count(batch.rows(), batch.mask) * (loss().squares ? policy().config.d_output : 1);
    const double scale = counting > 0 ? 1.0 / static_cast<double>(counting) : 0.0;
    TrainingPass pass;
    pass.targets = loss().squares ? static_cast<const void*>(batch.values) : batch.choices;
    pass.target_columns = loss().squares ? policy().config.d_output : core::columns_of(loss().groups);
    pass.mask = batch.mask;
    pass.gradient = gradient_at_;
    pass.loss = [&](CUstream stream, const GradientMemory& memory, std::int64_t first) {
      enqueue_loss(stream, memory, scale, loss_memory.as<double>() + first * groups);
    };
    pass.update = [&](CUstream stream) {
      enqueue_update(stream, rule, scale, loss_memory.as<double>(), losses);
    };
    core::PolicyGradOutputs outputs;
    outputs.states = batch.states;
    gradient_.train(now_.weights, batch.sequences, outputs, pass);
    const auto& result = *result_.as<policy::TrainingResult>();
    return {{result.loss, result.norm}, result.finite != 0};
  }

  void enqueue_loss(CUstream stream, const GradientMemory& memory, double scale, double* losses) const {
    const Matrix outs = memory.outs(), d_outs = memory.d_outs();
    clear(stream, reinterpret_cast<CUdeviceptr>(d_outs.data),
          static_cast<std::size_t>(d_outs.size()) * sizeof(float));
    policy::TrainingLossArguments a{};
    a.outs = outs.data, a.d_outs = d_outs.data;
    if (loss().squares) a.values = memory.targets;
    a.choices = reinterpret_cast<const int*>(memory.targets);
    a.mask = reinterpret_cast<const int*>(memory.mask);
    a.groups = as_pointer<policy::TrainingGroup>(groups_);
    a.losses = losses, a.scale = scale;
    a.rows = outs.rows, a.width = static_cast<int>(outs.columns);
    a.columns = static_cast<int>(memory.shape.target_columns);
    a.group_count = static_cast<int>(host_groups().size());
    if (a.group_count > 0) kernels_.loss(stream, a);
  }

  void enqueue_update(CUstream stream, const core::TrainingRule& rule, double scale, const double* losses,
                      std::int64_t loss_count) const {
    auto* const result = as_pointer<policy::TrainingResult>(result_at_);
    const auto* const kinds = as_pointer<unsigned char>(kinds_);
    policy::TrainingSumsArguments sums{};
    sums.gradient = as_pointer<float>(gradient_at_), sums.kinds = kinds;
    sums.squares = as_pointer<double>(squares_), sums.losses = losses;
    sums.count = count(), sums.loss_count = loss_count;
    sums.loss_scale = scale, sums.clip_norm = rule.clip_norm.value_or(0);
    sums.result = result;
    kernels_.sums(stream, sums);
    const core::AdamWFactors<float> f(rule.adamw);
    policy::AdamWArguments a{};
    a.weights = as_pointer<float>(now_.weights), a.gradient = sums.gradient;
    a.m = as_pointer<float>(now_.m), a.v = as_pointer<float>(now_.v);
    a.next_weights = as_pointer<float>(next_.weights);
    a.next_m = as_pointer<float>(next_.m), a.next_v = as_pointer<float>(next_.v);
    a.kinds = kinds, a.result = result, a.count = count();
    a.beta1 = f.beta1, a.beta2 = f.beta2, a.rest1 = f.rest1, a.rest2 = f.rest2;
    a.rate = f.rate, a.root = f.root, a.kept = f.kept, a.epsilon = f.epsilon;
    kernels_.adamw(stream, a);
    derive(stream, next_.weights, true);
    context_->check(
        driver().cuMemcpyDtoHAsync(result_.data(), result_at_, sizeof(policy::TrainingResult), stream),
        "cuMemcpyDtoHAsync");
  }

  void commit() noexcept override { std::swap(now_, next_); }

  void read_values(bool next, PolicyValues<float>* weights, PolicyValues<float>* m,
                   PolicyValues<float>* v) override {
    const ContextGuard guard(*context_);
    const Images& images = next ? next_ : now_;
    read_image(images.weights, weights), read_image(images.m, m), read_image(images.v, v);
  }

  void read_image(CUdeviceptr image, PolicyValues<float>* to) const {
    if (to != nullptr) gradient_.copy_out(image, to);
  }

  void run_grad(const core::PolicySequences& sequences, const float* d_outs,
                const core::PolicyGradOutputs& outputs) override {
    const ContextGuard guard(*context_);
    gradient_.run(now_.weights, sequences, d_outs, outputs);
  }

  const std::shared_ptr<Context> context_;
  const PolicyGradient gradient_;
  const TrainingKernels kernels_;
  DeviceBuffer memory_;
  PinnedBuffer result_;
  Images now_, next_;
  CUdeviceptr gradient_at_ = 0, kinds_ = 0, groups_ = 0, derived_ = 0, result_at_ = 0, squares_ = 0;
};

}  // namespace

std::unique_ptr<core::PolicyTraining> make_training(std::shared_ptr<Context> context,
                                                    std::shared_ptr<const core::PolicyWeights> weights,
                                                    core::TrainingLoss loss,
                                                    const std::vector<core::TrainedTensor>& tensors,
                                                    core::TrainingStart start) {
  const ContextGuard guard(*context);
  return std::make_unique<CudaTraining>(std::move(context), std::move(weights), std::move(loss), tensors,
                                        start);
}

}  // namespace exphil::cuda
