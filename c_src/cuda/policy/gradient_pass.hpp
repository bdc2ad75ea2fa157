// The forward and backward pass of one group of sequences through a policy: a chain of kernels on a stream,
// and beside it the sums for the weights of a block while the block before it is computed. No
// synchronisation. Used by cuda/policy/gradient.cpp and its benchmark. Any thread, with the context
// current.
//
// Each pass walks the phases of each block and has one function for each kind of phase: forward() and back().
// A new kind of phase is two functions, a line in PartFloats (gradient_memory.cpp) where its weights'
// gradients are summed in parts, and what require_gradient (gradient_order.hpp) has to say about it.
//
// Products that do not depend on each other are one launch, of all three sorts: forward, of inputs' gradients
// and of weights' gradients. The latter two wait until something needs or changes what they write or read.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "cuda/policy/gradient_kernels.hpp"
#include "cuda/policy/gradient_memory.hpp"
#include "cuda/policy/gradient_values.hpp"
#include "kernels/recurrent/arguments.cuh"

namespace exphil::cuda {

// Two streams. Work beside the main one is of a lower priority: a walk of a recurrent cell, which leaves a
// third of the multiprocessors idle, is not kept from its place by it. One pass at a time.
class GradientStreams {
 public:
  explicit GradientStreams(Context& context)
      : beside_(context),
        main_(context, StreamPriority::middle),
        begin_(context),
        ready_(context),
        ends_{Event(context), Event(context)} {}

  CUstream main() const { return main_.handle(); }
  void synchronize() { main_.synchronize(); }
  // The other stream, whose later work comes after all that main() has been given.
  CUstream fork();
  // The same of what main() had been given when ready() was called last.
  CUstream fork_ready();
  void ready() { ready_.record(main_.handle()); }
  // What the other stream has been given so far is number 0 or 1; later work on main() waits for that.
  void name(std::size_t number) { ends_[number].record(beside_.handle()); }
  void join(std::size_t number) { ends_[number].make_wait(main_.handle()); }

 private:
  StreamLease beside_, main_;
  Event begin_, ready_;
  std::array<Event, 2> ends_;
};

class GradientPass {
 public:
  // weights, gradient: device memory of the values' layout. adds: the gradient is added to.
  GradientPass(Context& context, GradientStreams& streams, const GradientKernels& kernels,
               const GradientValues& values, CUdeviceptr weights, CUdeviceptr gradient, bool adds,
               GradientMemory& memory);

  // The frames and the states are given; leaves the rows of outs where `outs`, and the final states.
  void forward(bool outs);
  // After forward(), with the gradient of outs; leaves that of the frames where `frames`.
  void backward(bool frames);

 private:
  // ---- the network, its weights, and the rows of the current block ----
  void enter(std::size_t block);
  float* weight(core::WeightId id) const { return values_.in(weights_, id); }
  float* gradient(core::WeightId id) const { return values_.in(gradient_, id); }
  Matrix weight(const core::Product& product) const;
  const VectorRows& found(core::VectorId id) const;  // as the block's phases read it
  const VectorRows& left(core::VectorId id) const;   // as they write it
  const VectorRows& gradients(core::VectorId id) const;
  float* in(const core::Span& span) const { return dense_rows_of(found(span.vector), span).data; }
  float* out(const core::Span& span) const { return dense_rows_of(left(span.vector), span).data; }
  void copy(Matrix from, Matrix to) const;
  // What a product reads, in its pieces or aligned: copied for the first product of the pass that reads it.
  std::vector<Matrix> inputs(const core::Product& product) const;
  void align_inputs(const core::Product& product);
  const Matrix& aligned(core::VectorId id) const;
  void align_weights();
  void await_weights();

  // ---- forward ----
  void forward_launch(const std::vector<std::size_t>& phases, bool outs);
  void add_forward(const core::Product& product, Products& launch) const;
  void forward(const core::Copy& phase);
  void forward(const core::Norm& phase);
  void forward(const core::Product&) {}  // forward_launch() has them
  void forward(const core::Convolution& phase);
  void forward(const core::Softplus& phase);
  void forward(const core::Mean& phase);
  void forward(const core::Sigmoid& phase);
  void forward(const core::SelectiveScan& phase);
  void forward(const core::Recall&) {}  // its cell's walk takes it, and the products that read it
  void forward(const core::GatedCell& phase);
  void forward(const core::Gate& phase);
  void forward(const core::HeadRecurrence& phase);
  void forward(const core::Trapezoid& phase);
  void forward(const core::Angle& phase);
  void forward(const core::Rotation& phase);
  void forward(const core::Delay& phase);
  void forward(const core::RankScale& phase);
  policy::GradientCoefficientsArguments coefficients(const core::Trapezoid& phase) const;
  policy::GradientAngleArguments angles(const core::Angle& phase) const;
  policy::GradientRotationArguments rotation(const core::Rotation& phase) const;
  policy::GradientDelayArguments delay(const core::Delay& phase) const;
  policy::GradientRankArguments ranks(const core::RankScale& phase) const;
  policy::GradientGateArguments gate_arguments(const core::Gate& phase) const;
  policy::GradientGateArguments elements(const core::Span& from, const core::Span& to) const;
  policy::GradientHeadsArguments heads(const core::HeadRecurrence& phase) const;
  recurrent::RecurrentWeights recurrent_weights(const core::GatedCell& phase) const;
  // The rows of a state of a cell before each frame.
  float* states_before(const core::GatedCell& phase, int state) const;
  // No kernel has the gradient of the others: require_gradient() has refused them.
  template <class Other>
  void forward(const Other&) {
    core::fail(core::ErrorKind::internal, "", "the gradient on a GPU lacks a kind of phase");
  }
  policy::NormArguments norm_arguments(const core::Norm& phase) const;
  // One for each run of channels that is within a piece of what it reads and of what it writes.
  std::vector<policy::ConvolveArguments> convolution(const core::Convolution& phase) const;
  policy::ActivateArguments activation(const core::Softplus& phase) const;
  policy::ActivateArguments activation(const core::SelectiveScan& phase) const;
  core::ScanOperands<CUdeviceptr> scan_operands(const core::SelectiveScan& phase) const;
  policy::GradientScanArguments own_scan(const core::SelectiveScan& phase) const;

