// What the gradient's launches need to know about a block, found from its phases: which vectors are cut, in
// which launch a phase is, and what a phase's neighbours are. Used by cuda/policy/gradient_memory.cpp and
// gradient_pass.hpp. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "core/policy/network.hpp"

namespace exphil::cuda {

// Input, layers, output.
std::vector<const core::Block*> blocks_of(const core::Network& network);

// The pieces of each vector of a block, in order: what the block uses of a vector is cut where phases read or
// write parts of it, because kernels other than that of products take dense rows. The frame, hidden and outs
// are whole.
std::vector<std::vector<core::Span>> pieces_of(const core::Network& network, const core::Block& block);
// Values of hidden as a block leaves them, which finds `found`.
std::int64_t hidden_after(const core::Network& network, const core::Block& block, std::int64_t found);

// The phases of a block in the order of their launches. A launch is one phase, or several products of which
// none reads what an earlier phase has yet to write.
std::vector<std::vector<std::size_t>> forward_launches(const core::Block& block);

// How many phases read some of a span, and the phase that writes it: null where another block does.
int readers_of(const core::Block& block, const core::Span& span);
// Whether those are products alone, none of which a walk takes, and no other block reads it.
bool products_alone_read(const core::Network& network, const core::Block& block, const core::Span& span);
const core::Phase* writer_of(const core::Block& block, const core::Span& span);
// The writer where it is of this kind.
template <class Kind>
const Kind* writer_of(const core::Block& block, const core::Span& span) {
  const core::Phase* const writer = writer_of(block, span);
  return writer == nullptr ? nullptr : std::get_if<Kind>(writer);
}

// The products whose parts of the gradient of product `index`'s input are one sum: those that read the same
// span, in order. (What an `adds` product is given changes in the course of a block, so it is alone.)
std::vector<const core::Product*> same_input(const core::Block& block, std::size_t index);

// Whether a product of the block with a relu writes the span.
bool is_relu(const core::Block& block, const core::Span& span);

// The mean of a softplus's output, which the same launch takes; null where there is none.
const core::Mean* mean_of(const core::Block& block, const core::Softplus& softplus);

// The product that makes the sums h of a gate of a recurrent cell from what a recall gives, and the row of
// its weight for the first of them. The cell's walk computes it.
struct RecurrentProduct {
  const core::Product* product = nullptr;
  std::int64_t row = 0;
};
RecurrentProduct recurrent_product(const core::Block& block, const core::Span& h);
// Whether that is such a product.
bool is_walked(const core::Block& block, const core::Product& product);

// Throws unsupported where the kernels cannot take the gradient:
// - a relu's mask is a part of the launch that takes the gradient of its output: one sum of products;
// - no product adds to what it reads;
// - between a recall and its cell are products alone, which make the cell's sums and nothing else;
// - a mean is that of a softplus, and what scales a scan's inputs is such a mean; or it is the decay of
// heads.
void require_gradient(const core::Network& network);

}  // namespace exphil::cuda
