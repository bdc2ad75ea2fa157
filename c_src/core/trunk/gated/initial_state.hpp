// The hidden state from which Axon's recurrent layers start: drawn from a key that is stored with the
// parameters. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace exphil::core::gated {

using RandomKey = std::array<std::uint32_t, 2>;

// glorot_uniform({1, hidden}) from the second of the two keys into which Nx.Random.split divides `key`, as
// Axon computes it for a batch of one, bit for bit. It depends on the batch: ExPhil plays with a batch of
// one.
std::vector<float> initial_state(const RandomKey& key, std::int64_t hidden);

}  // namespace exphil::core::gated
