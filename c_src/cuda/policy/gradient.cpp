#include "cuda/policy/gradient.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/device/download.hpp"
#include "cuda/device/staged_bytes.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/policy/gradient_order.hpp"
#include "cuda/policy/gradient_pass.hpp"

namespace exphil::cuda {

using core::PolicyConfig;
using core::PolicyGradOutputs;
using core::PolicySequences;

// One call. d_outs: null without a gradient, and of a step of training.
struct PolicyGradient::Call {
  CUdeviceptr weights, gradient;
  const PolicySequences& sequences;
  const float* d_outs;
  const PolicyGradOutputs& outputs;
  const TrainingPass* training;
  bool has_gradient() const { return d_outs != nullptr || training != nullptr; }
};

// Sequences [first, first + count) of a call: their upload, passes and downloads.
class PolicyGradient::Group {
 public:
  Group(const PolicyGradient& policy, const Call& call, std::int64_t first, std::int64_t count)
      : p_(policy),
        c_(policy.config()),
        n_(c_.network),
        call_(call),
        all_(call.sequences),
        first_(first),
        out_(call.outputs),
        final_states_(n_.states.size()),
        d_states_(n_.states.size()),
        memory_(*policy.context_, n_, shape(count)),
        download_(*policy.context_),
        streams_(*policy.context_) {}

  // Returns when the results are in host memory, but for the weights' gradient.
  void run() {
    std::vector<ImageSegment> inputs = segments();
    if (call_.training != nullptr && all_.states == nullptr) {
      copy_in(inputs);
      enqueue(streams_.main());
    } else {
      upload(std::move(inputs));
    }
    streams_.synchronize();
    download_.finish();
    put_states(final_states_, out_.states), put_states(d_states_, out_.d_states);
  }

 private:
  // A step's tensors are whole, and in page-locked memory where they are large.
  void copy_in(const std::vector<ImageSegment>& inputs) const {
    for (const ImageSegment& input : inputs) {
      p_.context_->check(
          driver().cuMemcpyHtoDAsync(memory_.address() + input.at, input.data, input.bytes, streams_.main()),
          "cuMemcpyHtoDAsync");
    }
  }

  void upload(std::vector<ImageSegment> inputs) {
    const std::size_t end = inputs.back().at + inputs.back().bytes;
    upload_ = std::make_unique<Upload>(*p_.context_, streams_.main(), memory_.address(), std::move(inputs),
                                       std::vector<std::size_t>{end},
                                       [this](std::size_t) { enqueue(streams_.main()); });
    upload_->run();
  }

  GradientShape shape(std::int64_t count) const {
    GradientShape shape = p_.shape({count, all_.seq, all_.frames, all_.states}, call_.has_gradient(),
                                   out_.states != nullptr, out_.d_states != nullptr);
    if (call_.training != nullptr) {
      shape.target_columns = call_.training->target_columns;
      shape.with_mask = call_.training->mask != nullptr;
    }
    return shape;
  }

  void put_states(const std::vector<std::vector<float>>& parts, float* to) const {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t each = n_.states[i].size();
      for (std::int64_t s = 0; !parts[i].empty() && s < memory_.shape.sequences; ++s) {
        std::copy_n(parts[i].data() + s * each, each, to + place(s, i));
      }
    }
  }

  // Where a part of a sequence's state is, of {batch, state_floats}.
  std::int64_t place(std::int64_t sequence, std::size_t part) const {
    return (first_ + sequence) * n_.state_floats() + n_.state_at(static_cast<core::StateId>(part));
  }

  std::vector<ImageSegment> segments() const {
    std::vector<ImageSegment> all;
    const auto add = [&](const void* from, const float* to, std::int64_t floats) {
      if (floats > 0) all.push_back({from, memory_.place_of(to), static_cast<std::size_t>(floats) * 4});
    };
    const std::int64_t rows = memory_.shape.rows(), row = first_ * all_.seq;
    add(all_.frames + row * c_.d_input, memory_.frames().data, rows * c_.d_input);
    if (call_.d_outs != nullptr) {
      add(call_.d_outs + row * c_.d_output, memory_.d_outs().data, rows * c_.d_output);
    }
    for (std::size_t i = 0; all_.states != nullptr && i < memory_.states.size(); ++i) {
      const std::int64_t each = n_.states[i].size();
      for (std::int64_t s = 0; each > 0 && s < memory_.shape.sequences; ++s) {
        add(all_.states + place(s, i), memory_.states[i] + s * each, each);
      }
    }
    if (const TrainingPass* const t = call_.training) {
      const auto from = [row](const void* values, std::int64_t columns) {
        return values == nullptr ? nullptr : static_cast<const float*>(values) + row * columns;
      };
      add(from(t->targets, t->target_columns), memory_.targets, rows * t->target_columns);
      if (t->mask != nullptr) add(from(t->mask, 1), memory_.mask, rows);
    }
    return all;
  }

  void passes(CUstream stream) {
    GradientPass pass(*p_.context_, streams_, p_.kernels_, p_.values_, call_.weights, call_.gradient,
                      first_ > 0, memory_);
    const TrainingPass* const training = call_.training;
    pass.forward(out_.outs != nullptr || training != nullptr);
    if (training != nullptr) training->loss(stream, memory_, first_ * all_.seq);
    if (memory_.shape.gradient) pass.backward(out_.frames != nullptr);
    const bool is_last = first_ + memory_.shape.sequences == all_.batch;
    if (training != nullptr && is_last) training->update(stream);
  }

