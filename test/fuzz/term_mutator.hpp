// Mutates Erlang terms and the containers around them (Edifice's .nx, ExPhil's .bin) so that most of what
// comes out still has a sound frame: counts and lengths agree, compressed parts are compressed again, and
// often the tensors' offsets are dealt out again. What is broken is then one key, number, atom or binary
// somewhere inside.
#pragma once

#include <cstddef>
#include <cstdint>

namespace exphil::fuzz {

// As LLVMFuzzerCustomMutator: changes data in place and returns its new size, at most `most`.
std::size_t mutate_terms(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);

}  // namespace exphil::fuzz
