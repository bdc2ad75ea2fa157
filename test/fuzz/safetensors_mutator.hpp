// Mutates safetensors files so that most of what comes out still has a sound frame: the header stays JSON,
// its length agrees, and often the offsets are dealt out again, so that what is broken is one shape, dtype,
// name, number or value somewhere inside. Random bytes would nearly all be refused at the first check.
#pragma once

#include <cstddef>
#include <cstdint>

namespace exphil::fuzz {

// As LLVMFuzzerCustomMutator: changes data in place and returns its new size, at most `most`.
std::size_t mutate_safetensors(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);

}  // namespace exphil::fuzz
