#include "host/policy/gradient_sums.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"

namespace exphil::host {

namespace {

// Makes room for the gradients of each kind of phase.
class Maker {
 public:
  Maker(const core::PolicyWeights& weights, BlockSums* block) : w_(weights), block_(*block) {}

  PhaseSums operator()(const core::Norm& p) {
    PhaseSums sums;
    sums.first = take(padded(p.in.size)), sums.second = take(padded(p.in.size));
    return sums;
  }
  PhaseSums operator()(const core::Product& p) {
    PhaseSums sums;
    const std::vector<float>& weight = core::values_of(w_.values, p.weight);
    sums.product = {weight.data() + p.first_row * p.in.size, p.out.size, p.in.size};
    return sums;
  }
  PhaseSums operator()(const core::Convolution& p) {
    PhaseSums sums;
    sums.first = take(p.taps * padded(p.in.size)), sums.second = take(padded(p.in.size));
    return sums;
  }
  PhaseSums operator()(const core::Softplus& p) {
    PhaseSums sums;
    sums.bias = AlignedBuffer(padded(p.in.size));
    return sums;
  }
  PhaseSums operator()(const core::SelectiveScan& p) {
    PhaseSums sums;
    sums.first = take(padded(p.x.size)), sums.second = take(padded(p.x.size) * p.b.size);
    if (p.activates) sums.bias = AlignedBuffer(padded(p.x.size));
    return sums;
  }
  PhaseSums operator()(const core::Copy&) { return {}; }
  PhaseSums operator()(const core::Mean&) { return {}; }

 private:
  std::int64_t take(std::int64_t floats) { return std::exchange(block_.floats, block_.floats + floats); }

  const core::PolicyWeights& w_;
  BlockSums& block_;
};

// Writes the sums of one phase to the weights' gradients.
class Writer {
 public:
  Writer(const PhaseSums& sums, const float* row, core::PolicyValues<float>* to)
      : sums_(sums), row_(row), to_(*to) {}

  void operator()(const core::Norm& p) const {
    vector(row_ + sums_.first, p.weight);
    vector(row_ + sums_.second, p.bias);
  }
  void operator()(const core::Product& p) const {
    std::vector<float> bias(p.bias == core::kNone ? 0 : static_cast<std::size_t>(p.out.size));
    sums_.product.write(of(p.weight).data() + p.first_row * p.in.size, bias);
    if (p.bias != core::kNone) std::copy(bias.begin(), bias.end(), of(p.bias).data() + p.first_row);
  }
  void operator()(const core::Convolution& p) const {
    const float* const taps = row_ + sums_.first;
    std::vector<float>& to = of(p.weight);
    for (std::int64_t i = 0; i < p.in.size * p.taps; ++i) {
      to[static_cast<std::size_t>(i)] = taps[i % p.taps * padded(p.in.size) + i / p.taps];
    }
    vector(row_ + sums_.second, p.bias);
  }
  void operator()(const core::Softplus& p) const { vector(sums_.bias.data(), p.bias); }
  void operator()(const core::SelectiveScan& p) const {
    vector(row_ + sums_.first, p.d);
    unpack_panels(row_ + sums_.second, p.x.size, p.b.size, of(p.a).data());
    vector(sums_.bias.data(), p.dt_bias);
  }
  void operator()(const core::Copy&) const {}
  void operator()(const core::Mean&) const {}

 private:
  std::vector<float>& of(core::WeightId id) const { return to_[static_cast<std::size_t>(id)]; }
  void vector(const float* from, core::WeightId id) const {
    if (id != core::kNone) std::copy_n(from, of(id).size(), of(id).data());
  }

  const PhaseSums& sums_;
  const float* const row_;
  core::PolicyValues<float>& to_;
};

template <class Of>
std::int64_t most(const std::vector<BlockSums>& blocks, const Of& of) {
  std::int64_t found = 0;
  for (const BlockSums& block : blocks) {
    for (const PhaseSums& phase : block.phases) found = std::max(found, of(phase.product));
  }
  return found;
}

}  // namespace

GradientSums::GradientSums(const core::PolicyWeights& weights) {
  for (const core::Block* block : blocks_of(weights.network())) {
    BlockSums sums;
    Maker make(weights, &sums);
    for (const core::Phase& phase : *block) sums.phases.push_back(std::visit(make, phase));
    sums.totals = AlignedBuffer(sums.floats);
    blocks.push_back(std::move(sums));
  }
}

std::int64_t GradientSums::most_floats() const {
  std::int64_t found = 0;
  for (const BlockSums& block : blocks) found = std::max(found, block.floats);
  return found;
}

std::int64_t GradientSums::most_outs() const {
  return most(blocks, [](const LinearGradient& product) { return product.outs(); });
}

std::int64_t GradientSums::most_depth() const {
  return most(blocks, [](const LinearGradient& product) { return product.depth(); });
}

void GradientSums::add_rows_of(BlockSums& block, const AlignedBuffer& rows, std::int64_t count) {
  core::parallel_for(block.floats, 1 << 12, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < count; ++row) {
      const float* from = rows.data() + row * block.floats;
      for (std::int64_t i = begin; i < end; ++i) block.totals.data()[i] += from[i];
    }
  });
}

void GradientSums::write(const core::PolicyWeights& weights, core::PolicyValues<float>* to) const {
  const std::vector<const core::Block*> all = blocks_of(weights.network());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t i = 0; i < blocks[b].phases.size(); ++i) {
      std::visit(Writer(blocks[b].phases[i], blocks[b].totals.data(), to), (*all[b])[i]);
    }
  }
  core::derive_back(weights.network(), weights.values, to);
}

}  // namespace exphil::host
