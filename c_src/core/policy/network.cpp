#include "core/policy/network.hpp"

#include <algorithm>
#include <cstddef>

#include "core/error.hpp"

namespace exphil::core {

namespace {

// A function object of several lambdas, for std::visit.
template <class... Cases>
struct Cases_ : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Cases_(Cases...) -> Cases_<Cases...>;

template <class... Cases>
auto match(const Phase& phase, Cases... cases) {
  return std::visit(Cases_{cases...}, phase);
}

bool overlap(const Span& p, const Span& q) {
  return p.vector == q.vector && p.first < q.first + q.size && q.first < p.first + p.size;
}

void keep_present(std::vector<Span>* spans) {
  spans->erase(std::remove_if(spans->begin(), spans->end(), [](const Span& s) { return !s; }), spans->end());
}

// ---- the rules ----

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
          weight(p.weight, 1, p.in.size), vector(p.bias, p.in.size);
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
        [&](const Mean& p) { require(p.out.size == 1, "a mean is one value"); },
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

  const Network& n_;
  std::vector<Span> written_;
  std::vector<int> owners_;
  std::vector<StateId> recalled_;  // in this block, and no phase yet that owns them
};

// Whether `phase` reads any of the spans.
bool reads_any(const Phase& phase, const std::vector<Span>& spans) {
  for (const Span& span : reads(phase)) {
    if (std::any_of(spans.begin(), spans.end(), [&](const Span& s) { return overlap(s, span); })) return true;
  }
  return false;
}

}  // namespace

std::int64_t Network::state_floats() const {
  return state_at(static_cast<StateId>(states.size()));
}

std::int64_t Network::state_at(StateId id) const {
  std::int64_t floats = 0;
  for (StateId i = 0; i < id; ++i) floats += state(i).size();
  return floats;
}

void check(const Network& network) {
  Checker(network).run();
}

std::vector<Span> reads(const Phase& phase) {
  std::vector<Span> all = match(
      phase, [](const SelectiveScan& p) { return std::vector<Span>{p.x, p.dt, p.input_dt, p.b, p.c, p.z}; },
      [](const GatedCell& p) {
        std::vector<Span> all(p.x.begin(), p.x.end());
        all.insert(all.end(), p.h.begin(), p.h.end());
        return all;
      },
      [](const Recall&) { return std::vector<Span>{}; },
      [](const auto& p) { return std::vector<Span>{p.in}; });
  if (adds(phase)) all.push_back(writes(phase));
  keep_present(&all);
  return all;
}

Span writes(const Phase& phase) {
  return std::visit([](const auto& p) { return p.out; }, phase);
}

bool adds(const Phase& phase) {
  return match(
      phase, [](const Product& p) { return p.adds; }, [](const Copy& p) { return p.adds; },
      [](const auto&) { return false; });
}

StateId state_of(const Phase& phase) {
  return match(
      phase, [](const Convolution& p) { return p.state; }, [](const SelectiveScan& p) { return p.state; },
      [](const GatedCell& p) { return p.state; }, [](const auto&) { return kNone; });
}

StateId recalled_by(const Phase& phase) {
  const auto* const recall = std::get_if<Recall>(&phase);
  return recall == nullptr ? kNone : recall->state;
}

std::vector<WeightId> weights_of(const Phase& phase) {
  std::vector<WeightId> all = match(
      phase,
      [](const Norm& p) {
        return std::vector<WeightId>{p.weight, p.bias};
      },
      [](const Product& p) {
        return std::vector<WeightId>{p.weight, p.bias};
      },
      [](const Convolution& p) {
        return std::vector<WeightId>{p.weight, p.bias};
      },
      [](const Softplus& p) { return std::vector<WeightId>{p.bias}; },
      [](const SelectiveScan& p) {
        return std::vector<WeightId>{p.a, p.d, p.dt_bias};
      },
      [](const auto&) { return std::vector<WeightId>{}; });
  all.erase(std::remove(all.begin(), all.end(), kNone), all.end());
  return all;
}

std::vector<bool> frame_only(const Network& network) {
  std::vector<bool> alone;
  if (network.layers.empty()) return alone;
  std::vector<Span> others;  // what depends on a state
  for (const Phase& phase : network.layers.front()) {
    alone.push_back(state_of(phase) == kNone && recalled_by(phase) == kNone && !reads_any(phase, others));
    if (!alone.back()) others.push_back(writes(phase));
  }
  return alone;
}

std::vector<Span> kept_of_frame(const Network& network) {
  const std::vector<bool> alone = frame_only(network);
  Span hidden{network.hidden, 0, 0};
  for (const Phase& phase : network.input) {
    const Span out = writes(phase);
    if (out.vector == hidden.vector) hidden.size = std::max(hidden.size, out.first + out.size);
  }
  std::vector<Span> kept = {hidden};
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (!alone[i]) continue;
    const Span out = writes(network.layers.front()[i]);
    for (std::size_t later = i + 1; later < alone.size(); ++later) {
      if (alone[later] || !reads_any(network.layers.front()[later], {out})) continue;
      kept.push_back(out);
      break;
    }
  }
  return kept;
}

std::vector<bool> feeds_state(const Block& layer) {
  std::vector<bool> feeds(layer.size());
  std::vector<Span> needed;  // by a state
  for (std::size_t i = layer.size(); i-- > 0;) {
    const bool feeds_later = std::any_of(needed.begin(), needed.end(),
                                         [&](const Span& span) { return overlap(span, writes(layer[i])); });
    feeds[i] = state_of(layer[i]) != kNone || feeds_later;
    if (!feeds[i]) continue;
    // A scan's C and z, and what a gate multiplies, change its output alone.
    const auto* const scan = std::get_if<SelectiveScan>(&layer[i]);
    for (const Span& span : reads(layer[i])) {
      const bool output_alone = scan != nullptr && !feeds_later && (span == scan->c || span == scan->z);
      if (!output_alone) needed.push_back(span);
    }
  }
  return feeds;
}

std::int64_t products_of(const Network& network) {
  std::int64_t count = 0;
  for (const Phase* phase : phases_of(network)) {
    if (const auto* const product = std::get_if<Product>(phase))
      count += product->in.size * product->out.size;
  }
  return count;
}

std::vector<const Phase*> phases_of(const Network& network) {
  std::vector<const Phase*> all;
  const auto append = [&all](const Block& block) {
    for (const Phase& phase : block) all.push_back(&phase);
  };
  append(network.input);
  for (const Block& layer : network.layers) append(layer);
  append(network.output);
  return all;
}

}  // namespace exphil::core