  void enqueue(CUstream stream) {
    if (first_ == 0 && memory_.shape.gradient) {  // the bytes between two tensors are copied out too
      p_.context_->check(driver().cuMemsetD8Async(call_.gradient, 0, p_.gradient_bytes(), stream),
                         "cuMemsetD8Async");
    }
    passes(stream);
    const std::int64_t row = first_ * all_.seq;
    const auto bring = [&](float* to, const Matrix& from) {
      download_.add(stream, to, reinterpret_cast<CUdeviceptr>(from.data),
                    static_cast<std::size_t>(from.size()) * sizeof(float));
    };
    if (out_.outs != nullptr) bring(out_.outs + row * c_.d_output, memory_.outs());
    if (out_.frames != nullptr && memory_.shape.gradient) {
      bring(out_.frames + row * c_.d_input, memory_.d_frames());
    }
    const auto bring_states = [&](std::vector<std::vector<float>>* to, const std::vector<float*>& parts) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i] == nullptr) continue;
        const Matrix rows{parts[i], memory_.shape.sequences, n_.states[i].size()};
        (*to)[i].resize(static_cast<std::size_t>(rows.size()));
        bring((*to)[i].data(), rows);
      }
    };
    bring_states(&final_states_, memory_.final_states), bring_states(&d_states_, memory_.d_states);
  }

  const PolicyGradient& p_;
  const PolicyConfig& c_;
  const core::Network& n_;
  const Call& call_;
  const PolicySequences& all_;
  const std::int64_t first_;
  const PolicyGradOutputs& out_;
  std::vector<std::vector<float>> final_states_, d_states_;  // {sequences, size} of each part
  // Destroyed in reverse order: the stream is idle before the memory that it uses goes back.
  GradientMemory memory_;
  Download download_;
  std::unique_ptr<Upload> upload_;
  GradientStreams streams_;
};

namespace {

// Refused before anything is compiled.
const core::PolicyWeights& supported(const core::PolicyWeights& weights) {
  require_gradient(weights.network());
  return weights;
}

}  // namespace

PolicyGradient::PolicyGradient(std::shared_ptr<Context> context,
                               std::shared_ptr<const core::PolicyWeights> weights)
    : context_(std::move(context)),
      weights_(std::move(weights)),
      values_(supported(*weights_)),
      kernels_(*context_, weights_->network()) {
  on_device_ = context_->device_pool().allocate(values_.bytes());
  upload_now(*context_, on_device_.address(), values_.segments());
}

GradientShape PolicyGradient::shape(const PolicySequences& s, bool gradient, bool keeps_state,
                                    bool by_state) const {
  GradientShape shape;
  shape.sequences = s.batch, shape.seq = s.seq;
  shape.length = s.length(config());
  shape.with_state = s.states != nullptr;
  shape.gradient = gradient, shape.keeps_state = keeps_state, shape.by_state = gradient && by_state;
  return shape;
}

void PolicyGradient::enqueue(GradientStreams& streams, GradientMemory& memory, CUdeviceptr gradient,
                             bool adds, bool outs, bool frames) const {
  GradientPass pass(*context_, streams, kernels_, values_, on_device_.address(), gradient, adds, memory);
  pass.forward(outs);
  if (memory.shape.gradient) pass.backward(frames);
}

void PolicyGradient::run_groups(const Call& call) const {
  const PolicySequences& all = call.sequences;
  const std::int64_t count = std::clamp<std::int64_t>(kGradientRows / all.seq, 1, all.batch);
  for (std::int64_t first = 0; first < all.batch; first += count) {
    Group(*this, call, first, std::min(count, all.batch - first)).run();
  }
}

void PolicyGradient::run(CUdeviceptr weights, const PolicySequences& sequences, const float* d_outs,
                         const PolicyGradOutputs& outputs) const {
  const bool gradient = d_outs != nullptr;
  const DeviceBuffer sums = context_->device_pool().allocate(gradient ? gradient_bytes() : 0);
  run_groups({weights, sums.address(), sequences, d_outs, outputs, nullptr});
  if (gradient && outputs.weights != nullptr) copy_out(sums.address(), outputs.weights);
}

void PolicyGradient::train(CUdeviceptr weights, const PolicySequences& sequences,
                           const PolicyGradOutputs& outputs, const TrainingPass& training) const {
  run_groups({weights, training.gradient, sequences, nullptr, outputs, &training});
}

void PolicyGradient::copy_out(CUdeviceptr gradient, core::PolicyValues<float>* to) const {
  const StagedBytes values(*context_, gradient_bytes());
  StreamLease stream(*context_);
  context_->check(driver().cuMemcpyDtoHAsync(values.data(), gradient, values.size(), stream.handle()),
                  "cuMemcpyDtoHAsync");
  stream.synchronize();
  values_.copy_out(values.data(), to);
}

namespace {

class ResidentGradient final : public core::PolicyGradient {
 public:
  ResidentGradient(std::shared_ptr<Context> context, std::shared_ptr<const core::PolicyWeights> weights)
      : context_(context), gradient_(std::move(context), std::move(weights)) {}

  std::size_t resident_bytes() const override { return gradient_.resident_bytes(); }
  void run(const PolicySequences& sequences, const float* d_outs,
           const PolicyGradOutputs& outputs) const override {
    const ContextGuard guard(*context_);
    gradient_.run(sequences, d_outs, outputs);
  }

 private:
  const std::shared_ptr<Context> context_;
  const cuda::PolicyGradient gradient_;
};

}  // namespace

std::unique_ptr<core::PolicyGradient> make_gradient(std::shared_ptr<Context> context,
                                                    std::shared_ptr<const core::PolicyWeights> weights) {
  const ContextGuard guard(*context);
  return std::make_unique<ResidentGradient>(std::move(context), std::move(weights));
}

}  // namespace exphil::cuda
