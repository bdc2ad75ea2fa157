// The rules of core/policy/network.hpp.
#include <algorithm>
#include <cstddef>

#include "core/error.hpp"
#include "core/policy/match.hpp"

namespace exphil::core {

namespace {

class Checker {
 public:
  explicit Checker(const Network& network) : n_(network) {}

  void run() {
    for (const Span& span : {n_.all_of(n_.frame), n_.all_of(n_.hidden), n_.all_of(n_.outs)}) inside(span);
    owners_.assign(n_.states.size(), 0);
    written_ = {n_.all_of(n_.frame)};
    block(n_.input, false);
    Span passed = hidden_begun();
    for (const Block& layer : n_.layers) {
      require(layer.size() == n_.layers.front().size(), "layers have different phases");
      for (std::size_t i = 0; i < layer.size(); ++i) {
        require(layer[i].index() == n_.layers.front()[i].index(), "layers have different phases");
      }
      written_ = {passed};
      block(layer, true);
      if (!adds(layer.back())) passed = hidden_written();
    }
    written_ = {passed};
    block(n_.output, false);
    for (const int owners : owners_) require(owners == 1, "a state part has not one phase");
  }

 private:
  static void require(bool holds, const char* what) {
    if (!holds) fail(ErrorKind::internal, "", "a network is wrong: ", what);
  }

  void inside(const Span& span) const {
    require(span.vector >= 0 && static_cast<std::size_t>(span.vector) < n_.vectors.size(), "no such vector");
    require(span.first >= 0 && span.size > 0 && span.first + span.size <= n_.size_of(span.vector),
            "a span is outside of its vector");
  }

  // What the input wrote of hidden, in parts or at once: its first values.
  Span hidden_begun() const {
    Span begun{n_.hidden, 0, 0};
    while (begun.size < n_.size_of(n_.hidden) && is_written({n_.hidden, begun.size, 1})) ++begun.size;
    require(begun.size > 0, "a block does not end with hidden");
    return begun;
  }

  // What the last phase of the block wrote: it passes on hidden.
  Span hidden_written() const {
    const Span last = written_.back();
    require(last.vector == n_.hidden && last.first == 0, "a block does not end with hidden");
    return last;
  }

  void block(const Block& block, bool layer) {
    recalled_.clear();
    for (std::size_t i = 0; i < block.size(); ++i) {
      for (const Span& span : reads(block[i])) {
        inside(span);
        require(is_written(span), "a vector is read before it is written");
      }
      const Span out = writes(block[i]);
      inside(out);
      if (layer && out.vector == n_.hidden) {
        require(i + 1 == block.size(), "a layer writes hidden before its end");
      } else {
        require(!adds(block[i]), "a phase adds to a vector that is not hidden");
        for (const Span& other : written_) require(!overlap(out, other), "a vector is written twice");
      }
      written_.push_back(out);
      sizes(block[i]);
      if (recalled_by(block[i]) != kNone) recalled_.push_back(recalled_by(block[i]));
      if (state_of(block[i]) == kNone) continue;
      ++owners_.at(static_cast<std::size_t>(state_of(block[i])));
      recalled_.erase(std::remove(recalled_.begin(), recalled_.end(), state_of(block[i])), recalled_.end());
    }
    require(recalled_.empty(), "a state part is recalled where no later phase owns it");
    require(!layer || (!block.empty() && writes(block.back()).vector == n_.hidden),
            "a layer does not end with hidden");
  }

  // Of several spans that were written one after another, too.
  bool is_written(const Span& span) const {
    std::int64_t at = span.first;
    for (bool more = true; more && at < span.first + span.size;) {
      more = false;
      for (const Span& w : written_) {
        if (w.vector != span.vector || w.first > at || w.first + w.size <= at) continue;
        at = w.first + w.size, more = true;
      }
    }
    return at >= span.first + span.size;
  }

  void weight(WeightId id, std::int64_t rows, std::int64_t columns) const {
    require(id >= 0 && static_cast<std::size_t>(id) < n_.weights.size(), "no such weight");
    require(n_.weight(id).rows == rows && n_.weight(id).columns == columns, "a weight has another shape");
  }
  void vector(WeightId id, std::int64_t size) const {
    if (id != kNone) weight(id, 1, size);
  }
  void state(StateId id, std::int64_t rows, std::int64_t columns) const {
    require(id >= 0 && static_cast<std::size_t>(id) < n_.states.size(), "no such state part");
    require(n_.state(id).rows == rows && n_.state(id).columns == columns, "a state part has another shape");
  }

