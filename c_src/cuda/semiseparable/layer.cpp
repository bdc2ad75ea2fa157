// Weights in one block of device memory. A call uploads x and queues four products, the cumulative sums (the
// associative scan over the middle axis) and the product that computes y.
#include "cuda/semiseparable/layer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/associative/scan.hpp"
#include "cuda/device/places.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/semiseparable/arguments.cuh"

namespace exphil::cuda {

namespace {

using semiseparable::Finish;
using semiseparable::Left;
using semiseparable::ProductArguments;

KernelSpec product_spec(Left left, Finish finish) {
  return {"semiseparable/gates.cu",
          "semiseparable_product",
          {define("LEFT", static_cast<int>(left)), define("FINISH", static_cast<int>(finish))}};
}

// Offsets of one call's tensors in device memory; x first.
struct Workspace {
  std::size_t x, inner, gates, u, v, k, k_reverse, y, scratch, bytes;

  Workspace(const core::SemiseparableConfig& c, const core::SemiseparableInput& input,
            const AssociativePlan& plan) {
    const std::int64_t rows = input.batch * input.seq;
    Places places;
    const auto take = [&](std::int64_t floats) {
      return places.take(static_cast<std::size_t>(floats) * sizeof(float));
    };
    x = take(rows * c.hidden);
    inner = take(rows * c.gate_hidden);
    gates = take(rows * c.rank);
    u = take(rows * c.rank);
    v = take(rows * c.rank);
    k = take(rows * c.rank);
    k_reverse = take(input.bidirectional ? rows * c.rank : 0);
    y = take(rows * c.hidden);
    scratch = places.bytes();
    bytes = scratch + plan.scratch_bytes();
  }
};

core::AssociativeProblem cumulative_sums(const core::SemiseparableConfig& c,
                                         const core::SemiseparableInput& input) {
  core::AssociativeProblem problem;
  problem.op = core::AssociativeOp::cumsum;
  problem.outer = input.batch;
  problem.length = input.seq;
  problem.inner = c.rank;
  problem.direction = input.bidirectional ? core::Direction::both : core::Direction::forward;
  return problem;
}

class CudaSemiseparable final : public core::SemiseparableLayer {
 public:
  CudaSemiseparable(std::shared_ptr<Context> context, const core::SemiseparableWeights& w)
      : context_(std::move(context)), config_(w.config) {
    const ContextGuard guard(*context_);
    Places places;
    std::vector<ImageSegment> segments;
    const auto place = [&](const std::vector<float>& values) {
      const std::size_t bytes = values.size() * sizeof(float), at = places.take(bytes);
      segments.push_back({values.data(), at, bytes});
      return at;
    };
    gate_in_ = place(w.gate_in), gate_in_bias_ = place(w.gate_in_bias);
    gate_out_ = place(w.gate_out), gate_out_bias_ = place(w.gate_out_bias);
    u_ = place(w.u), v_ = place(w.v), taps_ = place(w.conv);
    output_ = place(w.output), output_bias_ = place(w.output_bias);
    weights_ = context_->device_pool().allocate(places.bytes());
    StreamLease stream(*context_);
    Upload upload(*context_, stream.handle(), weights_.address(), segments,
                  {segments.back().at + segments.back().bytes}, [](std::size_t) {});
    upload.run();
    stream.synchronize();
  }

  const core::SemiseparableConfig& config() const override { return config_; }
  std::size_t resident_bytes() const override { return weights_.bytes(); }

  void forward(const core::SemiseparableInput& input, const core::SemiseparableOutputs& outputs) override {
    context_->require_alive();
    if (input.batch * input.seq == 0) return;
    const ContextGuard guard(*context_);
    const AssociativePlan plan = plan_associative(cumulative_sums(config_, input));
    const Workspace at(config_, input, plan);
    const std::size_t rows = static_cast<std::size_t>(input.batch * input.seq);
    const std::size_t y_bytes = rows * static_cast<std::size_t>(config_.hidden) * sizeof(float);
    const std::size_t gate_bytes = rows * static_cast<std::size_t>(config_.rank) * sizeof(float);
    // Destroyed in reverse order: the stream is idle before its memory is returned to the pool.
    const DeviceBuffer memory = context_->device_pool().allocate(at.bytes);
    std::unique_ptr<Upload> upload;
    StreamLease stream(*context_);
    upload = std::make_unique<Upload>(
        *context_, stream.handle(), memory.address(), std::vector<ImageSegment>{{input.x, at.x, y_bytes}},
        std::vector<std::size_t>{at.x + y_bytes}, [&](std::size_t) {
          queue(input, at, plan, memory.address(), stream.handle());
          copy_out(outputs.y, memory.address() + at.y, y_bytes, stream.handle());
          copy_out(outputs.gates, memory.address() + at.gates, gate_bytes, stream.handle());
        });
    upload->run();
    stream.synchronize();
  }