  // ---- backward ----
  void backward_block();
  void back(const core::Copy& phase);
  void back(const core::Norm& phase);
  void back(const core::Product& phase);
  void back(const core::Convolution& phase);
  void back(const core::Softplus& phase);
  void back(const core::Mean& phase);
  void back(const core::Sigmoid& phase);
  void back(const core::SelectiveScan& phase);
  void back(const core::Recall&) {}  // its cell's walk takes it
  void back(const core::GatedCell& phase);
  void back(const core::Gate& phase);
  void back(const core::HeadRecurrence& phase);
  void back(const core::Trapezoid& phase);
  void back(const core::Angle& phase);
  void back(const core::Rotation& phase);
  void back(const core::Delay& phase);
  void back(const core::RankScale& phase);
  // The gradient of hidden as the block finds it: what the last phase has replaced passes nothing on.
  void replaced_hidden();
  void show_hidden(const VectorRows& as);
  // No kernel has the gradient of the others: require_gradient() has refused them.
  template <class Other>
  void back(const Other&) {
    core::fail(core::ErrorKind::internal, "", "the gradient on a GPU lacks a kind of phase");
  }
  void own_scan_back(const core::SelectiveScan& phase);
  void weight_back(const core::Product& product, const std::vector<Matrix>& given);
  float* bias_parts(const core::Product& product, std::int64_t row, const Matrix& given);
  void input_back(const core::Product& product);
  policy::ProductJob& input_job(const core::Span& span, const Matrix& to, const Matrix& x);
  // Parts of the gradient of a weight that may be -exp of another one, and of that one's.
  float* negative_exp_parts(core::WeightId id, std::int64_t parts, std::int64_t count);

  // The gradient of what a phase has written, complete: zeros where nothing read it.
  std::vector<Matrix> given(const core::Span& span);
  float* dense_given(const core::Span& span);
  // Whether these rows of a vector's gradient are written for the first time: later parts of it are added.
  bool is_first(core::VectorId vector, const Matrix& rows);
  void clear(const Matrix& rows) const;
  // The gradient of what a phase reads, for a kernel that changes it; launches what reads it before.
  const Matrix& changed(const Matrix& rows);
  Matrix changed(const core::Span& span) { return changed(dense_rows_of(gradients(span.vector), span)); }
  // The same for a kernel that cannot add to it: other rows where that is needed, which settle() adds.
  float* stored(const core::Span& span) { return stored(span.vector, changed(span)); }
  float* stored(core::VectorId vector, const Matrix& rows);
  // The same for one that leaves parts of the sum, which `now` adds at once: room for them.
  float* summed(const core::Span& span, std::int64_t parts, PartialSums& now);
  void settle();
  // The gradient of a bias is the sum of the rows of that of what it was added to, which `d` is.
  void bias_back(core::WeightId bias, const core::Span& span, const float* d);
  void run_inputs();
  void run_weights();
  void finish_weights();

  PartialSums& sums() { return m_.sums[block_ % 2]; }

  Context& context_;
  GradientStreams& streams_;
  const CUstream stream_;  // streams_.main()
  const GradientKernels& kernels_;
  const GradientValues& values_;
  const core::Network& n_;
  const CUdeviceptr weights_, gradient_;
  GradientMemory& m_;
  const std::vector<const core::Block*> blocks_;

  std::size_t block_ = 0, phase_ = 0;  // where the pass is
  const core::Block* phases_ = nullptr;
  bool frames_ = false;             // their gradient is wanted
  bool aligns_ = false;             // aligned copies of weights are under way
  std::set<const float*> written_;  // rows of gradients; in the forward pass, aligned rows
  Products input_jobs_, weight_jobs_;
  PartialSums later_parts_;
  struct Bias {
    const float* d;
    float* to;
  };
  std::vector<Bias> biases_;  // those that the weights of a product before them are summed with
};

}  // namespace exphil::cuda
