// The launches of a job over many rows: a walk over the phases of the network.
#include <algorithm>
#include <array>
#include <cstring>

#include "cuda/jit/launch.hpp"
#include "cuda/policy/rows.hpp"
#include "kernels/policy/row_layout.cuh"

namespace exphil::cuda {
namespace {

using policy::Kind;
using policy::Phase;

constexpr unsigned kMostGridY = 65535;

unsigned blocks(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

class RowKernels::Walk {
 public:
  Walk(const RowKernels& kernels, CUstream stream, const RowBuffers& buffers, const RowJob& job)
      : k_(kernels), n_(kernels.dims_.network()), stream_(stream), b_(buffers), job_(job) {}

  void run() {
    block(n_.input, k_.layout_.input, k_.input_, n_.input.count);
    for (layer_ = 0; layer_ < n_.layers; ++layer_) {
      const bool last = job_.last_only && layer_ + 1 == n_.layers;
      block(n_.layer, k_.layout_.layers[static_cast<std::size_t>(layer_)], k_.layer_,
            last ? policy::first_of_last_rows(n_.layer) : n_.layer.count);
    }
    block(n_.output, k_.layout_.output, k_.output_, job_.last_only ? 0 : n_.output.count);
  }

 private:
  using Weights = RowLayout::Block;

  // From phase `last_rows` on only the last row of each sequence is computed.
  void block(const policy::Block& block, const Weights& weights, const BlockKernels& kernels, int last_rows) {
    for (int i = 0; i < block.count; ++i) {
      last_ = last_ || i >= last_rows;
      const auto at = static_cast<std::size_t>(i);
      const RowLayout::Phase* const before = i > 0 ? &weights[at - 1] : nullptr;
      const Phase phase = block.phases[i];
      switch (phase.kind) {
        case Kind::product:
          if (n_.recalled(n_.products[phase.index].in)) break;  // in the launches of the cell
          product(n_.products[phase.index], weights[at], kernels[at], last_ ? job_.sequences : job_.rows);
          break;
        case Kind::convolution:
          convolution(n_.convolutions[phase.index], weights[at], kernels[at]);
          break;
        case Kind::mean:
          mean(phase.index, before, kernels[at]);
          break;
        case Kind::scan:
          scan(phase.index, before, weights[at], kernels[at]);
          break;
        case Kind::cell:
          cell(phase.index, {block, weights, kernels}, kernels[at]);
          break;
        case Kind::heads:
          heads(n_.heads[phase.index], weights[at], kernels[at]);
          break;
        case Kind::gate:
          gate(n_.gates[phase.index], weights[at], kernels[at]);
          break;
        case Kind::angle:
          angle(n_.angles[phase.index], kernels[at]);
          break;
        case Kind::rotation:
          rotation(n_.rotations[phase.index], weights[at], kernels[at]);
          break;
        case Kind::delay:
          delay(n_.delays[phase.index], kernels[at]);
          break;
      }
    }
  }

  // ---- vectors ----

  // The array of a vector. Of hidden there are two: the last rows do not overwrite the others, which they
  // read.
  float* array(int vector) const {
    const int owner = policy::row_place(n_, vector).owner;
    if (owner == n_.outs) return job_.out;
    if (owner == n_.hidden && has_last_rows(owner)) return b_.last_hidden.as<float>();
    if (owner == n_.frame) return b_.in.as<float>();  // which may be hidden
    return b_.arrays[static_cast<std::size_t>(owner)].as<float>();
  }
  bool has_last_rows(int owner) const { return last_rows_[static_cast<std::size_t>(owner)]; }
  // The same of one that a phase writes.
  float* written(int vector) {
    last_rows_[static_cast<std::size_t>(policy::row_place(n_, vector).owner)] = last_;
    return array(vector);
  }

  struct View {
    const float* first;
    std::int64_t stride;
  };
  // The rows of a vector that a product reads.
  View read(int vector) const {
    const policy::RowPlace place = policy::row_place(n_, vector);
    const float* const first = array(vector) + place.at;
    if (!last_ || has_last_rows(place.owner)) return {first, place.stride};
    return {first + std::int64_t{job_.seq - 1} * place.stride, std::int64_t{job_.seq} * place.stride};
  }

  policy::RowStates states() const {
    policy::RowStates rows{};
    if (job_.keep_states) {
      rows.states = reinterpret_cast<policy::StatePlace*>(b_.in.as<float>() + job_.rows * n_.size(n_.frame));
    }
    rows.state_offset = std::int64_t{layer_} * n_.layer_floats;
    rows.rows = job_.rows, rows.seq = job_.seq, rows.sequences = job_.sequences;
    return rows;
  }

  // ---- one function for each kind of phase ----

  void product(const policy::Product& product, const RowLayout::Phase& weights, const Kernels& kernels,
               std::int64_t rows) {
    if (product.is_short) return;  // in the launch of the next phase
    policy::ProductArguments p{};
    static_cast<policy::ProductMatrix&>(p) = k_.matrix(weights);
    p.rows = rows;
    p.first_layer = layer_ == 0 ? 1 : 0;
    const View in = read(product.in);
    p.x = in.first, p.x_stride = in.stride;
    std::memcpy(&p.epsilon, &product.epsilon, sizeof(p.epsilon));
    p.scale = b_.scale.as<float>();
    const int out = product.out[0].vector;
    if (product.adds) {
      const View residual = read(out);
      p.residual = residual.first, p.residual_stride = residual.stride;
    }
    p.out = written(out), p.out_stride = policy::row_place(n_, out).stride;
    multiply(product, kernels, p);
  }

  void multiply(const policy::Product& product, const Kernels& kernels, const policy::ProductArguments& p) {
    const int tile = policy::few_rows(n_.size(product.in)), outputs = n_.rows(product);
    const Dim3 some{blocks(outputs, policy::kManyColumns), blocks(p.rows, policy::kSomeRows)};
    if (p.rows <= k_.tuning_.few_limit && std::int64_t{some.x} * some.y < k_.tuning_.some_blocks &&
        tile > 0) {
      start(kernels[0], {blocks(outputs, policy::kFewColumns), blocks(p.rows, tile)}, policy::kFewThreads, p);
      return;
    }
    if (product.norm != policy::Norm::none) {
      start(kernels[3], {blocks(p.rows, policy::kScaledRows)}, policy::kRowThreads, p);
    }
    const Dim3 many{some.x, blocks(p.rows, policy::kManyRows)};
    if (std::int64_t{many.x} * many.y >= k_.tuning_.many_blocks) {
      start(kernels[2], many, policy::kManyThreads, p);
    } else {
      start(kernels[1], some, policy::kManyThreads, p);
    }
  }

  void convolution(const policy::Convolution& p, const RowLayout::Phase& weights, const Kernels& kernels) {
    const std::int64_t channels = n_.size(p.in);
    policy::ConvolutionArguments a{};
    static_cast<policy::RowStates&>(a) = states();
    a.in = array(p.in), a.out = written(p.out);
    a.weights = k_.address(weights.channels), a.bias = k_.address(weights.values);
    start(kernels[job_.batch ? 0 : 1], {blocks(job_.rows * channels, policy::kRowThreads)},
          policy::kRowThreads, a);
    if (job_.batch || !job_.keep_states || kernels.size() < 3) return;
    start(kernels[2], {blocks(job_.sequences * channels, policy::kRowThreads)}, policy::kRowThreads, a);
  }

  // before: the weights of the phase before.
  void mean(int index, const RowLayout::Phase* before, const Kernels& kernels) {
    const policy::Mean& p = n_.means[index];
    const int fused = policy::fused_product(n_, Kind::mean, index);
    policy::MeanArguments a{};
    if (fused != policy::kNoPhase) {
      a.in = array(n_.products[fused].in), a.matrix = k_.short_matrix(*before);
    }
    a.values = fused != policy::kNoPhase ? written(p.in) : array(p.in);
    a.mean = written(p.out), a.rows = job_.rows;
    start(kernels[0], {blocks(job_.rows, policy::kMeanRows)}, policy::kRowThreads, a);
  }

  void scan(int index, const RowLayout::Phase* before, const RowLayout::Phase& weights,
            const Kernels& kernels) {
    const policy::Scan& p = n_.scans[index];
    policy::ScanArguments a{};
    static_cast<policy::RowStates&>(a) = states();
    a.x = array(p.x), a.z = array(p.z), a.bc = array(p.b);
    if (policy::fused_product(n_, Kind::scan, index) != policy::kNoPhase) {
      a.matrix = k_.short_matrix(*before);
    } else {
      a.dt = array(p.dt);
    }
    if (p.input_dt != policy::kNoVector) a.input_dt = array(p.input_dt);
    const int kept = policy::kept_convolution(n_, index);
    if (kept != policy::kNoPhase) a.history = array(n_.convolutions[kept].in);
    a.a = k_.address(weights.channels), a.d = k_.address(weights.values);
    a.y = written(p.out);
    a.last_only = last_ ? 1 : 0;
    a.decays_input = job_.decays_input ? 1 : 0;
    const int lanes = policy::Lanes(n_.values(p.b)).lanes;
    const unsigned tiles = blocks(n_.size(p.x), policy::advance_channels(lanes));
    const unsigned groups =
        job_.batch ? std::min(blocks(job_.rows, lanes), kMostGridY) : static_cast<unsigned>(job_.sequences);
    start(kernels[job_.batch ? 0 : 1], {tiles, groups}, policy::advance_threads(lanes), a);
  }

  void heads(const policy::Heads& p, const RowLayout::Phase& weights, const Kernels& kernels) {
    policy::HeadsArguments a{};
    static_cast<policy::RowStates&>(a) = states();
    a.value = array(p.value), a.key = array(p.key), a.query = array(p.query), a.rate = array(p.rate);
    if (p.z != policy::kNoVector) a.z = array(p.z);
    a.a = k_.address(weights.channels), a.d = k_.address(weights.values);
    if (p.trapezoid()) a.value_before = array(p.value_before), a.key_before = array(p.key_before);
    a.out = written(p.out), a.last_only = last_ ? 1 : 0;
    const int tile = policy::kHeadThreads / policy::Lanes(policy::keys_of(n_, p)).lanes;
    const unsigned tiles = blocks(n_.size(p.value), job_.batch ? tile * policy::kHeadsAhead : tile);
    const std::int64_t rows = job_.batch ? std::min<std::int64_t>(job_.rows, kMostGridY) : job_.sequences;
    start(kernels[job_.batch ? 0 : 1], {tiles, static_cast<unsigned>(rows)}, policy::kHeadThreads, a);
  }

  void gate(const policy::Gate& p, const RowLayout::Phase& weights, const Kernels& kernels) {
    policy::GateArguments a{};
    const View in = read(p.in), gate = read(p.gate == policy::kNoVector ? p.in : p.gate);
    a.in = in.first, a.in_stride = in.stride, a.gate = gate.first, a.gate_stride = gate.stride;
    a.weight = k_.address(weights.values), a.scales = k_.address(weights.channels);
    const policy::RowPlace out = policy::row_place(n_, p.out);
    a.out = written(p.out) + out.at + p.at, a.out_stride = out.stride;
    a.rows = last_ ? job_.sequences : job_.rows;
    start(kernels[0], {blocks(a.rows, policy::kScaledRows)}, policy::kRowThreads, a);
  }

  // The states of a phase that takes a batch of agents as sequences of one frame.
  policy::RowStates sequences() const {
    policy::RowStates rows = states();
    if (job_.batch) rows.seq = 1, rows.sequences = static_cast<int>(job_.rows);
    return rows;
  }
  template <class Arguments>
  void for_each_thread(const Kernels& kernels, std::int64_t threads, const Arguments& arguments) {
    start(kernels[0], {blocks(threads, policy::kRowThreads)}, policy::kRowThreads, arguments);
  }

  void angle(const policy::Angle& p, const Kernels& kernels) {
    policy::AngleArguments a{};
    static_cast<policy::RowStates&>(a) = sequences();
    a.rate = array(p.rate), a.dt = array(p.dt), a.out = written(p.out);
    for_each_thread(kernels, std::int64_t{a.sequences} * p.heads * n_.values(p.rate), a);
  }

  void rotation(const policy::Rotation& p, const RowLayout::Phase& weights, const Kernels& kernels) {
    policy::RotationArguments a{};
    a.in = array(p.in), a.turn = array(p.turn), a.out = written(p.out), a.rows = job_.rows;
    a.bias = k_.address(weights.channels), a.weight = k_.address(weights.values);
    for_each_thread(kernels, a.rows * p.ranks * p.heads * 32, a);
  }

  void delay(const policy::Delay& p, const Kernels& kernels) {
    policy::DelayArguments a{};
    static_cast<policy::RowStates&>(a) = sequences();
    a.in = array(p.in), a.out = written(p.out);
    for_each_thread(kernels, job_.rows * n_.size(p.in), a);
  }

  // A block of the network, for a cell whose launches are those of other phases too.
  struct Phases {
    const policy::Block& block;
    const Weights& weights;
    const BlockKernels& kernels;
  };

  void cell(int index, const Phases& phases, const Kernels& kernels) {
    const policy::GatedCell& p = n_.cells[index];
    policy::CellArguments a{};
    static_cast<policy::RowStates&>(a) = sequences();
    for (int gate = 0; gate < formulas::gates_of(p.cell); ++gate) {
      a.x[gate] = array(p.x[gate]);
      if (formulas::recurrent(p.cell)) a.h[gate] = array(p.h[gate]);
    }
    a.out = written(p.out);
    a.initial = as_pointer<float>(k_.initial_state());
    const std::int64_t columns = std::int64_t{a.sequences} * n_.size(p.out);
    const auto all = [](std::int64_t values) { return Dim3{blocks(values, policy::kRowThreads)}; };
    if (p.before == policy::kNoVector) return start(kernels[0], all(columns), policy::kRowThreads, a);
    if (walked(index, phases, a)) return;
    a.carry = array(p.before);
    start(kernels[0], all(std::int64_t{a.sequences} * policy::row_place(n_, p.before).stride),
          policy::kRowThreads, a);
    for (a.step = 0; a.step < a.seq; ++a.step) {
      recurrent_products(p.before, phases, a.sequences);
      start(kernels[1], all(columns), policy::kRowThreads, a);
    }
  }

  // All frames in one launch, with the product of the states. False where there is none for them.
  bool walked(int cell, const Phases& phases, const policy::CellArguments& arguments) const {
    const std::optional<CellWalk>& walk = k_.walks_[static_cast<std::size_t>(cell)];
    if (!walk || job_.batch) return false;
    policy::CellWalkArguments a{};
    static_cast<policy::CellArguments&>(a) = arguments;
    for (int i = 0; i < phases.block.count; ++i) {
      const Phase phase = phases.block.phases[i];
      if (phase.kind != Kind::product || phase.index != walk->product()) continue;
      a.recurrent = k_.matrix(phases.weights[static_cast<std::size_t>(i)]);
    }
    walk->enqueue(k_.context_, stream_, a);
    return true;
  }

  // What the states before a frame give the cell, a row for each sequence.
  void recurrent_products(int before, const Phases& phases, std::int64_t sequences) {
    for (int i = 0; i < phases.block.count; ++i) {
      const Phase phase = phases.block.phases[i];
      if (phase.kind != Kind::product || n_.products[phase.index].in != before) continue;
      const auto at = static_cast<std::size_t>(i);
      product(n_.products[phase.index], phases.weights[at], phases.kernels[at], sequences);
    }
  }

  template <class Arguments>
  void start(CUfunction kernel, Dim3 grid, int threads, const Arguments& arguments) {
    const Dim3 block{static_cast<unsigned>(threads)};
    if (first_) {
      launch(k_.context_, kernel, grid, block, 0, stream_, arguments);
    } else {
      launch_overlapped(k_.context_, kernel, grid, block, 0, stream_, arguments);
    }
    first_ = false;
  }

  const RowKernels& k_;
  const policy::Network& n_;
  const CUstream stream_;
  const RowBuffers& b_;
  const RowJob& job_;
  int layer_ = 0;
  bool first_ = true;                                   // nothing of this job was launched yet
  bool last_ = false;                                   // only the last row of each sequence is computed
  std::array<bool, policy::kMostVectors> last_rows_{};  // whether an array holds those alone
};

void RowKernels::enqueue(CUstream stream, const RowBuffers& buffers, const RowJob& job) const {
  Walk(*this, stream, buffers, job).run();
}

}  // namespace exphil::cuda
