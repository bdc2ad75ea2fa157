// The products, convolutions, means, scans and cells of cuda/policy/rows_walk.hpp.
#include "cuda/policy/rows_walk.hpp"

#include <cstring>

namespace exphil::cuda {
namespace {

// split: of a launch whose halves of a block have different units.
Dim3 batch_grid(const policy::Network& n, const policy::GatedCell& cell, std::int64_t rows, bool split) {
  return {static_cast<unsigned>(n.size(cell.before) / policy::kBatchUnits / (split ? 2 : 1)),
          grid_blocks(rows, policy::kBatchRows)};
}

}  // namespace

void RowKernels::Walk::block(const policy::Block& block, const Weights& weights, const BlockKernels& kernels,
                             int last_rows) {
  for (int i = 0; i < block.count; ++i) {
    last_ = last_ || i >= last_rows;
    const auto at = static_cast<std::size_t>(i);
    const RowLayout::Phase* const before = i > 0 ? &weights[at - 1] : nullptr;
    const Phase phase = block.phases[i];
    switch (phase.kind) {
      case Kind::product:
        if (n_.recalled(n_.products[phase.index].in)) break;  // in the launches of the cell
        if (batched() && phase.index == k_.cell_products_.x) break;
        if (&block == &n_.layer && is_led(phase.index)) break;
        product(n_.products[phase.index], weights[at], kernels[at], last_ ? job_.sequences : job_.rows);
        break;
      case Kind::convolution:
        convolutions(phase.index, &weights[at], kernels[at]);
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

void RowKernels::Walk::product(const policy::Product& product, const RowLayout::Phase& weights,
                               const Kernels& kernels, std::int64_t rows) {
  if (product.is_short) return;  // in the launch of the next phase
  if (pipeline_ != nullptr && layer_ > 0 && &product == &n_.products[pipeline_->product()]) {
    return follow(product, weights);
  }
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
  p.out = lead_to_ != nullptr ? lead_to_ : written(out), p.out_stride = policy::row_place(n_, out).stride;
  multiply(product, kernels, p);
}

void RowKernels::Walk::multiply(const policy::Product& product, const Kernels& kernels,
                                const policy::ProductArguments& p) {
  if (product.diagonal)
    return start(kernels[0], {grid_blocks(p.rows, policy::kScaledRows)}, policy::kRowThreads, p);
  const int k = n_.size(product.in), outputs = n_.rows(product);
  const auto grid_of = [&](const policy::ProductTile& tile) {
    return Dim3{grid_blocks(outputs, tile.columns), grid_blocks(p.rows, tile.rows)};
  };
  const auto blocks = [](const Dim3& grid) { return std::int64_t{grid.x} * grid.y; };
  const policy::ProductTile few_tile = policy::few_tile(n_, k), some_tile = policy::some_tile(n_, k),
                            many_tile = policy::many_tile(n_);
  const Dim3 some = grid_of(some_tile), many = grid_of(many_tile);
  if (k_.warpgroups_ && p.rows >= k_.tuning_.wide_rows && policy::has_wide(n_, product)) {
    if (product.norm != policy::Norm::none) row_scales(kernels, p);
    return wide(k, outputs, kernels.back(), p);
  }
  if (few_tile.rows > 0 && blocks(some) < k_.tuning_.some_blocks) {
    start(kernels[0], grid_of(few_tile), few_tile.threads, p);
    return;
  }
  if (product.norm != policy::Norm::none) row_scales(kernels, p);
  if (blocks(many) >= k_.tuning_.many_blocks) {
    start(kernels[2], many, many_tile.threads, p);
  } else {
    start(kernels[1], some, some_tile.threads, p);
  }
}

void RowKernels::Walk::row_scales(const Kernels& kernels, const policy::ProductArguments& p) {
  start(kernels[3], {grid_blocks(p.rows, policy::kScaledRows)}, policy::kRowThreads, p);
}

void RowKernels::Walk::wide(int k, int outputs, CUfunction kernel, const policy::ProductArguments& p) {
  const int columns = policy::wide_columns(k);
  const unsigned across = grid_blocks(outputs, columns), tiles = grid_blocks(p.rows, policy::kWideRows),
                 blocks = std::min(tiles, wide_blocks(across)),
                 most = static_cast<unsigned>(policy::wide_threads(columns)) / 128,
                 warpgroups = std::min(grid_blocks(tiles, blocks), most);
  start(kernel, {across, blocks}, static_cast<int>(warpgroups * 128), p, policy::wide_product_bytes(k));
}

void RowKernels::Walk::convolutions(int first, const RowLayout::Phase* weights, const Kernels& kernels) {
  const policy::Joined joined = policy::joined_convolutions(n_, first);
  if (joined.first != first) return;  // in the launch of another one
  policy::ConvolutionArguments a{};
  static_cast<policy::RowStates&>(a) = states();
  a.in = array(n_.convolutions[first].in);
  std::int64_t channels = 0;
  for (int i = 0; i < joined.count; ++i) {
    const policy::Convolution& p = n_.convolutions[first + i];
    channels += n_.size(p.in);
    a.of[i] = {written(p.out), k_.address(weights[i].channels), k_.address(weights[i].values)};
  }
  start(kernels[job_.batch ? 0 : 1], {grid_blocks(job_.rows * channels, policy::kRowThreads)},
        policy::kRowThreads, a);
  if (job_.batch || !job_.keep_states || kernels.size() < 3) return;
  start(kernels[2], {grid_blocks(job_.sequences * channels, policy::kRowThreads)}, policy::kRowThreads, a);
}

void RowKernels::Walk::mean(int index, const RowLayout::Phase* before, const Kernels& kernels) {
  const policy::Mean& p = n_.means[index];
  const int fused = policy::fused_product(n_, Kind::mean, index);
  policy::MeanArguments a{};
  if (fused != policy::kNoPhase) {
    a.in = array(n_.products[fused].in), a.matrix = k_.short_matrix(*before);
  }
  a.values = fused != policy::kNoPhase ? written(p.in) : array(p.in);
  a.mean = written(p.out), a.rows = job_.rows;
  start(kernels[0], {grid_blocks(job_.rows, policy::kMeanRows)}, policy::kRowThreads, a);
}

void RowKernels::Walk::scan(int index, const RowLayout::Phase* before, const RowLayout::Phase& weights,
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
  const unsigned tiles = grid_blocks(n_.size(p.x), policy::advance_channels(lanes));
  const unsigned groups = job_.batch ? std::min(grid_blocks(job_.rows, lanes), kMostGridY)
                                     : static_cast<unsigned>(job_.sequences);
  start(kernels[job_.batch ? 0 : 1], {tiles, groups}, policy::advance_threads(lanes), a);
}

void RowKernels::Walk::cell(int index, const Phases& phases, const Kernels& kernels) {
  const policy::GatedCell& p = n_.cells[index];
  if (batched()) return batch(index, phases, kernels);
  policy::CellArguments a{};
  static_cast<policy::RowStates&>(a) = sequences();
  for (int gate = 0; gate < formulas::gates_of(p.cell); ++gate) {
    a.x[gate] = array(p.x[gate]);
    if (formulas::recurrent(p.cell)) a.h[gate] = array(p.h[gate]);
  }
  a.out = written(p.out);
  a.initial = as_pointer<float>(k_.initial_state());
  const std::int64_t columns = std::int64_t{a.sequences} * n_.size(p.out);
  const auto all = [](std::int64_t values) { return Dim3{grid_blocks(values, policy::kRowThreads)}; };
  if (p.before == policy::kNoVector) return start(kernels[0], all(columns), policy::kRowThreads, a);
  a.carry = array(p.before);
  if (walked(index, phases, a)) return;
  start(kernels[0], all(std::int64_t{a.sequences} * policy::row_place(n_, p.before).stride),
        policy::kRowThreads, a);
  for (a.step = 0; a.step < a.seq; ++a.step) {
    recurrent_products(p.before, phases, a.sequences);
    start(kernels[1], all(columns), policy::kRowThreads, a);
  }
}

void RowKernels::Walk::batch(int cell, const Phases& phases, const Kernels& kernels) {
  const policy::GatedCell& p = n_.cells[cell];
  const policy::CellProducts& products = k_.cell_products_;
  policy::CellBatchArguments a{};
  static_cast<policy::RowStates&>(a) = sequences();
  a.of_x = k_.matrix(phases.weights[phases.number_of(products.x)]);
  a.of_h = k_.matrix(phases.weights[phases.number_of(products.h)]);
  std::memcpy(&a.epsilon, &n_.products[products.x].epsilon, sizeof(a.epsilon));
  a.first_layer = layer_ == 0 ? 1 : 0;
  a.shares = job_.shares ? 1 : 0;
  a.in = array(n_.hidden);
  other_hidden_ = !other_hidden_;
  a.out = array(n_.hidden);
  if (n_.on_tensor_cores()) return batch_wide(cell, phases, a, kernels[2]);
  const bool rest = job_.ahead != nullptr;
  if (rest) a.h = job_.ahead + layer_ * n_.rows(n_.products[products.h]);
  start(kernels[rest ? 3 : 2], batch_grid(n_, p, job_.rows, rest), policy::kBatchThreads, a);
}

void RowKernels::Walk::batch_wide(int cell, const Phases& phases, policy::CellBatchArguments& a,
                                  CUfunction kernel) {
  const policy::GatedCell& p = n_.cells[cell];
  const policy::WideCell shape_of = policy::wide_cell(n_, p);
  const policy::Product& product = n_.products[k_.cell_products_.x];
  const unsigned columns = static_cast<unsigned>(n_.size(p.before) / shape_of.units),
                 tiles = grid_blocks(a.rows, policy::kWideRows), most = wide_blocks(columns);
  // A pair of warpgroups of each block finds the factors of a norm where the other one has all of its rows.
  const bool normed = product.norm != policy::Norm::none, finds = normed && tiles <= most;
  if (normed && !finds) {
    policy::ProductArguments factors{};
    factors.x = a.in, factors.x_stride = n_.size(n_.hidden);
    factors.rows = a.rows, factors.epsilon = a.epsilon, factors.first_layer = a.first_layer;
    factors.scale = b_.scale.as<float>();
    row_scales(phases.kernels[phases.number_of(k_.cell_products_.x)], factors);
    a.scale = factors.scale;
  }
  const unsigned blocks = finds ? tiles : std::min(most, grid_blocks(tiles, 2));
  start(kernel, {columns, blocks}, policy::kCellWideThreads, a, shape_of.shared);
}

bool RowKernels::Walk::walked(int cell, const Phases& phases, const policy::CellArguments& arguments) const {
  const std::optional<CellWalk>& alone = k_.walks_[static_cast<std::size_t>(cell)];
  const std::optional<CellWalkWide>& wide = k_.wide_walks_[static_cast<std::size_t>(cell)];
  policy::CellWalkArguments a{};
  static_cast<policy::CellArguments&>(a) = arguments;
  if (job_.batch) return false;
  if (wide && a.sequences >= k_.tuning_.wide_walk && !reads_ring()) {
    a.recurrent = k_.matrix(phases.weights[phases.number_of(wide->product())]);
    wide->enqueue(k_.context_, stream_, a);
    return true;
  }
  if (pipeline_ == nullptr && !alone) return false;
  const CellWalk& walk = pipeline_ != nullptr ? pipeline_->walk() : *alone;
  a.recurrent = k_.matrix(phases.weights[phases.number_of(walk.product())]);
  if (layer_ == 0 && reads_ring()) {
    const policy::KeptRing& ring = job_.kept->ring;
    for (int gate = 0; gate < formulas::gates_of(n_.cells[cell].cell); ++gate) a.x[gate] = ring.lead;
    a.first_slot = ring.first, a.slots = ring.slots;
  }
  if (pipeline_ == nullptr) {
    walk.enqueue(k_.context_, stream_, a, walk.split(a.sequences));
    return true;
  }
  a.number = number_ + static_cast<unsigned>(layer_);
  if (layer_ > 0) a.tagged_x = b_.words.product(layer_, pipeline_->units());
  if (layer_ + 1 < n_.layers) a.tagged_out = b_.words.outputs(layer_ + 1);
  walk.enqueue(k_.context_, stream_, a, *side_by_side_);
  return true;
}

void RowKernels::Walk::follow(const policy::Product& product, const RowLayout::Phase& weights) const {
  policy::FollowArguments a{};
  static_cast<policy::ProductMatrix&>(a) = k_.matrix(weights);
  a.in = b_.words.outputs(layer_), a.out = b_.words.product(layer_, pipeline_->units());
  a.number = number_ + static_cast<unsigned>(layer_);
  a.seq = job_.seq, a.sequences = job_.sequences;
  std::memcpy(&a.epsilon, &product.epsilon, sizeof(a.epsilon));
  pipeline_->enqueue_product(k_.context_, stream_, a, *side_by_side_);
}

void RowKernels::Walk::recurrent_products(int before, const Phases& phases, std::int64_t sequences) {
  for (int i = 0; i < phases.block.count; ++i) {
    const Phase phase = phases.block.phases[i];
    if (phase.kind != Kind::product || n_.products[phase.index].in != before) continue;
    const auto at = static_cast<std::size_t>(i);
    product(n_.products[phase.index], phases.weights[at], phases.kernels[at], sequences);
  }
}

void RowKernels::enqueue_ahead(CUstream stream, const policy::StatePlace* states, std::int64_t rows,
                               float* to) const {
  const policy::Network& n = dims_.network();
  const int cell = n.layer.phases[n.layer.count - 1].index;  // policy::product_before()
  const policy::GatedCell& p = n.cells[cell];
  policy::CellAheadArguments a{};
  a.states = states, a.rows = rows, a.seq = 1, a.sequences = static_cast<int>(rows);
  a.of_h = matrix(layout_.layers.front()[number_of(n.layer, policy::Kind::product, cell_products_.h)]);
  a.layer_stride = layer_stride(), a.layer_floats = n.layer_floats;
  a.out = to;
  Dim3 grid = batch_grid(n, p, rows, true);
  grid.z = static_cast<unsigned>(n.layers);
  launch(context_, layer_[number_of(n.layer, policy::Kind::cell, cell)][4], grid,
         {static_cast<unsigned>(policy::kBatchThreads)}, 0, stream, a);
}

void RowKernels::enqueue_output(CUstream stream, RowBuffers& buffers, const RowJob& job) const {
  Walk(*this, stream, buffers, job).run_output();
}

void RowKernels::reserve_sequences(CUstream stream, RowBuffers& buffers, int least) const {
  if (!pipeline_ || !pipeline_->split(least)) return;
  buffers.words.reserve(context_, stream, buffers.capacity, pipeline_->values(), dims_.network().layers);
}

void RowKernels::enqueue(CUstream stream, RowBuffers& buffers, const RowJob& job) const {
  Walk(*this, stream, buffers, job).run();
}

}  // namespace exphil::cuda
