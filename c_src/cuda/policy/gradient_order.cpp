#include "cuda/policy/gradient_order.hpp"

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "core/policy/match.hpp"

namespace exphil::cuda {

using core::Block;
using core::Phase;
using core::Product;
using core::Span;

namespace {

bool reads_any_of(const Phase& phase, const Span& span) {
  const std::vector<Span> all = core::reads(phase);
  return std::any_of(all.begin(), all.end(), [&](const Span& read) { return overlap(read, span); });
}

// Whether no phase before it that has yet to run writes what it reads.
bool is_ready(const Block& block, const std::vector<bool>& done, std::size_t index) {
  for (std::size_t i = 0; i < index; ++i) {
    if (!done[i] && reads_any_of(block[index], core::writes(block[i]))) return false;
  }
  return true;
}

void require(bool holds, const char* what) {
  if (!holds) core::fail(core::ErrorKind::unsupported, "", "the gradient on a GPU needs that ", what);
}

void require_mask(const core::Network& network, const Block& block, const Product& relu) {
  const char* const rule = "products alone read a relu's output, all of it, and their gradients are one sum";
  require(relu.out.vector != network.outs && relu.out.vector != network.hidden, rule);
  const int readers = readers_of(block, relu.out);
  for (const Phase& phase : block) {
    if (!reads_any_of(phase, relu.out)) continue;
    const auto* const product = std::get_if<Product>(&phase);
    require(product != nullptr && product->in == relu.out && (readers == 1 || !product->adds), rule);
  }
}

// A softplus's kernel takes its mean too, and gives back what scans of as many channels leave of it.
void require_mean(const Block& block, const core::Mean& mean) {
  const char* const rule =
      "a mean is that of a softplus, and scales the inputs of scans of its size alone, or is the decay of "
      "heads";
  const bool of_heads = std::any_of(block.begin(), block.end(), [&](const Phase& phase) {
    const auto* const heads = std::get_if<core::HeadRecurrence>(&phase);
    return heads != nullptr && heads->decay == mean.out;
  });
  if (of_heads) return require(writer_of<core::Softplus>(block, mean.in) == nullptr, rule);
  const auto* const softplus = writer_of<core::Softplus>(block, mean.in);
  require(softplus != nullptr && mean_of(block, *softplus) == &mean, rule);
  for (const Phase& phase : block) {
    if (!reads_any_of(phase, mean.out)) continue;
    const auto* const scan = std::get_if<core::SelectiveScan>(&phase);
    require(scan != nullptr && scan->input_dt == mean.out && scan->x.size == mean.in.size, rule);
  }
}

const char* const kWalkRule =
    "between a state that a cell recalls and the cell are products alone, which make its sums";

void require_walk(const Block& block, const core::Recall& recall) {
  for (const Phase& phase : block) {
    if (!reads_any_of(phase, recall.out)) continue;
    const auto* const product = std::get_if<Product>(&phase);
    require(product != nullptr && product->in == recall.out && !product->relu && !product->adds, kWalkRule);
    for (const Phase& reader : block) {
      if (!reads_any_of(reader, product->out)) continue;
      const auto* const cell = std::get_if<core::GatedCell>(&reader);
      require(cell != nullptr && cell->state == recall.state, kWalkRule);
    }
  }
}

void require_walk(const Block& block, const core::GatedCell& cell) {
  for (int g = 0; formulas::recurrent(cell.cell) && g < formulas::gates_of(cell.cell); ++g) {
    const Product* const product = recurrent_product(block, cell.h[static_cast<std::size_t>(g)]).product;
    const auto* const recall = product == nullptr ? nullptr : writer_of<core::Recall>(block, product->in);
    require(recall != nullptr && recall->state == cell.state && recall->out.size == cell.out.size, kWalkRule);
  }
}

}  // namespace

std::vector<const Block*> blocks_of(const core::Network& network) {
  std::vector<const Block*> all = {&network.input};
  for (const Block& layer : network.layers) all.push_back(&layer);
  all.push_back(&network.output);
  return all;
}

std::vector<std::vector<Span>> pieces_of(const core::Network& network, const Block& block) {
  std::vector<std::set<std::int64_t>> cuts(network.vectors.size());
  const auto is_whole = [&](core::VectorId id) {
    return id == network.frame || id == network.hidden || id == network.outs;
  };
  const auto cut = [&](const Span& span) {
    if (!span || is_whole(span.vector)) return;
    cuts[static_cast<std::size_t>(span.vector)].insert({0, span.first, span.first + span.size});
  };
  for (const Phase& phase : block) {
    for (const Span& span : core::reads(phase)) cut(span);
    cut(core::writes(phase));
  }
  std::vector<std::vector<Span>> pieces(cuts.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const auto id = static_cast<core::VectorId>(i);
    if (is_whole(id)) pieces[i] = {network.all_of(id)};
    if (cuts[i].empty()) continue;
    for (auto cut = cuts[i].begin(), end = std::next(cut); end != cuts[i].end(); ++cut, ++end) {
      pieces[i].push_back({id, *cut, *end - *cut});
    }
  }
  return pieces;
}

std::int64_t hidden_after(const core::Network& network, const Block& block, std::int64_t found) {
  std::int64_t values = 0;
  for (const Phase& phase : block) {
    const Span out = core::writes(phase);
    if (out.vector != network.hidden) continue;
    values = std::max(values, core::adds(phase) ? found : out.first + out.size);
  }
  return values;
}

std::vector<std::vector<std::size_t>> forward_launches(const Block& block) {
  const auto is_product = [&](std::size_t i) { return std::holds_alternative<Product>(block[i]); };
  std::vector<std::vector<std::size_t>> launches;
  std::vector<bool> done(block.size());
  for (std::size_t first = 0; first < block.size(); ++first) {
    if (done[first]) continue;
    std::vector<std::size_t> launch = {first};
    for (std::size_t i = first + 1; is_product(first) && i < block.size(); ++i) {
      if (is_product(i) && !done[i] && is_ready(block, done, i)) launch.push_back(i);
    }
    for (const std::size_t phase : launch) done[phase] = true;
    launches.push_back(std::move(launch));
  }
  return launches;
}

int readers_of(const Block& block, const Span& span) {
  return static_cast<int>(std::count_if(block.begin(), block.end(),
                                        [&](const Phase& phase) { return reads_any_of(phase, span); }));
}

bool products_alone_read(const core::Network& network, const Block& block, const Span& span) {
  if (span.vector == network.hidden || span.vector == network.outs) return false;
  return std::all_of(block.begin(), block.end(), [&](const Phase& phase) {
    const auto* const product = std::get_if<Product>(&phase);
    return !reads_any_of(phase, span) || (product != nullptr && !is_walked(block, *product));
  });
}

const Phase* writer_of(const Block& block, const Span& span) {
  for (const Phase& phase : block) {
    if (overlap(core::writes(phase), span)) return &phase;
  }
  return nullptr;
}

std::vector<const Product*> same_input(const Block& block, std::size_t index) {
  const auto& self = std::get<Product>(block[index]);
  if (self.adds) return {&self};
  std::vector<const Product*> all;
  for (const Phase& phase : block) {
    const auto* const product = std::get_if<Product>(&phase);
    if (product != nullptr && !product->adds && product->in == self.in) all.push_back(product);
  }
  return all;
}

bool is_relu(const Block& block, const Span& span) {
  const auto* const product = writer_of<Product>(block, span);
  return product != nullptr && product->relu;
}

const core::Mean* mean_of(const Block& block, const core::Softplus& softplus) {
  for (const Phase& phase : block) {
    const auto* const mean = std::get_if<core::Mean>(&phase);
    if (mean != nullptr && mean->in == softplus.out) return mean;
  }
  return nullptr;
}

RecurrentProduct recurrent_product(const Block& block, const Span& h) {
  const auto* const product = writer_of<Product>(block, h);
  if (product == nullptr || h.first < product->out.first ||
      h.first + h.size > product->out.first + product->out.size) {
    return {};
  }
  return {product, product->first_row + h.first - product->out.first};
}

bool is_walked(const Block& block, const Product& product) {
  return writer_of<core::Recall>(block, product.in) != nullptr;
}

namespace {

void require_heads(const Phase& phase) {
  const auto* const heads = std::get_if<core::HeadRecurrence>(&phase);
  if (heads == nullptr) return;
  if (heads->rule == formulas::HeadRule::trapezoid) return;
  if (heads->rule == formulas::HeadRule::delta) {
    return require(heads->rate.size == heads->value.size,
                   "each channel of heads with the delta rule has a rate");
  }
  require(heads->a != core::kNone && heads->rate == heads->decay, "the decay of heads is exp(A dt)");
}

}  // namespace

void require_gradient(const core::Network& network) {
  for (const Block* block : blocks_of(network)) {
    for (const Phase& phase : *block) {
      if (const auto* const product = std::get_if<Product>(&phase)) {
        require(!overlap(product->in, product->out), "no product adds to what it reads");
        if (product->relu) require_mask(network, *block, *product);
      }
      if (const auto* const recall = std::get_if<core::Recall>(&phase)) require_walk(*block, *recall);
      if (const auto* const cell = std::get_if<core::GatedCell>(&phase)) require_walk(*block, *cell);
      if (const auto* const mean = std::get_if<core::Mean>(&phase)) require_mean(*block, *mean);
      require_heads(phase);
      const auto* const scan = std::get_if<core::SelectiveScan>(&phase);
      require(scan == nullptr || !scan->input_dt || writer_of<core::Mean>(*block, scan->input_dt) != nullptr,
              "a mean scales a scan's inputs");
    }
  }
}

}  // namespace exphil::cuda
