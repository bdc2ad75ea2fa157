#include "core/trunk/mamba3/description.hpp"

#include <limits>
#include <utility>

namespace exphil::core::mamba3 {

namespace {

class Description {
 public:
  explicit Description(const Sizes& sizes) : s_(sizes), m_(s_.ends) {}

  MixerDescription make() {
    m_.begin();
    vectors();
    const std::int64_t layers = s_.ends.layers;
    for (std::int64_t i = 0; i < layers; ++i) m_.b.state("angle", i, s_.heads, s_.angles);
    for (std::int64_t i = 0; i < layers; ++i) m_.b.state("ssm", i, s_.d_inner(), s_.d_state);
    for (std::int64_t i = 0; i < layers; ++i) m_.b.state("k", i, s_.ranks * s_.heads, s_.d_state);
    for (std::int64_t i = 0; i < layers; ++i) m_.b.state("v", i, s_.heads, s_.headdim);
    for (std::int64_t i = 0; i < layers; ++i) layer(i);
    return m_.end();
  }

 private:
  enum StateName { kAngle, kSsm, kKey, kValue };
  StateId state(StateName name, std::int64_t index) const {
    return static_cast<StateId>(name * s_.ends.layers + index);
  }
  Span all(VectorId id) const { return m_.all(id); }

  void vectors() {
    const std::int64_t keys = s_.ranks * s_.heads * s_.d_state, outs = s_.ranks * s_.d_inner();
    z_ = m_.vector("z", s_.d_inner()), x_ = m_.vector("x", s_.d_inner());
    b_ = m_.vector("b", s_.projected()), c_ = m_.vector("c", s_.projected());
    dt_ = m_.vector("dt", s_.heads), a_ = m_.vector("a", s_.heads), mix_ = m_.vector("mix", s_.heads);
    rate_ = m_.vector("angle_rate", s_.angles), active_ = m_.vector("active_dt", s_.heads);
    steps_ = m_.vector("coefficients", 3 * s_.heads);
    b_normed_ = m_.vector("b_normed", s_.projected()), c_normed_ = m_.vector("c_normed", s_.projected());
    turn_ = m_.vector("turn", 2 * s_.heads * s_.angles);
    key_ = m_.vector("key", keys), query_ = m_.vector("query", keys);
    key_before_ = m_.vector("key_before", keys), value_before_ = m_.vector("value_before", s_.d_inner());
    y_ = m_.vector("y", outs);
    if (s_.norm) y_normed_ = m_.vector("y_normed", outs);
    if (s_.mimo) gates_ = m_.vector("gates", outs), joined_ = m_.vector("joined", s_.d_inner());
    gated_ = m_.vector("gated", outs);
  }

  void layer(std::int64_t index) {
    Block block = m_.begin_layer(index);
    m_.in_proj({all(z_), all(x_), all(b_), all(c_), all(dt_), all(a_), all(mix_), all(rate_)}, false, &block);
    const WeightId bias = m_.weight("dt_bias", s_.heads, "{heads}");
    block.emplace_back(Softplus{all(dt_), all(active_), bias, 0, std::numeric_limits<float>::infinity()});
    block.emplace_back(Trapezoid{all(active_), all(a_), all(mix_), all(steps_), s_.floor});
    block.emplace_back(Angle{all(rate_), all(active_), all(turn_), state(kAngle, index)});
    key_of("B", b_, b_normed_, key_, &block), key_of("C", c_, c_normed_, query_, &block);
    block.emplace_back(Delay{all(key_), all(key_before_), state(kKey, index)});
    block.emplace_back(Delay{all(x_), all(value_before_), state(kValue, index)});
    recurrence(index, &block);
    gates(&block);
    m_.end_layer(all(s_.mimo ? joined_ : gated_), false, std::move(block));
  }

  // Of B or C: its norm, its bias and its rotation.
  void key_of(const std::string& name, VectorId from, VectorId normed, VectorId to, Block* block) {
    Norm norm{all(from), all(normed)};
    norm.weight = m_.weight(name + "_norm.weight", s_.d_state, "{d_state}");
    norm.epsilon = s_.mixer_norm_epsilon, norm.parts = norm.repeats = s_.ranks * s_.groups;
    block->emplace_back(norm);
    Rotation rotation{all(normed), all(turn_), all(to)};
    rotation.bias = m_.weight(name + "_bias", s_.heads, s_.ranks * s_.d_state,
                              {s_.heads, s_.ranks, s_.d_state}, "{heads, ranks, d_state}");
    rotation.ranks = s_.ranks, rotation.groups = s_.groups, rotation.heads = s_.heads;
    rotation.halves = s_.mimo;
    block->emplace_back(rotation);
  }

  // A factor for each rank, head and channel.
  WeightId ranks(const char* name) {
    return m_.weight(name, s_.heads, s_.ranks * s_.headdim, {s_.heads, s_.ranks, s_.headdim},
                     "{heads, ranks, headdim}");
  }

  void recurrence(std::int64_t index, Block* block) {
    HeadRecurrence heads;
    heads.rule = formulas::HeadRule::trapezoid;
    heads.groups = s_.heads, heads.ranks = s_.ranks, heads.state = state(kSsm, index);
    heads.value = all(x_), heads.value_before = all(value_before_);
    heads.key = all(key_), heads.key_before = all(key_before_), heads.query = all(query_);
    heads.rate_before = {steps_, 0, s_.heads}, heads.rate = {steps_, s_.heads, s_.heads};
    heads.decay = {steps_, 2 * s_.heads, s_.heads}, heads.out = all(y_);
    heads.d = m_.weight("D", s_.heads, "{heads}"), heads.skips = s_.heads;
    if (s_.mimo) heads.scale = ranks("mimo_x");
    block->emplace_back(heads);
  }

  void gates(Block* block) {
    if (s_.norm) {
      Norm norm{all(y_), all(y_normed_)};
      norm.weight = m_.weight("norm.weight", s_.d_inner(), "{d_inner}");
      norm.epsilon = s_.mixer_norm_epsilon, norm.parts = s_.ranks * s_.heads, norm.repeats = s_.ranks;
      block->emplace_back(norm);
    }
    const Span y = all(s_.norm ? y_normed_ : y_);
    if (!s_.mimo) {
      block->emplace_back(Gate{y, all(z_), all(gated_)});
      return;
    }
    block->emplace_back(RankScale{all(z_), all(gates_), ranks("mimo_z"), s_.heads, s_.ranks, false});
    block->emplace_back(Gate{y, all(gates_), all(gated_)});
    block->emplace_back(RankScale{all(gated_), all(joined_), ranks("mimo_o"), s_.heads, s_.ranks, true});
  }

  const Sizes& s_;
  MixerNetwork m_;
  VectorId z_ = kNone, x_ = kNone, b_ = kNone, c_ = kNone, dt_ = kNone, a_ = kNone, mix_ = kNone;
  VectorId rate_ = kNone, active_ = kNone, steps_ = kNone, b_normed_ = kNone, c_normed_ = kNone;
  VectorId turn_ = kNone, key_ = kNone, query_ = kNone, key_before_ = kNone, value_before_ = kNone;
  VectorId y_ = kNone, y_normed_ = kNone, gates_ = kNone, gated_ = kNone, joined_ = kNone;
};

}  // namespace

std::int64_t angles_of(std::int64_t d_state, double rope_fraction) {
  return static_cast<std::int64_t>(static_cast<double>(d_state) * rope_fraction) / 2;
}

MixerDescription describe(const Sizes& sizes) {
  return Description(sizes).make();
}

}  // namespace exphil::core::mamba3
