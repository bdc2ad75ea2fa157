#include "cuda/policy/gradient_order.hpp"

#include <algorithm>
#include <set>

#include "core/error.hpp"

namespace exphil::cuda {

using core::Block;
using core::Phase;
using core::Product;
using core::Span;

namespace {

bool overlap(const Span& p, const Span& q) {
  return p.vector == q.vector && p.first < q.first + q.size && q.first < p.first + p.size;
}

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
  const char* const rule = "a mean is that of a softplus, and scales the inputs of scans of its size alone";
  const auto* const softplus = writer_of<core::Softplus>(block, mean.in);
  require(softplus != nullptr && mean_of(block, *softplus) == &mean, rule);
  for (const Phase& phase : block) {
    if (!reads_any_of(phase, mean.out)) continue;
    const auto* const scan = std::get_if<core::SelectiveScan>(&phase);
    require(scan != nullptr && scan->input_dt == mean.out && scan->x.size == mean.in.size, rule);
  }
}

}  // namespace

std::vector<const Block*> blocks_of(const core::Network& network) {
  std::vector<const Block*> all = {&network.input};
  for (const Block& layer : network.layers) all.push_back(&layer);
  all.push_back(&network.output);
  return all;
}

std::vector<const Block*> kinds_of_block(const core::Network& network) {
  std::vector<const Block*> all = {&network.input, &network.output};
  if (!network.layers.empty()) all.push_back(&network.layers.front());
  return all;
}

std::vector<std::vector<Span>> pieces_of(const core::Network& network) {
  std::vector<std::set<std::int64_t>> cuts(network.vectors.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) cuts[i] = {0, network.vectors[i].size};
  const auto cut = [&](const Span& span) {
    if (span.vector == network.frame || span.vector == network.hidden || span.vector == network.outs) return;
    cuts[static_cast<std::size_t>(span.vector)].insert({span.first, span.first + span.size});
  };
  for (const Block* block : kinds_of_block(network)) {
    for (const Phase& phase : *block) {
      for (const Span& span : core::reads(phase)) cut(span);
      cut(core::writes(phase));
    }
  }
  std::vector<std::vector<Span>> pieces(cuts.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    for (auto cut = cuts[i].begin(), end = std::next(cut); end != cuts[i].end(); ++cut, ++end) {
      pieces[i].push_back({static_cast<core::VectorId>(i), *cut, *end - *cut});
    }
  }
  return pieces;
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

namespace {

// Neither those that only trunks with a matrix state have.
void refuse_heads(const core::Phase& phase) {
  if (!std::holds_alternative<core::HeadRecurrence>(phase)) return;
  core::fail(
      core::ErrorKind::unsupported, ":backend",
      "the gradient of a policy with a matrix state (gated DeltaNet, Mamba-2) is not computed on a GPU: "
      "load the policy with backend: :host, the CPU backend, to train it");
}

}  // namespace

void require_gradient(const core::Network& network) {
  for (const core::Phase* phase : core::phases_of(network)) refuse_heads(*phase);
  for (const core::Phase* phase : core::phases_of(network)) {
    if (!std::holds_alternative<core::GatedCell>(*phase) && !std::holds_alternative<core::Recall>(*phase))
      continue;
    core::fail(core::ErrorKind::unsupported, ":backend",
               "the gradient of a policy with gated cells (GRU, LSTM, minGRU, minLSTM) is not computed on a "
               "GPU: load the policy with backend: :host, the CPU backend, to train it");
  }
  for (const Block& layer : network.layers)
    require(core::adds(layer.back()), "every layer adds to its input");
  for (const Block* block : blocks_of(network)) {
    for (const Phase& phase : *block) {
      if (const auto* const product = std::get_if<Product>(&phase)) {
        require(!overlap(product->in, product->out), "no product adds to what it reads");
        if (product->relu) require_mask(network, *block, *product);
      }
      const auto* const copy = std::get_if<core::Copy>(&phase);
      require(copy == nullptr || !copy->adds, "no copy adds to what it writes");
      if (const auto* const mean = std::get_if<core::Mean>(&phase)) require_mean(*block, *mean);
      const auto* const scan = std::get_if<core::SelectiveScan>(&phase);
      require(scan == nullptr || !scan->input_dt || writer_of<core::Mean>(*block, scan->input_dt) != nullptr,
              "a mean scales a scan's inputs");
    }
  }
}

}  // namespace exphil::cuda
