#include "core/trunk/mamba2/description.hpp"

#include <utility>

namespace exphil::core::mamba2 {

namespace {

class Description {
 public:
  Description(const Sizes& sizes, const Settings& settings) : s_(sizes), settings_(settings), m_(s_.ends) {}

  MixerDescription make() {
    m_.begin();
    vectors();
    const std::int64_t layers = s_.ends.layers;
    for (std::int64_t i = 0; i < layers; ++i) m_.b.state("ssm", i, s_.d_ssm, s_.d_state);
    for (std::int64_t i = 0; i < layers; ++i) m_.b.state("conv", i, s_.channels, s_.d_conv - 1);
    for (std::int64_t i = 0; i < layers; ++i) layer(i);
    return m_.end();
  }

 private:
  Span all(VectorId id) const { return m_.all(id); }

  void vectors() {
    if (s_.mlp > 0) z0_ = m_.vector("z0", s_.mlp), x0_ = m_.vector("x0", s_.mlp);
    z_ = m_.vector("z", s_.d_ssm), xbc_ = m_.vector("xbc", s_.channels), u_ = m_.vector("u", s_.channels);
    dt_ = m_.vector("dt", s_.heads), active_ = m_.vector("active_dt", s_.heads);
    y_ = m_.vector("y", s_.d_ssm);
    if (s_.norm) between_ = m_.vector("between", s_.d_ssm);
    joined_ = m_.vector("joined", s_.d_inner);
  }

  void layer(std::int64_t index) {
    Block block = m_.begin_layer(index);
    std::vector<Span> outs = {all(z_), all(xbc_), all(dt_)};
    if (s_.mlp > 0) outs.insert(outs.begin(), {all(z0_), all(x0_)});
    m_.in_proj(outs, s_.in_bias, &block);
    convolution(index, &block);
    recurrence(index, &block);
    gates(&block);
    m_.end_layer(all(joined_), s_.out_bias, std::move(block));
  }

  void convolution(std::int64_t index, Block* block) {
    Convolution conv{all(xbc_), all(u_)};
    conv.weight = m_.weight("conv1d.weight", s_.channels, s_.d_conv, {s_.channels, 1, s_.d_conv},
                            "{channels, 1, d_conv}");
    if (s_.conv_bias) conv.bias = m_.weight("conv1d.bias", s_.channels, "{channels}");
    conv.taps = s_.d_conv, conv.state = static_cast<StateId>(s_.ends.layers + index);
    block->emplace_back(conv);
  }

  void recurrence(std::int64_t index, Block* block) {
    const std::int64_t projected = settings_.groups * s_.d_state;
    const WeightId bias = m_.weight("dt_bias", s_.heads, "{heads}"),
                   log = m_.weight("A_log", s_.heads, "{heads}");
    block->emplace_back(Softplus{all(dt_), all(active_), bias, settings_.dt_lowest, settings_.dt_highest});
    HeadRecurrence heads;
    heads.groups = settings_.groups, heads.state = static_cast<StateId>(index);
    heads.value = {u_, 0, s_.d_ssm}, heads.key = {u_, s_.d_ssm, projected};
    heads.query = {u_, s_.d_ssm + projected, projected}, heads.out = all(y_);
    heads.rate = heads.decay = all(active_);
    heads.a = m_.b.weight(m_.of() + "A", 1, s_.heads);
    m_.n.weights.back().negative_exp_of = log;
    heads.d = m_.weight("D", s_.skips, "{heads} or {d_ssm}"), heads.skips = s_.skips;
    block->emplace_back(heads);
  }

  // The norm does not cover the part that is gated alone.
  void gates(Block* block) {
    const Span out{joined_, s_.mlp, s_.d_ssm};
    if (s_.mlp > 0) block->emplace_back(Gate{all(x0_), all(z0_), {joined_, 0, s_.mlp}});
    if (!s_.norm) {
      block->emplace_back(Gate{all(y_), all(z_), out});
      return;
    }
    const bool before = settings_.norm_before_gate;
    Norm norm{before ? all(y_) : all(between_), before ? all(between_) : out};
    norm.weight = m_.weight("norm.weight", s_.d_ssm, "{d_ssm}");
    norm.epsilon = settings_.mixer_norm_epsilon, norm.parts = settings_.groups;
    if (before) {
      block->emplace_back(norm);
      block->emplace_back(Gate{all(between_), all(z_), out});
    } else {
      block->emplace_back(Gate{all(y_), all(z_), all(between_)});
      block->emplace_back(norm);
    }
  }

  const Sizes& s_;
  const Settings& settings_;
  MixerNetwork m_;
  VectorId z0_ = kNone, x0_ = kNone, z_ = kNone, xbc_ = kNone, u_ = kNone, dt_ = kNone;
  VectorId active_ = kNone, y_ = kNone, between_ = kNone, joined_ = kNone;
};

}  // namespace

MixerDescription describe(const Sizes& sizes, const Settings& settings) {
  return Description(sizes, settings).make();
}

}  // namespace exphil::core::mamba2