 private:
  const float* weight(std::size_t place) const {
    return reinterpret_cast<const float*>(weights_.address() + place);
  }

  void copy_out(float* to, CUdeviceptr from, std::size_t bytes, CUstream stream) const {
    context_->check(driver().cuMemcpyDtoHAsync(to, from, bytes, stream), "cuMemcpyDtoHAsync");
  }

  void multiply(Left left, Finish finish, const ProductArguments& p, CUstream stream) const {
    const std::int64_t tile = semiseparable::kTile;
    const unsigned blocks = grid_blocks((p.rows + tile - 1) / tile * ((p.outs + tile - 1) / tile), "x");
    launch(*context_, context_->kernels().get(product_spec(left, finish)), {blocks, 1, 1},
           {semiseparable::kThreads, 1, 1}, 0, stream, p);
  }

  void queue(const core::SemiseparableInput& input, const Workspace& at, const AssociativePlan& plan,
             CUdeviceptr base, CUstream stream) const {
    const auto tensor = [&](std::size_t place) { return reinterpret_cast<float*>(base + place); };
    const int hidden = static_cast<int>(config_.hidden), rank = static_cast<int>(config_.rank);
    const int inner = static_cast<int>(config_.gate_hidden);
    ProductArguments p{};
    p.rows = input.batch * input.seq;
    p.seq = input.seq;
    p.x = tensor(at.x), p.depth = hidden;

    p.weights = weight(gate_in_), p.bias = weight(gate_in_bias_), p.outs = inner, p.out = tensor(at.inner);
    multiply(Left::plain, Finish::relu, p, stream);
    ProductArguments gate = p;
    gate.x = tensor(at.inner), gate.depth = inner;
    gate.weights = weight(gate_out_), gate.bias = weight(gate_out_bias_), gate.outs = rank;
    gate.out = tensor(at.gates);
    multiply(Left::plain, Finish::gate, gate, stream);
    p.bias = nullptr, p.outs = rank, p.gates = tensor(at.gates);
    p.weights = weight(u_), p.out = tensor(at.u);
    multiply(Left::plain, Finish::gated, p, stream);
    p.weights = weight(v_), p.out = tensor(at.v);
    multiply(Left::plain, Finish::gated, p, stream);

    float* k_reverse = input.bidirectional ? tensor(at.k_reverse) : nullptr;
    clear_associative(*context_, plan, base + at.scratch, stream);
    launch_associative(*context_, plan, {nullptr, tensor(at.u), nullptr, tensor(at.k), k_reverse},
                       base + at.scratch, stream);

    ProductArguments last{};
    last.rows = p.rows, last.seq = p.seq;
    last.x = tensor(at.k), last.k_reverse = k_reverse, last.v = tensor(at.v), last.depth = rank;
    last.weights = weight(output_), last.bias = weight(output_bias_), last.outs = hidden;
    last.taps = weight(taps_), last.input = tensor(at.x), last.out = tensor(at.y);
    multiply(Left::read_out, Finish::output, last, stream);
  }

  const std::shared_ptr<Context> context_;
  const core::SemiseparableConfig config_;
  DeviceBuffer weights_;
  std::size_t gate_in_, gate_in_bias_, gate_out_, gate_out_bias_, u_, v_, taps_, output_, output_bias_;
};

}  // namespace

std::unique_ptr<core::SemiseparableLayer> load_semiseparable(std::shared_ptr<Context> context,
                                                             const core::SemiseparableWeights& weights) {
  return std::make_unique<CudaSemiseparable>(std::move(context), weights);
}

std::vector<KernelSpec> semiseparable_kernel_variants() {
  return {product_spec(Left::plain, Finish::relu), product_spec(Left::plain, Finish::gate),
          product_spec(Left::plain, Finish::gated), product_spec(Left::read_out, Finish::output)};
}

}  // namespace exphil::cuda