  void sizes(const Phase& phase) const {
    match(
        phase, [&](const Copy& p) { require(p.in.size == p.out.size, "a copy changes the size"); },
        [&](const Norm& p) {
          require(p.in.size == p.out.size, "a norm changes the size");
          require(p.parts > 0 && p.in.size % p.parts == 0, "a norm's parts are not equal");
          require(p.parts == 1 || p.kind == NormKind::rms, "a LayerNorm has parts");
          require(p.repeats > 0 && p.parts % p.repeats == 0,
                  "a norm's weight does not repeat with its parts");
          weight(p.weight, 1, p.in.size / p.repeats), vector(p.bias, p.in.size);
        },
        [&](const Product& p) {
          require(!(p.relu && p.adds), "a product with relu adds");
          require(p.weight != kNone, "no such weight");
          const Weight& w = n_.weight(p.weight);
          require(w.columns == p.in.size, "a weight has another shape");
          require(p.first_row >= 0 && p.first_row + p.out.size <= w.rows, "a product is outside its weight");
          vector(p.bias, w.rows);
        },
        [&](const Convolution& p) {
          require(p.in.size == p.out.size, "a convolution changes the size");
          weight(p.weight, p.in.size, p.taps), vector(p.bias, p.in.size);
          state(p.state, p.in.size, p.taps - 1);
        },
        [&](const Softplus& p) {
          require(p.in.size == p.out.size, "a softplus changes the size");
          vector(p.bias, p.in.size);
        },
        [&](const Mean& p) { require(p.in.size % p.out.size == 0, "a mean's parts are not equal"); },
        [&](const Sigmoid& p) { require(p.in.size == p.out.size, "a sigmoid changes the size"); },
        [&](const Gate& p) {
          require(p.in.size == p.out.size && p.gate.size == p.out.size, "a gate changes the size");
        },
        [&](const HeadRecurrence& p) { heads(p); },
        [&](const Delay& p) {
          require(p.in.size == p.out.size, "a delay changes the size");
          require(p.state >= 0 && static_cast<std::size_t>(p.state) < n_.states.size(), "no such state part");
          require(n_.state(p.state).size() == p.in.size, "a state part has another shape");
        },
        [&](const Angle& p) {
          require(p.out.size == 2 * p.heads() * p.angles(), "angles have not two values each");
          state(p.state, p.heads(), p.angles());
        },
        [&](const Rotation& p) { rotation(p); },
        [&](const Trapezoid& p) {
          require(p.a.size == p.dt.size && p.mix.size == p.dt.size && p.out.size == 3 * p.dt.size,
                  "the trapezoidal rule's vectors have different sizes");
        },
        [&](const RankScale& p) {
          const std::int64_t one = p.back ? p.out.size : p.in.size, all = p.back ? p.in.size : p.out.size;
          require(p.ranks > 0 && all == p.ranks * one && p.heads > 0 && one % p.heads == 0,
                  "ranks have not equal channels");
          weight(p.weight, p.heads, p.ranks * p.channels());
        },
        [&](const SelectiveScan& p) {
          for (const Span& span : {p.dt, p.z, p.out}) {
            require(span.size == p.x.size, "a scan's vectors have different sizes");
          }
          require(p.b.size == p.c.size, "a scan's B and C have different sizes");
          require(!p.input_dt || p.input_dt.size == 1, "a scan's dt of the input is one value");
          weight(p.a, p.x.size, p.b.size), vector(p.d, p.x.size), vector(p.dt_bias, p.x.size);
          state(p.state, p.x.size, p.b.size);
        },
        [&](const Recall& p) {
          require(p.state >= 0 && static_cast<std::size_t>(p.state) < n_.states.size(), "no such state part");
          require(p.out.size <= n_.state(p.state).size(), "a recall is outside its state part");
        },
        [&](const GatedCell& p) {
          for (int gate = 0; gate < formulas::kMaxGates; ++gate) {
            const Span &x = p.x[gate], &h = p.h[gate];
            const bool has_x = gate < formulas::gates_of(p.cell);
            require(has_x ? x.size == p.out.size : !x, "a cell's gates have another size");
            require(has_x && formulas::recurrent(p.cell) ? h.size == p.out.size : !h,
                    "a cell's gates have another size");
          }
          state(p.state, formulas::states_of(p.cell), p.out.size);
        });
  }

  void rotation(const Rotation& p) const {
    require(p.ranks > 0 && p.groups > 0 && p.heads > 0 && p.heads % p.groups == 0 &&
                p.in.size % (p.ranks * p.groups) == 0 && p.turn.size % (2 * p.heads) == 0,
            "a rotation's heads are not equal");
    require(p.out.size == p.ranks * p.heads * p.size() && 2 * p.angles() <= p.size(),
            "a rotation's vectors have different sizes");
    weight(p.bias, p.heads, p.ranks * p.size());
  }

  // Of the rules but the trapezoidal one there is one rank and nothing of the frame before.
  void terms(const HeadRecurrence& p) const {
    require(p.ranks > 0 && p.key.size % p.ranks == 0, "a recurrence's ranks are not equal");
    if (p.rule == formulas::HeadRule::trapezoid) {
      require(p.ranks <= formulas::kMaxRanks, "a recurrence has too many ranks");
      require(p.value_before.size == p.value.size && p.key_before.size == p.key.size &&
                  p.rate_before.size == p.rate.size && p.rate.size == p.heads(),
              "a recurrence's vectors have different sizes");
      if (p.scale != kNone) weight(p.scale, p.heads(), p.ranks * p.channels());
    } else {
      require(p.ranks == 1 && p.scale == kNone && !p.value_before && !p.key_before && !p.rate_before,
              "a recurrence has what only the trapezoidal rule reads");
    }
  }

  void heads(const HeadRecurrence& p) const {
    const auto divides = [](std::int64_t parts, std::int64_t size) { return parts > 0 && size % parts == 0; };
    const auto one_or_each = [&](std::int64_t size) { return size == p.heads() || size == p.value.size; };
    terms(p);
    require(p.out.size == p.ranks * p.value.size && p.query.size == p.key.size,
            "a recurrence's vectors have different sizes");
    require(divides(p.heads(), p.value.size) && divides(p.groups, p.heads()) &&
                divides(p.ranks * p.groups, p.key.size),
            "a recurrence's heads are not equal");
    require(one_or_each(p.rate.size), "a recurrence's rates are neither the heads' nor the values'");
    vector(p.a, p.heads());
    require(p.d == kNone || one_or_each(p.skips),
            "a recurrence's skips are neither the heads' nor the values'");
    vector(p.d, p.skips);
    state(p.state, p.value.size, p.keys());
  }

  const Network& n_;
  std::vector<Span> written_;
  std::vector<int> owners_;
  std::vector<StateId> recalled_;  // in this block, and no phase yet that owns them
};

}  // namespace

void check(const Network& network) {
  Checker(network).run();
}

}  // namespace exphil::core
