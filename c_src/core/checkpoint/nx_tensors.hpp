// Tensors as Nx saves them: the output of Nx.serialize (version 1), and an Erlang map of Nx.Tensor structs.
// Both give {layer => {name => tensor}}, here as "layer.name". Axon's GRU and LSTM layers have maps of
// tensors under a name, here as "layer.name.part". Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/checkpoint/byte_source.hpp"
#include "core/checkpoint/external_term.hpp"
#include "core/tensor.hpp"

namespace exphil::core {

using TensorMap = std::map<std::string, TensorView>;

// Of a file's metadata and of the description of its tensors, inflated: about 100 bytes for each tensor.
inline constexpr std::uint64_t kMaxTermBytes = std::uint64_t{64} << 20;

// Reads "nx", version, byte order, size of the term, the term, and the tensors' bytes, to the end of the
// source; the views point into it. Throws invalid_checkpoint for another version or byte order, an unexpected
// container or tensor, sizes that disagree with shapes, offsets that overlap, leave gaps or exceed the file,
// and bytes left over; limit_exceeded where the description is compressed and inflates beyond the file's
// limit.
TensorMap read_nx_serialized(ByteSource& source, const std::string& what, InflationLimit& limit);

// `params` is a map of maps of %Nx.Tensor{} on Nx.BinaryBackend, or an %Axon.ModelState{} that holds one. The
// views point into its binaries. Throws invalid_checkpoint likewise.
TensorMap read_nx_structs(const ErlangTerm& params, const std::string& what);

}  // namespace exphil::core
